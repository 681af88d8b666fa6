//! A server whose disk is full.

use std::time::{Duration, Instant};

use distlock_core::driver::LostReason;
use distlock_core::{Client, Error, ErrorKind, Renew};
use distlock_sql::Dialect;
use distlock_testkit::servers::{Setup, SmallDisk, eventually, or_skip};

use crate::both;
use crate::server::{Server, locks};

const SEC: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(2);

/// Takes locks that nobody had before, whose rows need room, until one is refused.
async fn refused(locks: &Client) -> Error {
    for i in 0..5000 {
        let new = locks.mutex(format!("{}{i}", "long".repeat(120)));
        match new.try_acquire().await {
            Ok(guard) => drop(guard.expect("a lock that nobody had")),
            Err(e) => return e,
        }
    }
    panic!("the disk is not full");
}

/// The log of PostgreSQL goes on in a new file, for which there is no room: the server ends itself. MariaDB goes on
/// in the file that it has, so it is killed.
async fn dies(server: &mut Server, dialect: Dialect) {
    if dialect == Dialect::Mysql {
        return server.process().kill9().unwrap();
    }
    let _ = server.try_sql("SELECT pg_switch_wal()").await;
    let gone = eventually(20 * SEC, async || (!server.process().alive()).then_some(()));
    gone.await.expect("ended for want of room");
}

both! {
    #[test]
    /// New locks are refused. Nobody is granted what somebody holds, and everybody is told of a hold that ends.
    async fn a_full_disk_gives_nothing_away(dialect) {
        let Some(disk) = or_skip(SmallDisk::new(192)) else { return };
        let Some(mut server) = Server::start_with(dialect, Setup::default().on(&disk)).await else { return };
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        let renewed = a.mutex("renewed").ttl(TTL).acquire().await.unwrap();
        let given_back = a.mutex("given-back").ttl(TTL).acquire().await.unwrap();
        disk.fill().unwrap();
        let e = refused(&b).await;
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
        assert!(e.to_string().contains("full") || e.to_string().contains("No space left"), "{e}");

        // Rows that are there may have room or not. A release says which, and is never a grant to two.
        match given_back.release().await {
            Ok(_) => assert!(!matches!(b.mutex("given-back").try_acquire().await, Ok(None)), "given back"),
            Err(e) => assert!(matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown), "{e}"),
        }
        // A lease that nobody renews ends, and is told before anybody else is granted it.
        let ending = a.mutex("renewed-not").ttl(TTL).renew(Renew::Never).try_acquire().await;
        if let Ok(Some(ending)) = ending {
            let waiter = tokio::spawn(b.mutex("renewed-not").wait(5 * TTL).acquire());
            let lost = async { (ending.lost().await, Instant::now()) };
            let granted = async { (waiter.await.unwrap(), Instant::now()) };
            let ((reason, lost), (next, granted)) = tokio::join!(lost, granted);
            assert_eq!(reason, LostReason::Expired);
            if let Ok(next) = next {
                assert!(lost < granted && next.token() > ending.token());
            }
        }
        // One that is renewed is renewed, or told.
        let end = Instant::now() + TTL;
        while Instant::now() < end {
            if let Ok(Some(_)) = b.mutex("renewed").try_acquire().await {
                assert!(!renewed.is_held(), "two hold it");
            }
            tokio::time::sleep(SEC / 20).await;
        }

        dies(&mut server, dialect).await;
        let reason = tokio::time::timeout(10 * TTL, renewed.lost()).await.expect("told");
        assert_eq!(reason, LostReason::Expired);
        disk.free().unwrap();
        server.restart().await;
        for key in ["renewed", "renewed-not", "given-back", "new"] {
            let next = b.mutex(key).wait(20 * SEC).acquire().await.unwrap();
            assert!(key != "renewed" || next.token() > renewed.token());
            next.release().await.unwrap();
        }
    }
}
