import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

/**
 * Curator's locks. Arguments: the server, the session timeout in ms; for a benchmark, also a path and how often to lock
 * and unlock it, which prints the nanoseconds that each took.
 */
public final class Curator extends Piped {
  private final CuratorFramework client;

  private Curator(String server, int session) throws InterruptedException {
    client = CuratorFrameworkFactory.newClient(server, session, 10_000, new RetryOneTime(100));
    client.start();
    client.blockUntilConnected();
  }

  public static void main(String[] args) throws Exception {
    Curator curator = new Curator(args[0], Integer.parseInt(args[1]));
    if (args.length > 2) curator.measure(args[2], Integer.parseInt(args[3]));
    else curator.serve();
  }

  private void measure(String path, int number) throws Exception {
    InterProcessMutex mutex = new InterProcessMutex(client, path);
    StringBuilder times = new StringBuilder();
    for (int i = 0; i < number; i++) {
      long start = System.nanoTime();
      mutex.acquire();
      mutex.release();
      times.append(System.nanoTime() - start).append(' ');
    }
    System.out.println(times.toString().trim());
    client.close();
  }

  private record Mutex(InterProcessMutex mutex) implements Hold {
    @Override
    public boolean held() {
      return mutex.isOwnedByCurrentThread();
    }

    @Override
    public boolean release() throws Exception {
      if (!held()) return false;
      mutex.release();
      return true;
    }
  }

  private record Permit(Lease lease) implements Hold {
    @Override
    public boolean held() throws Exception {
      return lease.getData() != null;
    }

    @Override
    public boolean release() throws Exception {
      lease.close();
      return true;
    }
  }

  @Override
  Granted acquire(String key, JsonObject ask, long wait) throws Exception {
    String path = "/" + key;
    JsonElement mode = ask.get("mode");
    if (mode.isJsonObject()) {
      int permits = mode.getAsJsonObject().getAsJsonObject("slot").get("of").getAsInt();
      Lease lease = new InterProcessSemaphoreV2(client, path, permits).acquire(wait, TimeUnit.MILLISECONDS);
      if (lease == null) throw Refused.within(wait);
      return new Granted(new Permit(lease), null);
    }
    InterProcessMutex mutex =
        switch (mode.getAsString()) {
          case "read" -> new InterProcessReadWriteLock(client, path).readLock();
          case "write" -> new InterProcessReadWriteLock(client, path).writeLock();
          default -> new InterProcessMutex(client, path);
        };
    if (!mutex.acquire(wait, TimeUnit.MILLISECONDS)) throw Refused.within(wait);
    return new Granted(new Mutex(mutex), null);
  }
}
