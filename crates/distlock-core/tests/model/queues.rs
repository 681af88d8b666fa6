//! The local queue: never too many with a permit, and nobody is forgotten.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use shuttle::future::block_on;
use shuttle::thread;

use crate::check;
use crate::driver::Mode;
use crate::hold::HoldState;
use crate::key::Key;
use crate::queue::{Permit, Queue};
use crate::sync::atomic::{AtomicU32, Ordering};

fn enter(queue: &Arc<Queue>, mode: Mode) -> Permit {
    let key = Key::new("k").unwrap();
    block_on(queue.enter(&key, mode)).expect("one kind")
}

/// Counts who is inside, and the most that ever were.
#[derive(Default)]
struct Inside(AtomicU32);

impl Inside {
    fn at_most(&self, most: u32) {
        let now = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= most, "{now} at once");
        thread::yield_now();
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Each of these takes a turn in a thread of its own; all get one.
fn turns(modes: Vec<Mode>, turn: impl Fn(Mode, Permit) + Send + Sync + 'static) {
    let (queue, turn) = (Arc::new(Queue::default()), Arc::new(turn));
    let threads: Vec<_> = modes
        .into_iter()
        .map(|mode| {
            let (queue, turn) = (queue.clone(), turn.clone());
            thread::spawn(move || turn(mode, enter(&queue, mode)))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    nobody_is_left(&queue);
}

/// A line that is still there would not let another kind in.
fn nobody_is_left(queue: &Arc<Queue>) {
    drop(enter(queue, Mode::Slot { of: 7 }));
}

#[test]
fn one_at_a_time_whether_a_permit_is_dropped_or_passed_on() {
    check(2000, || {
        let inside = Inside::default();
        let nth = AtomicU32::new(0);
        turns(vec![Mode::Mutex; 3], move |_, permit| {
            inside.at_most(1);
            if nth.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                drop(permit.pass());
            }
        });
    });
}

#[test]
fn a_semaphore_admits_its_number() {
    check(2000, || {
        let inside = Inside::default();
        turns(vec![Mode::Slot { of: 2 }; 3], move |_, _permit| inside.at_most(2));
    });
}

#[test]
fn readers_and_writers_all_get_their_turn() {
    check(2000, || {
        let writers = Inside::default();
        let modes = vec![Mode::Read, Mode::Write, Mode::Read, Mode::Write];
        turns(modes, move |mode, mut permit| {
            if mode == Mode::Write {
                writers.at_most(1);
            } else {
                permit.holds(&Arc::new(HoldState::default()));
                thread::yield_now();
            }
        });
    });
}

#[test]
fn whoever_gives_up_holds_nobody_up() {
    check(2000, || {
        let queue = Arc::new(Queue::default());
        let first = enter(&queue, Mode::Write);
        let quitter = {
            let queue = queue.clone();
            thread::spawn(move || {
                let key = Key::new("k").unwrap();
                let mut waiting: Pin<Box<dyn Future<Output = _>>> = Box::pin(queue.enter(&key, Mode::Write));
                let mut cx = Context::from_waker(Waker::noop());
                // Given up at once, with the permit that it may have been given meanwhile.
                let _ = waiting.as_mut().poll(&mut cx);
                thread::yield_now();
            })
        };
        let follower = {
            let queue = queue.clone();
            thread::spawn(move || drop(enter(&queue, Mode::Read)))
        };
        thread::yield_now();
        drop(first);
        quitter.join().unwrap();
        follower.join().unwrap();
        nobody_is_left(&queue);
    });
}
