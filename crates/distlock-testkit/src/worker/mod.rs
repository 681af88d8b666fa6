//! Client processes that can be stopped and killed: the program `distlock-worker`, and its handle in the harness.
//!
//! A worker takes [`Request`]s as JSON lines on its standard input and answers each with a [`Reply`] on its standard
//! output, in whatever order they get done. What it sees goes to its own history file, from where it survives the
//! worker's death.

mod handle;

use distlock_core::driver::Mode;
use serde::{Deserialize, Serialize};

pub use self::handle::{Fleet, Worker};
use crate::history::ModeDef;

/// A request to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// Comes back in the reply.
    pub id: u64,
    /// What to do.
    #[serde(flatten)]
    pub task: Do,
}

/// What a worker can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Do {
    /// Acquires a lock. Answer: [`Answer::Granted`], or [`Answer::Failed`] with the error's word.
    Acquire(Ask),
    /// Whether a hold is held, by the guard's own word. Answer: [`Answer::Yes`] or [`Answer::No`].
    Held {
        /// The hold.
        hold: u64,
    },
    /// Waits until the hold is lost. Answer: [`Answer::Failed`] with the reason's word.
    Lost {
        /// The hold.
        hold: u64,
    },
    /// Writes to the fenced store with the hold's token. Answer: whether it was accepted.
    Write {
        /// The hold.
        hold: u64,
    },
    /// Releases. Answer: [`Answer::Yes`] if it was held until now, else [`Answer::No`].
    Release {
        /// The hold.
        hold: u64,
    },
    /// Drops the guard without releasing it.
    Drop {
        /// The hold.
        hold: u64,
    },
    /// Ends the process at once, without releasing anything. There is no answer.
    Exit {
        /// By `abort`, else by `exit`.
        abort: bool,
    },
    /// Starts tasks that contend without end. Answer: [`Answer::Yes`], once they run.
    Load(Load),
    /// Ends these tasks. Answer: [`Answer::Yes`], once all have released.
    Rest,
}

/// What to acquire.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ask {
    /// The lock's name.
    pub key: String,
    /// How.
    #[serde(with = "ModeDef")]
    pub mode: Mode,
    /// Whether to insist on the turn.
    pub fifo: bool,
    /// The lease.
    pub ttl_ms: u64,
    /// How long to wait; 0 tries once, nothing waits for ever.
    pub wait_ms: Option<u64>,
    /// Whether the watchdog renews.
    pub renew: bool,
}

/// A load: tasks that acquire, hold for a while, write, release, over and over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    /// The seed of all choices.
    pub seed: u64,
    /// The number of tasks.
    pub tasks: u32,
    /// The locks that they contend for; for a read/write lock the mode is chosen anew each time.
    pub keys: Vec<LoadKey>,
    /// The lease.
    pub ttl_ms: u64,
    /// The shortest and the longest section, in microseconds.
    pub hold_us: (u64, u64),
    /// The shortest and the longest pause between two sections, in microseconds.
    pub pause_us: (u64, u64),
    /// How many of a hundred sections last one and a half leases, so that they must be renewed.
    pub long_percent: u32,
    /// Ignores deadlines and tokens: the deliberately broken client that every run must be able to catch.
    pub reckless: bool,
}

/// One lock of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadKey {
    /// Its name.
    pub key: String,
    /// What it is used as; [`Mode::Read`] stands for a read/write lock.
    #[serde(with = "ModeDef")]
    pub mode: Mode,
    /// How many of a hundred acquisitions insist on their turn.
    pub fifo_percent: u32,
}

/// A worker's reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// The request's.
    pub id: u64,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// A worker's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Granted.
    Granted {
        /// The hold, for further requests.
        hold: u64,
        /// Its token.
        token: Option<u64>,
    },
    /// Yes, or done.
    Yes,
    /// No.
    No,
    /// It failed.
    Failed {
        /// The word for the kind of error.
        kind: String,
        /// The error.
        message: String,
    },
}
