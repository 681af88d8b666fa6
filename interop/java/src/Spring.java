import com.google.gson.JsonObject;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.TimeUnit;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.scheduling.concurrent.SimpleAsyncTaskScheduler;

/**
 * Spring Integration's lock registry. Arguments: the server's host and port, the registry's key. A registry is one owner, so each
 * hold has its own.
 */
public final class Spring extends Piped {
  private final LettuceConnectionFactory connections;
  private final StringRedisTemplate redis;
  private final String registryKey;

  private Spring(String host, int port, String registryKey) {
    connections = new LettuceConnectionFactory(host, port);
    connections.afterPropertiesSet();
    connections.start();
    redis = new StringRedisTemplate(connections);
    this.registryKey = registryKey;
  }

  public static void main(String[] args) throws Exception {
    new Spring(args[0], Integer.parseInt(args[1]), args[2]).serve();
  }

  private final class Registered implements Hold {
    private final RedisLockRegistry registry;
    private final DistributedLock lock;
    private final String record;
    private final String owner;

    Registered(RedisLockRegistry registry, DistributedLock lock, String key) {
      this.registry = registry;
      this.lock = lock;
      record = registryKey + ":" + key;
      owner = redis.opsForValue().get(record);
    }

    @Override
    public boolean held() {
      return owner != null && owner.equals(redis.opsForValue().get(record));
    }

    @Override
    public boolean release() {
      try {
        lock.unlock();
        return true;
      } catch (ConcurrentModificationException | IllegalStateException e) {
        return false;
      } finally {
        registry.destroy();
      }
    }
  }

  @Override
  Granted acquire(String key, JsonObject ask, long wait) throws Exception {
    Duration ttl = Duration.ofMillis(ask.get("ttl_ms").getAsLong());
    RedisLockRegistry registry = new RedisLockRegistry(connections, registryKey, ttl);
    registry.setIdleBetweenTries(Duration.ofMillis(50));
    if (ask.get("renew").getAsBoolean()) registry.setRenewalTaskScheduler(new SimpleAsyncTaskScheduler());
    DistributedLock lock = registry.obtain(key);
    if (!lock.tryLock(wait, TimeUnit.MILLISECONDS)) throw Refused.within(wait);
    return new Granted(new Registered(registry, lock, key), null);
  }
}
