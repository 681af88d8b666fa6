//! The nested run's side.

use std::future::Future;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdStream};
use std::time::Duration;

use distlock_core::Key;
use distlock_core::clock::{Clock, Moment};
use distlock_core::driver::LostReason;
use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::{Answer, Question};

/// How long a holder may take for its first answer. One that is stopped or gone is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// A key that an ancestor holds, and that this process is inside of.
#[derive(Debug)]
pub(crate) struct Entered {
    key: Key,
    owner: String,
    token: Option<u64>,
    deadlines: watch::Receiver<Moment>,
    lost: watch::Receiver<Option<LostReason>>,
    /// Hanging up gives the turn back.
    _hang_up: OwnedWriteHalf,
}

/// What asking came to.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Inside.
    Entered(Entered),
    /// No ancestor holds the key: take it as usual.
    NotHeld,
    /// Another nested run is inside, and this one did not want to wait.
    Busy,
    /// Held, but not in this way.
    Refused(String),
}

/// Asks the run that `socket` names, and those around it, to let us into a key. With `queue` it waits for its turn,
/// as long as the caller does not drop the future.
///
/// # Cancel safety
/// Safe: dropping it leaves the queue.
pub(crate) async fn enter(socket: &str, engine: &str, key: &Key, mode: &str, queue: bool) -> Entry {
    let mut socket = socket.to_owned();
    // Runs nest as deep as processes do; a ring would need a holder that lies.
    for _ in 0..64 {
        match ask(&socket, engine, key, mode, queue).await {
            Ok(Some(Next::Done(entry))) => return entry,
            Ok(Some(Next::Ask(parent))) => socket = parent,
            Ok(None) | Err(_) => return Entry::NotHeld,
        }
    }
    Entry::NotHeld
}

enum Next {
    Done(Entry),
    Ask(String),
}

async fn ask(socket: &str, engine: &str, key: &Key, mode: &str, queue: bool) -> io::Result<Option<Next>> {
    let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(socket)?)?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    // Somebody else may have taken the name of a holder that ended.
    if stream.peer_cred()?.uid() != geteuid().as_raw() {
        return Ok(None);
    }
    let (read, mut write) = stream.into_split();
    let question = Question {
        key: key.as_str().into(),
        engine: engine.into(),
        mode: mode.into(),
        queue,
    };
    let mut line = serde_json::to_vec(&question)?;
    line.push(b'\n');
    write.write_all(&line).await?;

    let mut lines = BufReader::new(read).lines();
    let Ok(first) = tokio::time::timeout(PATIENCE, lines.next_line()).await else {
        return Ok(None);
    };
    let mut first = first?;
    if let Some(line) = &first
        && matches!(serde_json::from_str(line)?, Answer::Queued(_))
    {
        first = lines.next_line().await?;
    }
    let Some(first) = first else { return Ok(None) };
    Ok(Some(match serde_json::from_str(&first)? {
        Answer::Elsewhere(Some(parent)) => Next::Ask(parent),
        Answer::Busy(_) => Next::Done(Entry::Busy),
        Answer::Refused(why) => Next::Done(Entry::Refused(why)),
        Answer::Held {
            owner,
            token,
            deadline,
        } => {
            let (to_deadlines, deadlines) = watch::channel(Moment::from_nanos(deadline));
            let (to_lost, lost) = watch::channel(None);
            tokio::spawn(listen(lines, to_deadlines, to_lost));
            Next::Done(Entry::Entered(Entered {
                key: key.clone(),
                owner,
                token,
                deadlines,
                lost,
                _hang_up: write,
            }))
        }
        _ => Next::Done(Entry::NotHeld),
    }))
}

/// Hears the holder until it is silent for ever.
async fn listen(
    mut lines: Lines<BufReader<OwnedReadHalf>>,
    deadlines: watch::Sender<Moment>,
    lost: watch::Sender<Option<LostReason>>,
) {
    loop {
        let answer = match lines.next_line().await {
            Ok(Some(line)) => serde_json::from_str(&line),
            // The holder is dead.
            Ok(None) | Err(_) => break drop(lost.send_replace(Some(LostReason::SessionEnded))),
        };
        match answer {
            Ok(Answer::Deadline(at)) => drop(deadlines.send_replace(Moment::from_nanos(at))),
            Ok(Answer::Lost(reason)) => {
                let reason = LostReason::Broken { reason: Some(reason) };
                break drop(lost.send_replace(Some(reason)));
            }
            _ => break drop(lost.send_replace(Some(LostReason::SessionEnded))),
        }
    }
}

impl Entered {
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    pub(crate) fn token(&self) -> Option<u64> {
        self.token
    }

    pub(crate) fn deadlines(&self) -> watch::Receiver<Moment> {
        self.deadlines.clone()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.deadlines.borrow().since(Clock::boot().now())
    }

    pub(crate) fn is_lost(&self) -> Option<LostReason> {
        self.lost.borrow().clone()
    }

    /// Resolves when the ancestor has lost the lock, or is gone.
    pub(crate) fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            match lost.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
                Ok(Some(reason)) => reason,
                _ => LostReason::SessionEnded,
            }
        }
    }
}
