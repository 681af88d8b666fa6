import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A Redisson client that is driven over pipes, in the words of distlock-worker: JSON requests on standard input,
 * answers on standard output, in whatever order they get done. Arguments: address (several, with commas
 * between them: nodes of a cluster), watchdog time-out in ms.
 *
 * <p>Redisson's owner is a thread, so each hold has a thread of its own.
 */
public final class Redisson {
  private static final Gson GSON = new Gson();
  private final RedissonClient client;
  private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private final Map<Long, Hold> holds = new ConcurrentHashMap<>();
  private final AtomicLong numbers = new AtomicLong();

  /** What is held, and the thread that holds it. */
  private record Hold(ExecutorService thread, RLock lock, RPermitExpirableSemaphore permits, String permit) {
    void release() {
      if (lock != null) lock.unlock();
      else permits.release(permit);
    }

    boolean held() {
      return lock == null || lock.isHeldByCurrentThread();
    }
  }

  private Redisson(String address, long watchdog) {
    Config config = new Config();
    config.setLockWatchdogTimeout(watchdog);
    if (address.contains(",")) {
      config.useClusterServers().addNodeAddress(address.split(",")).setMasterConnectionMinimumIdleSize(4);
    } else {
      config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(4).setConnectionPoolSize(16);
    }
    client = org.redisson.Redisson.create(config);
  }

  public static void main(String[] args) throws Exception {
    Redisson redisson = new Redisson(args[0], Long.parseLong(args[1]));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      redisson.take(GSON.fromJson(line, JsonObject.class));
    }
    System.exit(0);
  }

  private interface Task {
    JsonObject run() throws Exception;
  }

  private void on(ExecutorService thread, long id, Task task) {
    thread.submit(
        () -> {
          JsonObject answer;
          try {
            answer = task.run();
          } catch (IllegalMonitorStateException e) {
            answer = answer("no");
          } catch (Throwable e) {
            answer = failed("unavailable", String.valueOf(e));
          }
          answer.addProperty("id", id);
          synchronized (out) {
            out.println(GSON.toJson(answer));
            out.flush();
          }
        });
  }

  private static JsonObject answer(String word) {
    JsonObject answer = new JsonObject();
    answer.addProperty("answer", word);
    return answer;
  }

  private static JsonObject failed(String kind, String message) {
    JsonObject answer = answer("failed");
    answer.addProperty("kind", kind);
    answer.addProperty("message", message);
    return answer;
  }

  private static JsonObject yes(boolean yes) {
    return answer(yes ? "yes" : "no");
  }

  private void take(JsonObject request) {
    long id = request.get("id").getAsLong();
    String verb = request.get("do").getAsString();
    if (verb.equals("acquire")) {
      ExecutorService thread = Executors.newSingleThreadExecutor();
      on(thread, id, () -> acquire(thread, request));
      return;
    }
    if (verb.equals("force")) {
      String key = request.get("key").getAsString();
      on(Executors.newSingleThreadExecutor(), id, () -> yes(client.getLock(key).forceUnlock()));
      return;
    }
    long number = request.get("hold").getAsLong();
    Hold hold = verb.equals("held") ? holds.get(number) : holds.remove(number);
    on(hold.thread(), id, () -> {
      if (verb.equals("held")) return yes(hold.held());
      hold.release();
      return answer("yes");
    });
  }

  private JsonObject acquire(ExecutorService thread, JsonObject ask) throws InterruptedException {
    String key = ask.get("key").getAsString();
    long wait = ask.get("wait_ms").isJsonNull() ? 3_600_000 : ask.get("wait_ms").getAsLong();
    long lease = ask.get("renew").getAsBoolean() ? -1 : ask.get("ttl_ms").getAsLong();
    JsonElement mode = ask.get("mode");
    if (mode.isJsonObject()) {
      RPermitExpirableSemaphore permits = client.getPermitExpirableSemaphore(key);
      permits.trySetPermits(mode.getAsJsonObject().getAsJsonObject("slot").get("of").getAsInt());
      // Permits have no watchdog.
      String permit = permits.tryAcquire(wait, ask.get("ttl_ms").getAsLong(), TimeUnit.MILLISECONDS);
      if (permit == null) return failed(wait == 0 ? "busy" : "timeout", "no permit");
      return granted(new Hold(thread, null, permits, permit), null);
    }
    RLock lock;
    switch (mode.getAsString()) {
      case "read":
        lock = client.getReadWriteLock(key).readLock();
        break;
      case "write":
        lock = client.getReadWriteLock(key).writeLock();
        break;
      case "fenced":
        RFencedLock fenced = client.getFencedLock(key);
        Long token = fenced.tryLockAndGetToken(wait, lease, TimeUnit.MILLISECONDS);
        if (token == null) return failed(wait == 0 ? "busy" : "timeout", "not obtained");
        return granted(new Hold(thread, fenced, null, null), token);
      default:
        lock = ask.get("fifo").getAsBoolean() ? client.getFairLock(key) : client.getLock(key);
    }
    if (!lock.tryLock(wait, lease, TimeUnit.MILLISECONDS)) {
      return failed(wait == 0 ? "busy" : "timeout", "not obtained");
    }
    return granted(new Hold(thread, lock, null, null), null);
  }

  private JsonObject granted(Hold hold, Long token) {
    long number = numbers.incrementAndGet();
    holds.put(number, hold);
    JsonObject answer = answer("granted");
    answer.addProperty("hold", number);
    if (token != null) answer.addProperty("token", token);
    return answer;
  }
}
