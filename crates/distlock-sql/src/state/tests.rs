//! The rules over one row.

use super::*;

fn state(now: i64) -> State {
    State {
        now,
        ..State::default()
    }
}

fn ask(owner: &str, mode: Mode, order: Order) -> Ask<'_> {
    Ask {
        owner,
        mode,
        order,
        join: true,
        ttl: 1_000_000,
        about: "",
    }
}

#[test]
fn readers_share_and_a_fair_writer_stops_later_readers() {
    let mut s = state(100);
    assert_eq!(
        s.ask(&ask("r1", Mode::Read, Order::Any)),
        Found::Held { token: None }
    );
    assert_eq!(
        s.ask(&ask("r2", Mode::Read, Order::Any)),
        Found::Held { token: None }
    );
    assert!(matches!(
        s.ask(&ask("w", Mode::Write, Order::Fifo)),
        Found::Waits { ahead: Some(0), .. }
    ));
    assert!(matches!(
        s.ask(&ask("r3", Mode::Read, Order::Any)),
        Found::Waits { ahead: None, .. }
    ));
    assert!(s.leave("r1", 0) && s.leave("r2", 0));
    assert_eq!(s.next(), "w");
    assert!(matches!(
        s.ask(&ask("r3", Mode::Read, Order::Any)),
        Found::Waits { .. }
    ));
    assert_eq!(
        s.ask(&ask("w", Mode::Write, Order::Fifo)),
        Found::Held { token: Some(100) }
    );
    assert_eq!(s.next(), "");
}

#[test]
fn asking_again_is_the_same_contender() {
    let mut s = state(100);
    let of = Mode::Slot { of: 2 };
    for _ in 0..3 {
        assert_eq!(s.ask(&ask("a", of, Order::Any)), Found::Held { token: None });
    }
    assert_eq!(s.crowd.len(), 1);
    s.ask(&ask("b", of, Order::Any));
    for _ in 0..3 {
        assert!(matches!(
            s.ask(&ask("c", of, Order::Fifo)),
            Found::Waits { ahead: Some(0), .. }
        ));
    }
    assert_eq!(s.crowd.len(), 3);
    assert!(!s.leave("c", 0), "it only waited");
}

#[test]
fn a_dead_waiter_does_not_stop_the_line_for_ever() {
    let mut s = state(100);
    s.ask(&ask("a", Mode::Mutex, Order::Any));
    s.ask(&ask("dead", Mode::Mutex, Order::Fifo));
    s.ask(&ask("b", Mode::Mutex, Order::Fifo));
    s.leave("a", 0);
    assert!(matches!(
        s.ask(&ask("b", Mode::Mutex, Order::Fifo)),
        Found::Waits { ahead: Some(1), .. }
    ));
    s.now += 800_000;
    s.ask(&ask("b", Mode::Mutex, Order::Fifo));
    s.now += 300_000;
    assert!(matches!(
        s.ask(&ask("b", Mode::Mutex, Order::Fifo)),
        Found::Held { token: Some(_) }
    ));
}

#[test]
fn another_kind_is_refused_only_while_the_key_is_used() {
    let mut s = state(100);
    s.ask(&ask("a", Mode::Read, Order::Any));
    assert!(matches!(
        s.ask(&ask("b", Mode::Mutex, Order::Any)),
        Found::Refused(_)
    ));
    assert!(matches!(
        s.ask(&ask("c", Mode::Slot { of: 2 }, Order::Any)),
        Found::Refused(_)
    ));
    s.now += 2_000_000;
    assert!(matches!(
        s.ask(&ask("b", Mode::Mutex, Order::Any)),
        Found::Held { .. }
    ));
}

#[test]
fn a_grace_is_a_time_for_nobody() {
    let mut s = state(100);
    s.ask(&ask("a", Mode::Mutex, Order::Any));
    s.take_away(500, "");
    for mode in [Mode::Mutex, Mode::Read, Mode::Slot { of: 9 }] {
        assert!(matches!(s.ask(&ask("b", mode, Order::Any)), Found::Waits { .. }));
    }
    s.now += 501;
    assert!(matches!(
        s.ask(&ask("b", Mode::Read, Order::Any)),
        Found::Held { .. }
    ));
}

#[test]
fn a_row_reads_back_as_it_was_written() {
    let mut s = state(100);
    s.ask(&ask("a", Mode::Read, Order::Any));
    s.ask(&ask("b", Mode::Write, Order::Fifo));
    let back: Vec<Member> = serde_json::from_str(&s.crowd_text()).unwrap();
    assert_eq!(back, s.crowd);
}
