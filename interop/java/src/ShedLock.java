import com.google.gson.JsonObject;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/**
 * ShedLock with its JDBC template provider and the database's time. Argument: the JDBC URL, user and password included.
 *
 * <p>ShedLock does not wait: a job that cannot have its lock is skipped. Waiting here is asking again.
 */
public final class ShedLock extends Piped {
  private static final Duration NONE = Duration.ZERO;
  private final LockProvider provider;

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
    new ShedLock(new DriverManagerDataSource(args[0]), "java-" + ProcessHandle.current().pid()).serve();
  }

  private static final class Locked implements Hold {
    private SimpleLock lock;

    Locked(SimpleLock lock) {
      this.lock = lock;
    }

    @Override
    public boolean held() {
      throw new UnsupportedOperationException("ShedLock does not tell");
    }

    @Override
    public boolean release() {
      // Nor whether there was anything to release.
      lock.unlock();
      return true;
    }

    @Override
    public boolean extend(long ttl) {
      Optional<SimpleLock> extended = lock.extend(Duration.ofMillis(ttl), NONE);
      extended.ifPresent(longer -> lock = longer);
      return extended.isPresent();
    }
  }

  @Override
  Granted acquire(String key, JsonObject ask, long wait) throws Exception {
    Duration ttl = Duration.ofMillis(ask.get("ttl_ms").getAsLong());
    Duration least = ask.has("min_hold_ms") ? Duration.ofMillis(ask.get("min_hold_ms").getAsLong()) : NONE;
    long end = System.currentTimeMillis() + wait;
    while (true) {
      Optional<SimpleLock> lock = provider.lock(new LockConfiguration(Instant.now(), key, ttl, least));
      if (lock.isPresent()) return new Granted(new Locked(lock.get()), null);
      if (System.currentTimeMillis() >= end) throw Refused.within(wait);
      Thread.sleep(25);
    }
  }
}
