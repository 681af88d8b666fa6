//! No ring is lost, whoever listens.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use shuttle::future::block_on;
use shuttle::thread;

use crate::bell::Bell;
use crate::check;
use crate::hold::HoldState;
use crate::sync::atomic::{AtomicU32, Ordering};

#[test]
fn whoever_waits_for_news_gets_all_of_it() {
    check(3000, || {
        let (bell, news) = (Bell::new(), Arc::new(AtomicU32::new(0)));
        for _ in 0..2 {
            let (bell, news) = (bell.clone(), news.clone());
            thread::spawn(move || {
                news.fetch_add(1, Ordering::SeqCst);
                bell.ring();
            });
        }
        // Arm, then look, then wait: as the waiting loop does.
        block_on(async {
            while news.load(Ordering::SeqCst) < 2 {
                bell.rung().await;
            }
        });
    });
}

#[test]
fn a_listener_that_went_away_takes_no_ring_with_it() {
    check(3000, || {
        let bell = Bell::new();
        let ringer = bell.clone();
        let ringing = thread::spawn(move || ringer.ring());
        let heard = {
            let mut first = pin!(bell.rung());
            let mut cx = Context::from_waker(Waker::noop());
            first.as_mut().poll(&mut cx).is_ready()
        };
        if !heard {
            block_on(bell.rung());
        }
        ringing.join().unwrap();
    });
}

#[test]
fn a_ring_at_the_moment_of_the_grant_is_found_or_told() {
    check(3000, || {
        let (bell, hold) = (Bell::new(), Arc::new(HoldState::default()));
        let ringer = bell.clone();
        let ringing = thread::spawn(move || ringer.ring());
        let found = bell.belongs_to(&hold);
        ringing.join().unwrap();
        assert!(found || hold.rings.load(Ordering::SeqCst) > 0, "the ring is lost");
    });
}
