import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson, driven over pipes by scripts/bench. Argument: the server's address. Each line of standard input is a
 * request:
 *
 * <ul>
 *   <li>{@code <threads> <each>}: that many pairs of lock and unlock in each of so many threads, on a key for each
 *       thread; the answer is the time that it took, in nanoseconds.
 *   <li>{@code contend <address> <clients> <seconds> <fair>}: so many clients, each with its own connections as a process
 *       would have, take turns on one key; the answer is a line {@code <client> <granted> <release begun>}, in
 *       nanoseconds, for each turn, and {@code end}.
 * </ul>
 */
public final class RedissonBench {
  private static RedissonClient connect(String address) {
    Config config = new Config();
    config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
    return org.redisson.Redisson.create(config);
  }

  public static void main(String[] args) throws Exception {
    RedissonClient client = connect(args[0]);
    ExecutorService threads = Executors.newCachedThreadPool();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      if (words[0].equals("contend")) {
        contend(threads, words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), Boolean.parseBoolean(words[4]));
      } else {
        System.out.println(pairs(client, threads, Integer.parseInt(words[0]), Integer.parseInt(words[1])));
      }
    }
    System.exit(0);
  }

  private static long pairs(RedissonClient client, ExecutorService threads, int tasks, int each) throws Exception {
    long start = System.nanoTime();
    List<Future<?>> done = new ArrayList<>();
    for (int task = 0; task < tasks; task++) {
      RLock lock = client.getLock("java:order:close:" + task);
      done.add(threads.submit(() -> {
        for (int n = 0; n < each; n++) {
          lock.lock(30, TimeUnit.SECONDS);
          lock.unlock();
        }
      }));
    }
    for (Future<?> one : done) one.get();
    return System.nanoTime() - start;
  }

  private static void contend(ExecutorService threads, String address, int clients, long seconds, boolean fair)
      throws Exception {
    List<RedissonClient> all = new ArrayList<>();
    for (int n = 0; n < clients; n++) all.add(connect(address));
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
    List<Future<List<String>>> done = new ArrayList<>();
    for (int n = 0; n < clients; n++) {
      RedissonClient client = all.get(n);
      String who = n + " ";
      RLock lock = fair ? client.getFairLock("java:contended") : client.getLock("java:contended");
      done.add(threads.submit(() -> {
        List<String> turns = new ArrayList<>();
        while (System.nanoTime() < end) {
          lock.lock(30, TimeUnit.SECONDS);
          long granted = System.nanoTime();
          turns.add(who + granted + " " + System.nanoTime());
          lock.unlock();
        }
        return turns;
      }));
    }
    for (Future<List<String>> turns : done) {
      for (String turn : turns.get()) System.out.println(turn);
    }
    System.out.println("end");
    for (RedissonClient client : all) client.shutdown(0, 2, TimeUnit.SECONDS);
  }
}
