//! What Redis's errors mean: whether a request may have been applied, whether to try again, what to tell people.

use std::fmt;

use distlock_core::driver::{DriverError, Reached, Refusal};
use redis::{ErrorKind, RedisError};

/// What to do with the connection on which an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is fine.
    Keep,
    /// Dial again: the connection, or the server's role, is not what it was.
    Redial,
}

/// A failed request.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: DriverError,
    pub(crate) then: Then,
}

impl Fault {
    /// No answer in time. The request may have been applied.
    pub(crate) fn silent() -> Self {
        Self {
            error: DriverError::unavailable(Reached::Maybe, "Redis did not answer in time"),
            then: Then::Redial,
        }
    }

    /// An error that the server gave for a request, or that cut it off.
    ///
    /// Scripts check before they write, and a script that Redis refuses to run has written nothing; so an error that
    /// the server *answered* means that nothing was applied.
    pub(crate) fn of(e: RedisError) -> Self {
        match word(&e) {
            Some(word) => Self::said(word, e),
            None => Self {
                error: DriverError::unavailable(Reached::Maybe, Cause(e)),
                then: Then::Redial,
            },
        }
    }

    fn said(word: &'static str, e: RedisError) -> Self {
        let later = |advice: &'static str, then| Self {
            error: DriverError::unavailable(
                Reached::No,
                Advice {
                    advice,
                    cause: Cause(e.clone()),
                },
            ),
            then,
        };
        let never = |refusal| Self {
            error: DriverError {
                source: Some(Box::new(Cause(e.clone()))),
                ..DriverError::refused(refusal)
            },
            then: Then::Keep,
        };
        match word {
            "LOADING" => later("Redis is loading its data", Then::Keep),
            "READONLY" => later("this server is a replica; looking for its master", Then::Redial),
            "MASTERDOWN" => later("this replica has lost its master", Then::Redial),
            "CLUSTERDOWN" | "TRYAGAIN" => later("the cluster cannot serve this key now", Then::Keep),
            "BUSY" => later("Redis is busy with somebody's script", Then::Keep),
            "NOREPLICAS" => later(
                "too few replicas are connected (min-replicas-to-write)",
                Then::Keep,
            ),
            "OOM" => later(
                "Redis is out of memory (maxmemory); give it more, or a database of its own",
                Then::Keep,
            ),
            "MISCONF" => later(
                "Redis cannot save its data and refuses writes (stop-writes-on-bgsave-error); look at its disk and log",
                Then::Keep,
            ),
            "NOAUTH" | "WRONGPASS" => never(Refusal::InvalidConfig(
                "Redis wants another user or password; check the URL and the server's ACL".into(),
            )),
            "NOPERM" => never(Refusal::InvalidConfig(format!(
                "the Redis user may not do this ({}); the engine's page has the ACL rules",
                e.detail().unwrap_or("NOPERM")
            ))),
            "WRONGTYPE" => never(Refusal::KindMismatch {
                have: "another type of Redis key".into(),
                want: "a lock".into(),
            }),
            // A client of the cluster follows: see `elsewhere`.
            "MOVED" | "ASK" | "CROSSSLOT" => never(Refusal::Unsupported(
                "this server is a node of a Redis Cluster; use redis+cluster://".into(),
            )),
            _ => never(Refusal::Unsupported(format!(
                "Redis 6.2 or newer is needed ({e})"
            ))),
        }
    }
}

/// An error while connecting: nothing was sent.
pub(crate) fn connecting(e: RedisError) -> DriverError {
    let authentication = e.kind() == ErrorKind::AuthenticationFailed;
    match word(&e) {
        Some(word) => Fault::said(word, e).error,
        None if authentication => Fault::said("WRONGPASS", e).error,
        None => DriverError::unavailable(Reached::No, Cause(e)),
    }
}

/// Where a node of a cluster sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// The slot is served by another node, here where it said which.
    Moved(Option<(u16, String)>),
    /// The slot is on its way to this node, and the key is there already.
    Ask(String),
    /// The slot is on its way, and only some of the keys have arrived.
    Later,
}

/// Whether a node of a cluster sent a request elsewhere; it was not applied then.
pub(crate) fn elsewhere(e: &DriverError) -> Option<Elsewhere> {
    let Cause(e) = cause(e)?;
    let to = || e.redirect_node().map(|(to, slot)| (slot, to.to_owned()));
    match word(e)? {
        "MOVED" => Some(Elsewhere::Moved(to())),
        "ASK" => Some(to().map_or(Elsewhere::Later, |(_, to)| Elsewhere::Ask(to))),
        "TRYAGAIN" => Some(Elsewhere::Later),
        _ => None,
    }
}

fn cause(e: &DriverError) -> Option<&Cause> {
    let source = e.source.as_deref()?;
    let advice = source.downcast_ref::<Advice>().map(|advice| &advice.cause);
    advice.or_else(|| source.downcast_ref::<Cause>())
}

/// The same trouble once more, for another request that it was the answer to: not answered.
pub(crate) fn unanswered(e: &DriverError) -> DriverError {
    match cause(e) {
        Some(cause) => DriverError::unavailable(e.reached, cause.clone()),
        None => DriverError::unavailable(e.reached, e.to_string()),
    }
}

/// Whether the server does not know the script's digest.
pub(crate) fn is_noscript(e: &RedisError) -> bool {
    e.kind() == ErrorKind::Server(redis::ServerErrorKind::NoScript)
}

/// The word by which the server names its error, if it is one that we know. Redis 6 puts an error that was raised
/// inside a script into an `ERR` text.
fn word(e: &RedisError) -> Option<&'static str> {
    const WORDS: [&str; 17] = [
        "LOADING",
        "READONLY",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "NOREPLICAS",
        "OOM",
        "MISCONF",
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "WRONGTYPE",
        "MOVED",
        "ASK",
        "CROSSSLOT",
        "BUSY",
        "NOSCRIPT",
    ];
    let code = e.code()?;
    if let Some(word) = WORDS.iter().find(|w| **w == code) {
        return Some(word);
    }
    let detail = e.detail().unwrap_or_default();
    let inside = |w: &&&str| {
        detail
            .split(|c: char| !c.is_ascii_uppercase())
            .any(|part| part == **w)
    };
    if let Some(word) = WORDS.iter().find(inside) {
        return Some(word);
    }
    if detail.contains("user executing the script") || detail.contains("ACL failure in script") {
        return Some("NOPERM");
    }
    if detail.contains("can't write against a read only replica") || detail.contains("read only replica") {
        return Some("READONLY");
    }
    // A key that a script touches beside those that were looked for when it began.
    if detail.contains("non local key") {
        return Some("TRYAGAIN");
    }
    (code == "ERR").then_some("ERR")
}

/// A Redis error as the cause of ours.
#[derive(Debug, Clone)]
struct Cause(RedisError);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Cause {}

/// What to do about it, and the error.
#[derive(Debug)]
struct Advice {
    advice: &'static str,
    cause: Cause,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.advice, self.cause)
    }
}

impl std::error::Error for Advice {}
