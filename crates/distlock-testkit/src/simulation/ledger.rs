//! The engine's own account of a simulation, judged: what no client can see, because nobody holds a guard for it.

use std::collections::HashMap;

use distlock_core::clock::Moment;
use distlock_core::memory::{Answer, Event};

use crate::check::Violation;

/// Law 4 of the port: a renewal never acquires. Whoever is answered "renewed" held the lock at that moment, also
/// when the request arrives long after its sender released, lost or left the lock.
pub(super) fn renewals(events: &[Event]) -> Vec<Violation> {
    let mut held: HashMap<_, Moment> = HashMap::new();
    let mut found = Vec::new();
    for event in events {
        let hold = (&event.record, event.owner);
        match &event.answer {
            Answer::Held { valid_until, .. } => {
                held.insert(hold, *valid_until);
            }
            Answer::Renewed(until) => {
                let before = held.insert(hold, *until);
                if before.is_none_or(|before| before <= event.at) {
                    found.push(Violation {
                        invariant: "law 4 renewal",
                        key: event.record.clone(),
                        at: event.at.as_nanos(),
                        what: format!("{} held nothing and was renewed", event.owner),
                    });
                }
            }
            Answer::Freed | Answer::NotHeld | Answer::Lost(_) => {
                held.remove(&hold);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use distlock_core::Owners;
    use distlock_core::driver::Mode;
    use distlock_core::memory::Call;

    use super::*;

    #[test]
    fn only_what_is_held_may_be_renewed() {
        let owner = Owners::new().next();
        let at = Moment::from_nanos;
        let event = |now, call, answer| Event {
            at: at(now),
            record: "k".into(),
            owner,
            mode: Mode::Mutex,
            call,
            answer,
        };
        let granted = event(
            1,
            Call::Try,
            Answer::Held {
                token: None,
                valid_until: at(10),
            },
        );
        let renewed = |now| event(now, Call::Renew, Answer::Renewed(at(now + 9)));
        let freed = event(8, Call::Release, Answer::Freed);
        let bad = |events: &[Event]| renewals(events).len();
        assert_eq!(bad(&[granted.clone(), renewed(5), renewed(12)]), 0);
        assert_eq!(bad(&[granted.clone(), renewed(11)]), 1);
        assert_eq!(bad(&[granted, renewed(5), freed, renewed(9)]), 1);
        assert_eq!(bad(&[renewed(5)]), 1);
    }
}
