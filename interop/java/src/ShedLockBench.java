import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;

/**
 * ShedLock with its JDBC template provider, driven over pipes by scripts/bench. Argument: the JDBC URL, user included;
 * the table exists. Each line of standard input, {@code <threads> <each>}, asks for that many pairs of lock and unlock
 * in each of so many threads, on a key for each thread; the answer is the time that it took, in nanoseconds. Each
 * thread has a connection of its own, open before the time is taken.
 */
public final class ShedLockBench {
  private static LockProvider connect(String url) {
    return new JdbcTemplateLockProvider(
        JdbcTemplateLockProvider.Configuration.builder()
            .withJdbcTemplate(new JdbcTemplate(new SingleConnectionDataSource(url, true)))
            .usingDbTime()
            .build());
  }

  public static void main(String[] args) throws Exception {
    List<LockProvider> providers = new ArrayList<>();
    ExecutorService threads = Executors.newCachedThreadPool();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      int tasks = Integer.parseInt(words[0]);
      while (providers.size() < tasks) {
        LockProvider provider = connect(args[0]);
        pairs(provider, "java:order:close:" + providers.size(), 1);
        providers.add(provider);
      }
      long start = System.nanoTime();
      List<Future<?>> done = new ArrayList<>();
      for (int task = 0; task < tasks; task++) {
        LockProvider provider = providers.get(task);
        String name = "java:order:close:" + task;
        done.add(threads.submit(() -> pairs(provider, name, Integer.parseInt(words[1]))));
      }
      for (Future<?> one : done) one.get();
      System.out.println(System.nanoTime() - start);
    }
    System.exit(0);
  }

  private static void pairs(LockProvider provider, String name, int each) {
    for (int n = 0; n < each; n++) {
      LockConfiguration job = new LockConfiguration(Instant.now(), name, Duration.ofSeconds(30), Duration.ZERO);
      provider.lock(job).orElseThrow().unlock();
    }
  }
}
