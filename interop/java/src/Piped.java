import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A client that is driven over pipes, in the words of distlock-worker: JSON requests on standard input, answers on
 * standard output, in whatever order they get done. Each hold has a thread of its own, for clients whose owner is one.
 */
abstract class Piped {
  private static final Gson GSON = new Gson();
  private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private final Map<Long, Owned> holds = new ConcurrentHashMap<>();
  private final AtomicLong numbers = new AtomicLong();

  /** What is held. */
  interface Hold {
    boolean held() throws Exception;

    /** Whether it was held until now. */
    boolean release() throws Exception;

    /** Whether it is held for so many milliseconds from now on. */
    default boolean extend(long ttl) throws Exception {
      throw new UnsupportedOperationException("extend");
    }
  }

  /** It was not obtained; the word says why. */
  static final class Refused extends Exception {
    final String kind;

    private Refused(String kind, String message) {
      super(message);
      this.kind = kind;
    }

    static Refused within(long wait) {
      return new Refused(wait == 0 ? "busy" : "timeout", "not obtained");
    }
  }

  /** Something with a token. */
  record Granted(Hold hold, Long token) {}

  private record Owned(ExecutorService thread, Hold hold) {}

  private interface Task {
    JsonObject run() throws Exception;
  }

  /** Acquires within so many milliseconds. */
  abstract Granted acquire(String key, JsonObject ask, long wait) throws Exception;

  /** Ends whatever hold there is; whether there was one. */
  boolean force(String key) throws Exception {
    throw new UnsupportedOperationException("force");
  }

  final void serve() throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      take(GSON.fromJson(line, JsonObject.class));
    }
    System.exit(0);
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
      on(Executors.newSingleThreadExecutor(), id, () -> answer(yes(force(key))));
      return;
    }
    long number = request.get("hold").getAsLong();
    Owned owned = verb.equals("release") ? holds.remove(number) : holds.get(number);
    on(
        owned.thread(),
        id,
        () ->
            switch (verb) {
              case "held" -> answer(yes(owned.hold().held()));
              case "release" -> answer(yes(owned.hold().release()));
              case "extend" -> answer(yes(owned.hold().extend(request.get("ttl_ms").getAsLong())));
              default -> failed("unsupported", verb);
            });
  }

  private JsonObject acquire(ExecutorService thread, JsonObject ask) throws Exception {
    long wait = ask.get("wait_ms").isJsonNull() ? 3_600_000 : ask.get("wait_ms").getAsLong();
    Granted granted = acquire(ask.get("key").getAsString(), ask, wait);
    long number = numbers.incrementAndGet();
    holds.put(number, new Owned(thread, granted.hold()));
    JsonObject answer = answer("granted");
    answer.addProperty("hold", number);
    if (granted.token() != null) answer.addProperty("token", granted.token());
    return answer;
  }

  private void on(ExecutorService thread, long id, Task task) {
    thread.submit(
        () -> {
          JsonObject answer;
          try {
            answer = task.run();
          } catch (Refused e) {
            answer = failed(e.kind, e.getMessage());
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

  private static String yes(boolean yes) {
    return yes ? "yes" : "no";
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
