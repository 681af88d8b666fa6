//! The fencing gate on a real server.

use distlock_core::FencingToken;
use distlock_redis::{Stale, guarded_set};
use distlock_testkit::servers::{Redis, or_skip};

#[tokio::test]
async fn an_old_token_cannot_write() {
    let Some(redis) = or_skip(Redis::start().await) else {
        return;
    };
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // Beyond 2^53, where Lua's numbers would not tell them apart.
    let (old, new) = (FencingToken::new((1 << 60) + 1), FencingToken::new((1 << 60) + 2));
    assert_eq!(
        guarded_set(&mut connection, "d", b"a", old).await.unwrap(),
        Ok(())
    );
    assert_eq!(
        guarded_set(&mut connection, "d", b"b", new).await.unwrap(),
        Ok(())
    );
    assert_eq!(
        guarded_set(&mut connection, "d", b"b2", new).await.unwrap(),
        Ok(())
    );
    assert_eq!(
        guarded_set(&mut connection, "d", b"late", old).await.unwrap(),
        Err(Stale { seen: new })
    );
    let short = FencingToken::new(9);
    assert_eq!(
        guarded_set(&mut connection, "d", b"late", short).await.unwrap(),
        Err(Stale { seen: new })
    );
    assert_eq!(redis.command(&["GET", "d"]).await.unwrap().text(), Some("b2"));
}
