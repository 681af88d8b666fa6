import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's locks. Arguments: address (several, with commas between them: nodes of a cluster), watchdog time-out in ms.
 */
public final class Redisson extends Piped {
  private final RedissonClient client;

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
    new Redisson(args[0], Long.parseLong(args[1])).serve();
  }

  private record Locked(RLock lock) implements Hold {
    @Override
    public boolean held() {
      return lock.isHeldByCurrentThread();
    }

    @Override
    public boolean release() {
      try {
        lock.unlock();
        return true;
      } catch (IllegalMonitorStateException e) {
        return false;
      }
    }
  }

  private record Permit(RPermitExpirableSemaphore permits, String id) implements Hold {
    @Override
    public boolean held() {
      return true;
    }

    @Override
    public boolean release() {
      permits.release(id);
      return true;
    }
  }

  @Override
  boolean force(String key) {
    return client.getLock(key).forceUnlock();
  }

  @Override
  Granted acquire(String key, JsonObject ask, long wait) throws Exception {
    long ttl = ask.get("ttl_ms").getAsLong();
    long lease = ask.get("renew").getAsBoolean() ? -1 : ttl;
    JsonElement mode = ask.get("mode");
    if (mode.isJsonObject()) {
      RPermitExpirableSemaphore permits = client.getPermitExpirableSemaphore(key);
      permits.trySetPermits(mode.getAsJsonObject().getAsJsonObject("slot").get("of").getAsInt());
      // Permits have no watchdog.
      String permit = permits.tryAcquire(wait, ttl, TimeUnit.MILLISECONDS);
      if (permit == null) throw Refused.within(wait);
      return new Granted(new Permit(permits, permit), null);
    }
    if (mode.getAsString().equals("fenced")) {
      RFencedLock fenced = client.getFencedLock(key);
      Long token = fenced.tryLockAndGetToken(wait, lease, TimeUnit.MILLISECONDS);
      if (token == null) throw Refused.within(wait);
      return new Granted(new Locked(fenced), token);
    }
    RLock lock =
        switch (mode.getAsString()) {
          case "read" -> client.getReadWriteLock(key).readLock();
          case "write" -> client.getReadWriteLock(key).writeLock();
          default -> ask.get("fifo").getAsBoolean() ? client.getFairLock(key) : client.getLock(key);
        };
    if (!lock.tryLock(wait, lease, TimeUnit.MILLISECONDS)) throw Refused.within(wait);
    return new Granted(new Locked(lock), null);
  }
}
