//! Nested runs: a `distlock run` below another one that holds the same key asks it, and re-enters.
//!
//! The holder listens on a private socket, named in `DISTLOCK_CTL`. It is an abstract one, so that a holder that is
//! killed leaves no file. It answers only processes of the same user that descend from its guardian. A conversation
//! is one connection, in lines of JSON:
//!
//! | from | line |
//! |---|---|
//! | nested | `{"key", "engine", "mode", "queue"}`: may I re-enter this key? |
//! | holder | `{"elsewhere": name or null}`: not held here; ask that socket, if any |
//! | holder | `{"refused": why}`: held as another kind |
//! | holder | `{"busy": true}`: another nested run is inside, and you did not want to wait |
//! | holder | `{"queued": true}`: another nested run is inside; you are next in line |
//! | holder | `{"held": {"owner", "token", "deadline"}}`: you are inside, alone, until you hang up |
//! | holder | `{"deadline"}`: renewed · `{"lost": reason}`: stop |
//!
//! A holder that does not answer, or hangs up, holds nothing for the nested run.

mod ask;
mod serve;

use serde::{Deserialize, Serialize};

pub(crate) use ask::{Entered, Entry, enter};
pub(crate) use serve::{Server, Shared};

/// The variable that names the socket.
pub(crate) const VARIABLE: &str = "DISTLOCK_CTL";

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    key: String,
    engine: String,
    mode: String,
    /// Wait for another nested run that is inside.
    queue: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Elsewhere(Option<String>),
    Refused(String),
    Busy(bool),
    Queued(bool),
    Held {
        owner: String,
        token: Option<u64>,
        deadline: u64,
    },
    Deadline(u64),
    Lost(String),
}
