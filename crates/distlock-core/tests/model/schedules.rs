//! Everything that is due is told in time, and nothing that was given up.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use futures_util::future::{Either, select};
use shuttle::future::block_on;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use crate::check;
use crate::clock::Moment;
use crate::schedule::{Schedule, Ticket};

/// A schedule, a clock that is moved by hand, and what the keeper told.
#[derive(Default)]
struct World {
    schedule: Schedule<u64>,
    time: Mutex<(u64, Vec<Waker>)>,
    told: Mutex<Vec<u64>>,
    tells: Condvar,
}

impl World {
    fn now(&self) -> u64 {
        self.time.lock().unwrap().0
    }

    async fn sleep_until(&self, due: Moment) {
        poll_fn(|cx| {
            let mut time = self.time.lock().unwrap();
            time.1.push(cx.waker().clone());
            if time.0 >= due.as_nanos() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn advance(&self, to: u64) {
        let sleepers = {
            let mut time = self.time.lock().unwrap();
            time.0 = to;
            std::mem::take(&mut time.1)
        };
        sleepers.into_iter().for_each(Waker::wake);
    }

    /// The keeper's loop, until it told so many.
    async fn keep(&self, many: usize) {
        while self.told.lock().unwrap().len() < many {
            match self.schedule.alarm() {
                None => self.schedule.kicked().await,
                Some(alarm) if alarm.as_nanos() > self.now() => {
                    let sleep = pin!(self.sleep_until(alarm));
                    let kicked = pin!(self.schedule.kicked());
                    if let Either::Right(_) = select(sleep, kicked).await {
                        continue;
                    }
                }
                Some(_) => {}
            }
            loop {
                let (due, more) = self.schedule.take(Moment::from_nanos(self.now()));
                self.told.lock().unwrap().extend(due);
                self.tells.notify_all();
                if !more {
                    break;
                }
            }
        }
    }

    fn wait_until_told(&self, value: u64) {
        let mut told = self.told.lock().unwrap();
        while !told.contains(&value) {
            told = self.tells.wait(told).unwrap();
        }
    }
}

fn keeper(world: &Arc<World>, many: usize) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || block_on(world.keep(many)))
}

#[test]
fn what_is_due_is_told_then_and_what_was_removed_is_not() {
    check(2000, || {
        let world = Arc::new(World::default());
        let keeper = keeper(&world, 2);
        let adders: Vec<_> = [(20, 2), (10, 1)]
            .into_iter()
            .map(|(value, due)| {
                let world = world.clone();
                thread::spawn(move || {
                    let ticket = Ticket::default();
                    world.schedule.add(&ticket, Moment::from_nanos(due), value);
                    let short = Ticket::default();
                    world.schedule.add(&short, Moment::from_nanos(1), value + 1);
                    assert_eq!(world.schedule.remove(&short), Some(value + 1));
                    assert_eq!(world.schedule.remove(&short), None);
                })
            })
            .collect();
        adders.into_iter().for_each(|a| a.join().unwrap());
        // A keeper that missed the earlier one sleeps on until 2, and this waits for ever.
        for (time, value) in [(1, 10), (2, 20)] {
            world.advance(time);
            world.wait_until_told(value);
        }
        keeper.join().unwrap();
        assert_eq!(*world.told.lock().unwrap(), [10, 20]);
    });
}

#[test]
fn what_becomes_due_earlier_wakes_the_keeper() {
    check(2000, || {
        let world = Arc::new(World::default());
        let ticket = Arc::new(Ticket::default());
        world.schedule.add(&ticket, Moment::from_nanos(5), 7);
        let keeper = keeper(&world, 1);
        let poke = {
            let (world, ticket) = (world.clone(), ticket.clone());
            thread::spawn(move || world.schedule.change(&ticket, || Moment::from_nanos(1)))
        };
        poke.join().unwrap();
        world.advance(1);
        world.wait_until_told(7);
        keeper.join().unwrap();
    });
}

#[test]
fn what_is_removed_while_it_is_out_does_not_come_back() {
    check(2000, || {
        let schedule = Arc::new(Schedule::default());
        let ticket = Arc::new(Ticket::default());
        schedule.add(&ticket, Moment::from_nanos(1), 1u64);
        let gone = {
            let (schedule, ticket) = (schedule.clone(), ticket.clone());
            thread::spawn(move || schedule.remove(&ticket))
        };
        let others = {
            let schedule = schedule.clone();
            thread::spawn(move || schedule.add(&Ticket::default(), Moment::from_nanos(3), 2))
        };
        let (out, _) = schedule.take(Moment::from_nanos(2));
        assert!(!out.contains(&2));
        schedule.put_back(&ticket, || Moment::from_nanos(2));
        assert_eq!(gone.join().unwrap(), Some(1));
        others.join().unwrap();
        assert_eq!((schedule.len(), schedule.values()), (1, vec![2]));
        assert!(schedule.take(Moment::from_nanos(2)).0.is_empty());
        assert_eq!(schedule.take(Moment::from_nanos(3)).0, [2]);
    });
}
