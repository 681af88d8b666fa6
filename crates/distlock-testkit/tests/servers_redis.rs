//! The supervisor of a standalone Redis does what tests rely on.

use distlock_testkit::servers::{Data, Redis, Resp, or_skip};

#[tokio::test]
async fn a_redis_starts_stops_and_comes_back() {
    let Some(mut redis) = or_skip(Redis::options().durable().unix_socket().start().await) else {
        return;
    };
    assert_eq!(
        redis.command(&["SET", "k", "v"]).await.unwrap(),
        Resp::Text("OK".into())
    );

    redis.pause().unwrap();
    redis
        .command(&["GET", "k"])
        .await
        .expect_err("a stopped server does not answer");
    redis.resume().unwrap();
    assert_eq!(redis.command(&["GET", "k"]).await.unwrap().text(), Some("v"));

    redis.kill9().unwrap();
    redis
        .command(&["GET", "k"])
        .await
        .expect_err("a dead server does not answer");
    redis.restart(Data::Keep).await.unwrap();
    assert_eq!(redis.command(&["GET", "k"]).await.unwrap().text(), Some("v"));
    redis.restart(Data::Empty).await.unwrap();
    assert_eq!(redis.command(&["GET", "k"]).await.unwrap(), Resp::Nil);

    let pid = redis.process().pid();
    redis.pause().unwrap();
    drop(redis);
    assert!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "dropped while stopped: it is gone"
    );
}

#[tokio::test]
async fn a_missing_program_is_told_apart_from_a_failure() {
    let e = Redis::options()
        .program("/no/such/redis-server")
        .start()
        .await
        .unwrap_err();
    assert!(e.to_string().contains("not installed"), "{e}");
    if let Some(redis) = or_skip(Redis::start().await) {
        let e = Redis::options()
            .args(["--no-such-option", "x"])
            .start()
            .await
            .unwrap_err();
        assert!(e.to_string().contains("before it was ready"), "{e}");
        drop(redis);
    }
}
