//! What the nodes said to one attempt, and what that makes of it. Pure.

use std::fmt;
use std::time::Duration;

use crate::driver::{DriverError, DriverErrorKind, Holder, Reached, Refusal};
use crate::token::FencingToken;

/// One node's answer.
#[derive(Debug)]
pub(super) enum Vote {
    /// It has not answered (yet).
    Silent,
    /// Yes. `newborn`: how long its yes does not count, because it restarted empty.
    Granted {
        token: Option<FencingToken>,
        newborn: Option<Duration>,
    },
    /// No: somebody else is there.
    Taken(Option<Holder>),
    /// It said yes, and then no longer had the hold when the token was to be raised.
    Gone,
    /// It could not say, or will not do this.
    Failed(DriverError),
}

impl Vote {
    /// Whether nothing of the attempt can be at that node.
    pub(super) fn left_nothing(&self) -> bool {
        match self {
            Self::Taken(_) => true,
            Self::Failed(e) => e.reached == Reached::No,
            Self::Silent | Self::Granted { .. } | Self::Gone => false,
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("no answer in time"),
            Self::Granted { newborn: None, .. } => f.write_str("granted"),
            Self::Granted {
                newborn: Some(left), ..
            } => write!(f, "restarted empty, no vote for another {left:.1?}"),
            Self::Taken(Some(holder)) => write!(f, "held by {holder}"),
            Self::Taken(None) => f.write_str("held by someone else"),
            Self::Gone => f.write_str("granted, then gone"),
            Self::Failed(e) => e.fmt(f),
        }
    }
}

/// What a refused attempt was refused for.
#[derive(Debug)]
pub(super) enum Refused {
    /// A majority answered, and somebody else is in the way. `nobody`: the votes are split so that none can have the
    /// lock.
    Busy { holder: Option<Holder>, nobody: bool },
    /// The attempt cannot be granted whoever holds the lock.
    Error(DriverError),
}

/// Why an attempt without a majority was refused. A node without a vote was not asked; `names` are the nodes'.
pub(super) fn refused<'a>(
    votes: impl Iterator<Item = Option<&'a Vote>> + Clone,
    names: impl Iterator<Item = &'a str>,
) -> Refused {
    let majority = votes.clone().count() / 2 + 1;
    let cast = votes.clone().flatten();
    let refusals = cast.clone().filter_map(refusal);
    if refusals.clone().count() >= majority
        && let Some(refusal) = refusals.clone().next()
    {
        return Refused::Error(DriverError::refused(refusal.clone()));
    }
    let answered = cast.clone().filter(|vote| match vote {
        Vote::Taken(_) | Vote::Gone => true,
        Vote::Granted { newborn, .. } => newborn.is_none(),
        _ => refusal(vote).is_some(),
    });
    let missing = votes.clone().count() - answered.count();
    if missing < majority {
        let most = present(cast);
        return Refused::Busy {
            nobody: most.as_ref().map_or(0, |(count, _)| *count) + missing < majority,
            holder: most.and_then(|(_, holder)| holder.cloned()),
        };
    }
    let said = names.zip(votes).map(|(name, vote)| match vote {
        Some(vote) => format!("{name}: {vote}"),
        None => format!("{name}: has not answered an earlier request"),
    });
    Refused::Error(no_quorum(said.collect()))
}

/// Not enough nodes could be counted. Trying again later can help; whatever was left anywhere is chased by us.
pub(super) fn no_quorum(said: Vec<String>) -> DriverError {
    DriverError {
        retry: true,
        ..DriverError::refused(Refusal::NoQuorum(said))
    }
}

fn refusal(vote: &Vote) -> Option<&Refusal> {
    match vote {
        Vote::Failed(DriverError {
            kind: DriverErrorKind::Refused(refusal),
            retry: false,
            ..
        }) => Some(refusal),
        _ => None,
    }
}

/// The holder that most nodes name, and how many do. Those that name nobody may mean the same one.
fn present<'a>(votes: impl Iterator<Item = &'a Vote>) -> Option<(usize, Option<&'a Holder>)> {
    let mut named: Vec<(usize, Option<&Holder>)> = Vec::new();
    for vote in votes {
        let Vote::Taken(holder) = vote else { continue };
        let owner = |holder: Option<&'a Holder>| holder.map(|holder| &holder.owner);
        match named
            .iter_mut()
            .find(|(_, known)| owner(*known) == owner(holder.as_ref()))
        {
            Some((count, _)) => *count += 1,
            None => named.push((1, holder.as_ref())),
        }
    }
    named.into_iter().max_by_key(|(count, _)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Mode;

    const GRANTED: Vote = Vote::Granted {
        token: None,
        newborn: None,
    };

    fn taken(owner: &str) -> Vote {
        Vote::Taken(Some(Holder::new(owner, Mode::Mutex)))
    }

    fn judge(votes: Vec<Vote>) -> Refused {
        refused(votes.iter().map(Some), ["a", "b", "c", "d", "e"].into_iter())
    }

    #[test]
    fn a_split_vote_is_busy_and_names_who_has_most() {
        let votes = vec![GRANTED, taken("x"), taken("y"), taken("y"), Vote::Silent];
        assert!(matches!(
            judge(votes),
            Refused::Busy { holder: Some(holder), nobody: false } if holder.owner == "y"
        ));
        let split = vec![GRANTED, GRANTED, taken("x"), taken("y"), taken("y")];
        assert!(matches!(judge(split), Refused::Busy { nobody: true, .. }));
    }

    #[test]
    fn too_few_answers_are_no_quorum_and_name_every_vote() {
        let votes = vec![GRANTED, taken("x"), Vote::Silent, Vote::Silent, Vote::Silent];
        let Refused::Error(e) = judge(votes) else { panic!() };
        assert!(e.retry);
        let text = e.to_string();
        assert!(
            text.contains("a: granted") && text.contains("e: no answer in time"),
            "{text}"
        );
    }

    #[test]
    fn a_newborn_does_not_answer() {
        let newborn = || Vote::Granted {
            token: None,
            newborn: Some(Duration::from_secs(7)),
        };
        let votes = vec![GRANTED, GRANTED, newborn(), Vote::Silent, Vote::Silent];
        let Refused::Error(e) = judge(votes) else { panic!() };
        assert!(
            e.to_string()
                .contains("c: restarted empty, no vote for another 7.0s"),
            "{e}"
        );
    }

    #[test]
    fn what_a_majority_refuses_is_refused() {
        let refusal = || Vote::Failed(DriverError::refused(Refusal::InvalidKey("no".into())));
        let Refused::Error(e) = judge(vec![refusal(), refusal(), refusal(), GRANTED, GRANTED]) else {
            panic!()
        };
        assert!(matches!(e.kind, DriverErrorKind::Refused(Refusal::InvalidKey(_))) && !e.retry);
        let minority = vec![refusal(), GRANTED, GRANTED, taken("x"), taken("x")];
        assert!(matches!(judge(minority), Refused::Busy { .. }));
    }
}
