//! The token that is proposed to the nodes, so that all of them store the same one and none has to be raised.
//!
//! Nodes that mint tokens from their clocks each store another one. What was last heard of the fastest clock, put
//! forward by what has passed since and by the time of two rounds, is ahead of all of them when the next request
//! arrives. It is a proposal: a node whose last token or whose clock is larger gives that, and then the second phase
//! raises the others as ever. Nothing is built on an earlier proposal, so proposals do not run away from the clocks.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Moment;
use crate::token::FencingToken;

/// Clocks differ in their rates: what is older is not put forward.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Proposals(Mutex<Option<Heard>>);

#[derive(Debug, Clone, Copy)]
struct Heard {
    /// The fastest clock among the nodes that answered, in µs,
    time: u64,
    /// no earlier than this,
    since: Moment,
    /// in a round that took so long.
    took: Duration,
}

impl Proposals {
    /// What to propose in a round that begins now.
    pub(super) fn next(&self, now: Moment) -> Option<FencingToken> {
        let heard = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let passed = now.since(heard.since);
        let ahead = (passed + 2 * heard.took).as_micros();
        (passed <= FRESH)
            .then(|| heard.time.checked_add(u64::try_from(ahead).ok()?))
            .flatten()
            .map(FencingToken::new)
    }

    /// A round that began at `since` and ended `now` heard of this clock.
    pub(super) fn note(&self, time: u64, since: Moment, now: Moment) {
        let took = now.since(since);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Heard { time, since, took });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_ahead_of_the_clock_and_not_made_of_old_news() {
        let ms = Duration::from_millis;
        let (proposals, start) = (Proposals::default(), Moment::START + ms(1000));
        assert_eq!(proposals.next(start), None);
        proposals.note(5_000_000, start, start + ms(3));
        let next = |at| proposals.next(start + at).map(FencingToken::get);
        assert_eq!(next(ms(3)), Some(5_009_000));
        assert_eq!(next(ms(1003)), Some(6_009_000));
        assert_eq!(next(ms(10_001)), None);
        proposals.note(u64::MAX, start, start);
        assert_eq!(next(ms(1)), None);
    }
}
