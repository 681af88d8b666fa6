import com.google.gson.JsonObject;
import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.lock.LockResponse;
import io.grpc.stub.StreamObserver;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** jetcd's locks, each on a lease of its own. Arguments: the endpoint, the leases' TTL in seconds. */
public final class Jetcd extends Piped {
  /** jetcd cannot try: a lock that is not there by then counts as taken. */
  private static final long A_TRY = 300;

  private final Client client;
  private final long ttl;

  private Jetcd(String endpoint, long ttl) {
    client = Client.builder().endpoints(endpoint).build();
    this.ttl = ttl;
  }

  public static void main(String[] args) throws Exception {
    new Jetcd(args[0], Long.parseLong(args[1])).serve();
  }

  private record Nothing() implements StreamObserver<LeaseKeepAliveResponse> {
    @Override
    public void onNext(LeaseKeepAliveResponse answer) {}

    @Override
    public void onError(Throwable error) {}

    @Override
    public void onCompleted() {}
  }

  private final class Lock implements Hold {
    private final long lease;
    private final ByteSequence key;

    Lock(long lease, ByteSequence key) {
      this.lease = lease;
      this.key = key;
    }

    @Override
    public boolean held() throws Exception {
      return client.getKVClient().get(key).get().getCount() == 1;
    }

    @Override
    public boolean release() throws Exception {
      boolean held = held();
      client.getLockClient().unlock(key).get();
      client.getLeaseClient().revoke(lease).get();
      return held;
    }
  }

  @Override
  Granted acquire(String key, JsonObject ask, long wait) throws Exception {
    long lease = client.getLeaseClient().grant(ttl).get().getID();
    client.getLeaseClient().keepAlive(lease, new Nothing());
    ByteSequence name = ByteSequence.from(key, StandardCharsets.UTF_8);
    CompletableFuture<LockResponse> asked = client.getLockClient().lock(name, lease);
    try {
      LockResponse granted = asked.get(wait == 0 ? A_TRY : wait, TimeUnit.MILLISECONDS);
      return new Granted(new Lock(lease, granted.getKey()), granted.getHeader().getRevision());
    } catch (TimeoutException e) {
      asked.cancel(true);
      client.getLeaseClient().revoke(lease).get();
      throw Refused.within(wait);
    }
  }
}
