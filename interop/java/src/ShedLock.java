import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/**
 * ShedLock with its JDBC template provider and the database's time, driven over pipes in the words of distlock-worker:
 * JSON requests on standard input, answers on standard output, in whatever order they get done. Argument: the JDBC URL,
 * user and password included.
 *
 * <p>ShedLock does not wait: a job that cannot have its lock is skipped. Waiting here is asking again.
 */
public final class ShedLock {
  private static final Gson GSON = new Gson();
  private static final Duration NONE = Duration.ZERO;
  private final LockProvider provider;
  private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private final Map<Long, SimpleLock> holds = new ConcurrentHashMap<>();
  private final AtomicLong numbers = new AtomicLong();

  private ShedLock(DataSource source, String host) {
    provider = new JdbcTemplateLockProvider(
        JdbcTemplateLockProvider.Configuration.builder()
            .withJdbcTemplate(new JdbcTemplate(source))
            // Otherwise all instances on a host are one to ShedLock.
            .withLockedByValue(host)
            .usingDbTime()
            .build());
  }

  public static void main(String[] args) throws Exception {
    ShedLock shedlock = new ShedLock(new DriverManagerDataSource(args[0]), "java-" + ProcessHandle.current().pid());
    ExecutorService threads = Executors.newCachedThreadPool();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonObject request = GSON.fromJson(line, JsonObject.class);
      threads.submit(() -> shedlock.reply(request));
    }
    System.exit(0);
  }

  private void reply(JsonObject request) {
    JsonObject answer;
    try {
      answer = take(request);
    } catch (Throwable e) {
      answer = failed("unavailable", String.valueOf(e));
    }
    answer.add("id", request.get("id"));
    synchronized (out) {
      out.println(GSON.toJson(answer));
      out.flush();
    }
  }

  private JsonObject take(JsonObject request) throws InterruptedException {
    switch (request.get("do").getAsString()) {
      case "acquire":
        return acquire(request);
      case "release":
        // ShedLock does not tell whether there was anything to release.
        holds.remove(request.get("hold").getAsLong()).unlock();
        return answer("yes");
      case "extend":
        long hold = request.get("hold").getAsLong();
        Duration ttl = Duration.ofMillis(request.get("ttl_ms").getAsLong());
        Optional<SimpleLock> extended = holds.remove(hold).extend(ttl, NONE);
        extended.ifPresent(lock -> holds.put(hold, lock));
        return answer(extended.isPresent() ? "yes" : "no");
      default:
        return failed("unsupported", String.valueOf(request));
    }
  }

  private JsonObject acquire(JsonObject ask) throws InterruptedException {
    Duration ttl = Duration.ofMillis(ask.get("ttl_ms").getAsLong());
    Duration least = ask.has("min_hold_ms") ? Duration.ofMillis(ask.get("min_hold_ms").getAsLong()) : NONE;
    long wait = ask.get("wait_ms").isJsonNull() ? Long.MAX_VALUE / 2 : ask.get("wait_ms").getAsLong();
    long end = System.currentTimeMillis() + wait;
    while (true) {
      String name = ask.get("key").getAsString();
      Optional<SimpleLock> lock = provider.lock(new LockConfiguration(Instant.now(), name, ttl, least));
      if (lock.isPresent()) {
        long number = numbers.incrementAndGet();
        holds.put(number, lock.get());
        JsonObject answer = answer("granted");
        answer.addProperty("hold", number);
        return answer;
      }
      if (System.currentTimeMillis() >= end) return failed(wait == 0 ? "busy" : "timeout", "skipped");
      Thread.sleep(25);
    }
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
}
