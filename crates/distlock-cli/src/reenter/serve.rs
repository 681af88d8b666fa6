//! The holder's side of nested runs.

use std::collections::HashMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::sync::Arc;

use distlock_core::clock::Moment;
use rustix::process::{Pid, geteuid};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

use super::{Answer, Question};
use crate::guardian;

/// The longest question.
const LIMIT: u64 = 8 * 1024;

/// What the holder tells nested runs about.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: String,
    /// How the keys are held: `mutex`, `write`, `read`, `permits N`.
    pub(crate) mode: String,
    pub(crate) owner: String,
    pub(crate) tokens: HashMap<String, Option<u64>>,
    /// The socket of the run around this one.
    pub(crate) parent: Option<String>,
    /// All nested runs descend from it.
    pub(crate) guardian: Pid,
    /// The deadline as it moves, and the loss.
    pub(crate) state: watch::Receiver<(Moment, Option<String>)>,
}

/// The socket.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    name: String,
}

impl Server {
    /// Opens a socket with a name that nobody can guess.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn open() -> io::Result<Self> {
        let name = format!("distlock-{}", uuid::Uuid::new_v4().simple());
        let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            name,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self, shared: Shared) {
        let turns = shared
            .tokens
            .keys()
            .map(|key| (key.clone(), Arc::new(Semaphore::new(1))));
        let serving = Arc::new(Serving {
            turns: turns.collect(),
            shared,
        });
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(serving.clone().talk(stream))),
                // Too many open files; a pause, then go on.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    }
}

struct Serving {
    shared: Shared,
    /// One nested run at a time is inside a key.
    turns: HashMap<String, Arc<Semaphore>>,
}

impl Serving {
    async fn talk(self: Arc<Self>, stream: UnixStream) {
        if !self.may_ask(&stream) {
            return;
        }
        // A conversation that breaks off is over; the turn is given back by its drop.
        let _ = self.answer(stream).await;
    }

    /// Only our own user's processes below our guardian may ask: not a daemon of an earlier command that kept the
    /// variable, and nobody who read the socket's name in a list.
    fn may_ask(&self, stream: &UnixStream) -> bool {
        let Ok(peer) = stream.peer_cred() else {
            return false;
        };
        let Some(pid) = peer.pid().and_then(Pid::from_raw) else {
            return false;
        };
        peer.uid() == geteuid().as_raw() && guardian::descends_from(pid, self.shared.guardian)
    }

    async fn answer(&self, stream: UnixStream) -> io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read.take(LIMIT));
        let mut line = String::new();
        read.read_line(&mut line).await?;
        let question: Question = serde_json::from_str(&line)?;

        let shared = &self.shared;
        let held = (question.engine == shared.engine)
            .then(|| self.turns.get(&question.key))
            .flatten();
        let Some(turn) = held else {
            return say(&mut write, &Answer::Elsewhere(shared.parent.clone())).await;
        };
        if let Some(why) = refuse(&shared.mode, &question.mode) {
            return say(&mut write, &Answer::Refused(why)).await;
        }
        let _turn = match turn.try_acquire() {
            Ok(turn) => turn,
            Err(_) if !question.queue => return say(&mut write, &Answer::Busy(true)).await,
            Err(_) => {
                say(&mut write, &Answer::Queued(true)).await?;
                tokio::select! {
                    turn = turn.acquire() => turn.map_err(io::Error::other)?,
                    // It does not want to wait any longer.
                    _ = read.read_line(&mut line) => return Ok(()),
                }
            }
        };

        let mut state = shared.state.clone();
        let (deadline, lost) = state.borrow_and_update().clone();
        if let Some(reason) = lost {
            return say(&mut write, &Answer::Lost(reason)).await;
        }
        let held = Answer::Held {
            owner: shared.owner.clone(),
            token: shared.tokens.get(&question.key).copied().flatten(),
            deadline: deadline.as_nanos(),
        };
        say(&mut write, &held).await?;
        loop {
            tokio::select! {
                changed = state.changed() => changed.map_err(io::Error::other)?,
                // It hangs up when it is done.
                _ = read.read_line(&mut line) => return Ok(()),
            }
            let (deadline, lost) = state.borrow_and_update().clone();
            if let Some(reason) = lost {
                return say(&mut write, &Answer::Lost(reason)).await;
            }
            say(&mut write, &Answer::Deadline(deadline.as_nanos())).await?;
        }
    }
}

/// Why a nested run of this mode may not re-enter.
fn refuse(have: &str, want: &str) -> Option<String> {
    match (have, want) {
        (have, want) if have == want => None,
        // What holds alone may also read.
        ("write", "read") => None,
        ("read", "write") => {
            Some("an ancestor holds it as a reader; waiting to write would never end".into())
        }
        _ => Some(format!("an ancestor holds it as {have}, not as {want}")),
    }
}

async fn say(write: &mut tokio::net::unix::OwnedWriteHalf, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    write.write_all(&line).await
}
