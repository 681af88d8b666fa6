//! Real processes that die, stop, fork and come late.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod kit;

use std::time::{Duration, Instant};

use distlock_core::Key;
use distlock_core::driver::{Break, Mode};
use kit::{Worker, client, mutex, token, until, worker};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn worker() {
    worker::main();
}

#[test]
fn f85_f89_a_killed_holder_is_taken_over_at_once_with_a_larger_token() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Worker::start(dir.path()), Worker::start(dir.path()));
    let first = a.held("lock k mutex any 300000");
    b.say("lock k mutex any 300000");
    waiters(dir.path(), "k", 1);
    a.kill();
    // Far less than the TTL of five minutes: the kernel told.
    assert!(token(&b.hear(LONG)) > first);
}

#[test]
fn a_newcomer_finds_the_killed_holder_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Worker::start(dir.path()), Worker::start(dir.path()));
    for mode in ["mutex", "write", "read", "2"] {
        let key = format!("k{mode}");
        a.held(&format!("lock {key} {mode} any 300000"));
    }
    a.kill();
    a.wait();
    for mode in ["mutex", "write", "read", "2"] {
        b.held(&format!("try k{mode} {mode} 1000"));
        assert_eq!(b.ask("release"), "freed");
    }
    // A dead holder's kind does not count either.
    let mut c = Worker::start(dir.path());
    c.held("lock other 3 any 300000");
    c.kill();
    c.wait();
    b.held("try other mutex 1000");
}

#[test]
fn f28_a_stopped_holder_is_taken_over_after_its_ttl_and_told_first_thing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Worker::start(dir.path()), Worker::start(dir.path()));
    let first = a.held("lock k mutex any 1000");
    let begun = Instant::now();
    a.signal(libc::SIGSTOP);
    assert_eq!(b.ask("try k mutex 1000"), "busy");
    assert!(token(&b.ask("lock k mutex any 30000")) > first);
    assert!(begun.elapsed() > Duration::from_millis(900), "taken over early");
    a.signal(libc::SIGCONT);
    assert_eq!(a.ask("renew 1000"), "lost taken");
    assert_eq!(a.ask("release"), "not held");
    assert_eq!(b.ask("renew 30000"), "good");
    assert_eq!(b.ask("release"), "freed");
}

#[test]
fn a_process_stopped_before_its_commit_delays_nobody_and_commits_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Worker::start(dir.path()), Worker::start(dir.path()));
    for round in 0..8 {
        let key = format!("k{round}");
        assert_eq!(a.ask("stop-before-commit 1"), "ok");
        a.say(&format!("lock {key} mutex any 30000"));
        stopped(a.pid);
        // Everything goes on around the stopped writer, which holds scratch space only.
        let mut last = 0;
        let begun = Instant::now();
        for _ in 0..100 {
            let t = b.held(&format!("lock {key} mutex any 30000"));
            assert!(t > last);
            last = t;
            assert_eq!(b.ask("release"), "freed");
        }
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        let mine = b.held(&format!("lock {key} mutex any 30000"));
        a.signal(libc::SIGCONT);
        // The late commit fails, and the attempt is decided anew: it waits.
        waiters(dir.path(), &key, 1);
        assert_eq!(b.ask("renew 30000"), "good");
        assert_eq!(b.ask("release"), "freed");
        assert!(token(&a.hear(LONG)) > mine);
        assert_eq!(a.ask("release"), "freed");
        assert_eq!(a.ask("stopped"), (round + 1).to_string());
    }
}

#[test]
fn a_stopped_writer_delays_a_single_operation_by_a_few_milliseconds() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = Worker::start(dir.path());
    assert_eq!(a.ask("stop-before-commit 1"), "ok");
    a.say("lock k mutex any 30000");
    stopped(a.pid);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let b = client(dir.path());
        let mut late = 0;
        for _ in 0..200 {
            let mut c = b.contender(mutex("k"));
            let begun = Instant::now();
            c.look().await.unwrap().expect("free");
            c.claim.release(None).await.unwrap();
            late += u32::from(begun.elapsed() > Duration::from_millis(2));
        }
        // One operation learns of it; the others know. (A busy machine may be late by itself.)
        assert!(late < 50, "{late} of 200 operations were late");
    });
    a.signal(libc::SIGCONT);
    token(&a.hear(LONG));
}

#[test]
fn f30_increments_under_the_lock_are_never_lost_while_processes_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let (stop, counter) = (place.path().join("stop"), place.path().join("counter"));
    std::fs::write(&counter, "0").unwrap();
    let command = format!("count k {} {}", stop.display(), counter.display());
    let mut workers: Vec<_> = (0..6).map(|_| Worker::start(dir.path())).collect();
    workers.iter_mut().for_each(|w| w.say(&command));
    let end = Instant::now() + Duration::from_secs(3);
    let mut turn = 0;
    while Instant::now() < end {
        let w = &workers[turn % workers.len()];
        w.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(3));
        w.signal(libc::SIGCONT);
        turn += 1;
    }
    std::fs::write(&stop, "").unwrap();
    let counted: u64 = workers
        .iter_mut()
        .map(|w| {
            let answer = w.hear(LONG);
            answer.strip_prefix("counted ").unwrap().parse::<u64>().unwrap()
        })
        .sum();
    let stored: u64 = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
    println!("{counted} increments, {turn} stops");
    assert!(counted > 100, "vacuous: {counted}");
    assert_eq!(stored, counted);
}

#[test]
fn f43_dead_waiters_do_not_block_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = Worker::start(dir.path());
    a.held("lock k mutex any 300000");
    let mut dead: Vec<_> = (0..8).map(|_| Worker::start(dir.path())).collect();
    for (i, w) in dead.iter_mut().enumerate() {
        w.say("lock k mutex fifo 300000");
        waiters(dir.path(), "k", i + 1);
    }
    let mut last = Worker::start(dir.path());
    last.say("lock k mutex fifo 300000");
    waiters(dir.path(), "k", 9);
    dead.iter_mut().for_each(Worker::kill);
    a.kill();
    token(&last.hear(LONG));
}

#[test]
fn a_stopped_fifo_head_costs_no_more_than_its_own_ttl() {
    let dir = tempfile::tempdir().unwrap();
    let mut w: Vec<_> = (0..3).map(|_| Worker::start(dir.path())).collect();
    w[0].held("lock k mutex fifo 300000");
    w[1].say("lock k mutex fifo 500");
    waiters(dir.path(), "k", 1);
    w[2].say("lock k mutex fifo 300000");
    waiters(dir.path(), "k", 2);
    w[1].signal(libc::SIGSTOP);
    assert_eq!(w[0].ask("release"), "freed");
    token(&w[2].hear(LONG));
    w[1].signal(libc::SIGCONT);
}

/// Of order `Any` the head is only woken, and cannot come. The others do not wait for the end of anybody's lease.
#[test]
fn a_stopped_head_does_not_swallow_the_wake_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut w: Vec<_> = (0..4).map(|_| Worker::start(dir.path())).collect();
    w[0].held("lock k mutex any 300000");
    for (n, waiter) in w.iter_mut().enumerate().skip(1) {
        waiter.say("lock k mutex any 300000");
        waiters(dir.path(), "k", n);
    }
    for head in &w[1..3] {
        head.signal(libc::SIGSTOP);
        stopped(head.pid);
    }
    assert_eq!(w[0].ask("release"), "freed");
    let first = token(&w[3].hear(LONG));
    // They come when they can, one after the other: either may be the first.
    w[2].signal(libc::SIGCONT);
    w[1].signal(libc::SIGCONT);
    assert_eq!(w[3].ask("release"), "freed");
    let (next, second) = first_of(&w, &[1, 2]);
    assert_eq!(w[next].ask("release"), "freed");
    let third = token(&w[3 - next].hear(LONG));
    assert!(first < second && second < third);
}

/// Which of these workers said something first, and the token that it was given.
fn first_of(workers: &[Worker], which: &[usize]) -> (usize, u64) {
    let end = Instant::now() + LONG;
    loop {
        for &n in which {
            if let Some(answer) = workers[n].heard() {
                return (n, token(&answer));
            }
        }
        assert!(Instant::now() < end, "none of {which:?} was granted the lock");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn f16_a_forked_child_neither_releases_nor_keeps_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Worker::start(dir.path()), Worker::start(dir.path()));
    a.held("lock k mutex any 300000");
    assert_eq!(
        a.ask("fork release"),
        "child 0",
        "the child's release did something"
    );
    assert_eq!(b.ask("try k mutex 1000"), "busy");
    assert_eq!(a.ask("renew 300000"), "good");
    let child = a.ask("fork sleep");
    let child: i32 = child.strip_prefix("forked ").unwrap().parse().unwrap();
    b.say("lock k mutex any 1000");
    waiters(dir.path(), "k", 1);
    a.kill();
    // At once, although the child has a copy of every descriptor.
    token(&b.hear(LONG));
    worker::kill(child, libc::SIGKILL);
}

#[test]
fn a_broken_holder_in_another_process_is_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = Worker::start(dir.path());
    a.held("lock k mutex any 300000");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let b = client(dir.path());
        let how = Break {
            reason: Some("maintenance".into()),
            ..Break::default()
        };
        let key = Key::new("k").unwrap();
        let broken = b.driver.inspect().unwrap().break_lock(&key, &how).await.unwrap();
        assert_eq!(broken[0].pid, Some(a.pid as u32));
        assert_eq!(a.ask("renew 300000"), "lost broken Some(\"maintenance\")");
    });
}

#[test]
fn a_lease_outlives_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Worker::start(dir.path()), Worker::start(dir.path()));
    let begun = Instant::now();
    a.held("lock k mutex lease 1500");
    a.kill();
    a.wait();
    assert_eq!(b.ask("try k mutex 1000"), "busy");
    b.held("lock k mutex any 1000");
    assert!(begun.elapsed() >= Duration::from_millis(1500));
}

#[test]
fn f107_waiters_use_no_cpu_while_the_owner_lives() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = Worker::start(dir.path());
    a.held("lock k mutex any 300000");
    let mut w: Vec<_> = (0..4).map(|_| Worker::start(dir.path())).collect();
    for (i, w) in w.iter_mut().enumerate() {
        w.say("lock k mutex any 300000");
        waiters(dir.path(), "k", i + 1);
    }
    let before: Vec<u64> = w.iter().map(|w| switches(w.pid)).collect();
    std::thread::sleep(Duration::from_secs(1));
    for (w, before) in w.iter().zip(before) {
        let woken = switches(w.pid) - before;
        assert!(woken <= 20, "a waiter was scheduled {woken} times in a second");
    }
}

/// How often all threads of a process gave up the processor by themselves.
fn switches(pid: i32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|t| {
            let status = std::fs::read_to_string(t.unwrap().path().join("status")).unwrap();
            let line = status
                .lines()
                .find(|l| l.starts_with("voluntary_ctxt"))
                .unwrap()
                .to_owned();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        })
        .sum()
}

/// Waits until a key has so many waiters.
fn waiters(dir: &std::path::Path, key: &str, n: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let found = runtime.block_on(async {
        let c = client(dir);
        let key = Key::new(key).unwrap();
        let found = until(LONG, async || {
            let info = c.driver.inspect().unwrap().inspect(&key).await.unwrap();
            info.waiters.len() == n
        })
        .await;
        c.driver.close().await;
        found
    });
    assert!(found, "{key} never had {n} waiters");
}

/// Waits until a process is stopped.
fn stopped(pid: i32) {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        if stat.rsplit(") ").next().unwrap().starts_with('T') {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{pid} did not stop");
}

#[test]
fn the_modes_of_the_rule_hold_across_processes() {
    let dir = tempfile::tempdir().unwrap();
    let mut w: Vec<_> = (0..3).map(|_| Worker::start(dir.path())).collect();
    let of = Mode::Slot { of: 2 };
    assert!(!of.is_exclusive());
    w[0].held("lock s 2 any 30000");
    w[1].held("lock s 2 any 30000");
    assert_eq!(w[2].ask("try s 2 30000"), "busy");
    assert!(w[2].ask("try s 3 30000").contains("3 permits"));
    w[2].say("lock s 2 any 30000");
    waiters(dir.path(), "s", 1);
    assert_eq!(w[0].ask("release"), "freed");
    token(&w[2].hear(LONG));
}
