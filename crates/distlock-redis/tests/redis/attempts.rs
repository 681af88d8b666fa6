//! Attempts that are repeated: the same hold, the same token.

use std::sync::Arc;

use distlock_core::driver::{DriverErrorKind, Mode, Order, Released, Renewal, Want};
use distlock_testkit::servers::Resp;

use crate::common::{MS, Peer, config, is_held, renew, token};

#[tokio::test]
async fn asking_again_is_the_same_hold_and_the_same_token() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    for (mode, order) in [
        (Mode::Mutex, Order::Any),
        (Mode::Mutex, Order::Fifo),
        (Mode::Write, Order::Any),
        (Mode::Read, Order::Any),
        (Mode::Slot { of: 2 }, Order::Any),
    ] {
        let key = format!("again:{mode:?}:{order:?}").replace(['{', '}', ' '], "");
        let want = Arc::new(Want {
            mode,
            order,
            ..peer.want(&key)
        });
        // As after a reply that was lost: another claim of the same owner.
        let first = peer
            .driver
            .claim(want.clone())
            .unwrap()
            .try_acquire()
            .await
            .unwrap();
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        let second = claim.try_acquire().await.unwrap();
        assert!(is_held(&first) && is_held(&second), "{mode:?}");
        assert_eq!(token(&first), token(&second), "{mode:?}");
        assert_eq!(token(&first).is_some(), mode.is_exclusive());
        assert_eq!(claim.release(None).await.unwrap(), Released::Freed, "{mode:?}");
        let mut other = peer
            .driver
            .claim(Arc::new(Want {
                mode,
                order,
                ..peer.want(&key)
            }))
            .unwrap();
        assert!(
            is_held(&other.try_acquire().await.unwrap()),
            "{mode:?}: one release was not enough"
        );
        assert!(matches!(
            other.try_acquire().await.unwrap_err().kind,
            DriverErrorKind::Closed
        ));
    }
}

#[tokio::test]
async fn f50_scripts_that_the_server_forgot_are_sent_again() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let flush = async || {
        let said = redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        assert!(!matches!(said, Resp::Error(_)));
    };
    for (mode, order) in [
        (Mode::Mutex, Order::Any),
        (Mode::Mutex, Order::Fifo),
        (Mode::Read, Order::Any),
        (Mode::Write, Order::Any),
        (Mode::Slot { of: 2 }, Order::Any),
    ] {
        let key = format!("flush:{mode:?}").replace(['{', '}', ' '], "");
        let want = Arc::new(Want {
            mode,
            order,
            ..peer.want(&key)
        });
        flush().await;
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        assert!(is_held(&claim.try_acquire().await.unwrap()));
        flush().await;
        assert!(
            matches!(renew(&peer, &want, None).await, Renewal::Good(_)),
            "{mode:?}"
        );
        flush().await;
        assert_eq!(claim.release(None).await.unwrap(), Released::Freed, "{mode:?}");
    }
}

#[tokio::test]
async fn a_reply_that_came_while_the_thread_was_busy_counts() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let mut claim = peer.driver.claim(Arc::new(peer.want("busy"))).unwrap();
    let busy = async {
        // The connection's task sends the request now, and does not run again for longer than an answer may take.
        tokio::task::yield_now().await;
        std::thread::sleep(700 * MS);
    };
    let (standing, ()) = tokio::join!(claim.try_acquire(), busy);
    assert!(is_held(&standing.unwrap()));
}
