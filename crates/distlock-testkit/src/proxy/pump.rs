//! One direction of one connection.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Fault;

/// More than this much is not read from a peer whose bytes are held.
const ENOUGH: u64 = 1 << 20;

/// The state of one direction, shared by all connections.
#[derive(Debug)]
pub(super) struct Side {
    fault: watch::Sender<Fault>,
    passed: AtomicU64,
    held: AtomicU64,
}

impl Side {
    pub(super) fn new() -> Self {
        Self {
            fault: watch::Sender::new(Fault::Pass),
            passed: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    pub(super) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    pub(super) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// How many of `len` bytes may pass, and whether the connection is to be cut after them.
    fn allow(&self, len: usize) -> (usize, bool) {
        let mut answer = (len, false);
        self.fault.send_if_modified(|fault| match fault {
            Fault::CutAfter(left) if *left <= len as u64 => {
                answer = (usize::try_from(*left).unwrap_or(len), true);
                *fault = Fault::Pass;
                true
            }
            Fault::CutAfter(left) => {
                *left -= len as u64;
                false
            }
            Fault::Chunk(most) => {
                answer.0 = len.min((*most).max(1));
                false
            }
            _ => false,
        });
        answer
    }
}

/// The pieces on their way, counted in [`Side::held`] until they leave or are dropped.
struct Queue<'a> {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    bytes: u64,
    side: &'a Side,
}

impl Queue<'_> {
    fn push(&mut self, due: Instant, piece: Vec<u8>) {
        self.bytes += piece.len() as u64;
        self.side.held.fetch_add(piece.len() as u64, Ordering::Relaxed);
        self.pieces.push_back((due, piece));
    }

    /// Takes up to `n` bytes off the front.
    fn pop(&mut self, n: usize) -> Vec<u8> {
        let Some((due, mut piece)) = self.pieces.pop_front() else {
            return Vec::new();
        };
        let rest = piece.split_off(n.min(piece.len()));
        if !rest.is_empty() {
            self.pieces.push_front((due, rest));
        }
        self.bytes -= piece.len() as u64;
        self.side.held.fetch_sub(piece.len() as u64, Ordering::Relaxed);
        piece
    }

    fn clear(&mut self) {
        self.side.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
        self.pieces.clear();
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Carries bytes until the end of the stream, which is passed on. An error means that the connection is to be reset.
pub(super) async fn pump(
    side: &Side,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut faults = side.fault.subscribe();
    let mut queue = Queue {
        pieces: VecDeque::new(),
        bytes: 0,
        side,
    };
    let (mut ended, mut lost) = (false, false);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let fault = *faults.borrow_and_update();
        if fault == Fault::Blackhole {
            lost |= queue.bytes > 0;
            queue.clear();
        } else if lost {
            return Err(io::Error::other("bytes of this connection vanished"));
        }
        let flows = !matches!(fault, Fault::Hold | Fault::Blackhole);
        if ended && flows && queue.bytes == 0 {
            return to.shutdown().await;
        }
        let due = queue.pieces.front().map(|(due, _)| *due).filter(|_| flows);
        tokio::select! {
            changed = faults.changed() => changed.map_err(io::Error::other)?,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let front = queue.pieces.front().map_or(0, |(_, piece)| piece.len());
                let (pass, cut) = side.allow(front);
                let piece = queue.pop(pass);
                to.write_all(&piece).await?;
                side.passed.fetch_add(piece.len() as u64, Ordering::Relaxed);
                if cut {
                    return Err(io::Error::other("cut after so many bytes"));
                }
                if matches!(fault, Fault::Chunk(_)) {
                    // Lets the piece leave as a segment of its own.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            read = from.read(&mut buffer), if !ended && queue.bytes < ENOUGH => {
                let n = read?;
                ended = n == 0;
                // The fault may have changed while the read was on its way.
                match *side.fault.borrow() {
                    _ if ended => {}
                    Fault::Blackhole => lost = true,
                    fault => {
                        let last = queue.pieces.back().map(|(due, _)| *due);
                        let due = Instant::now() + delay(fault);
                        queue.push(last.map_or(due, |last| last.max(due)), buffer[..n].to_vec());
                    }
                }
            }
        }
    }
}

fn delay(fault: Fault) -> Duration {
    match fault {
        Fault::Delay { by, jitter } => by + jitter.mul_f64(rand::rng().random_range(0.0..=1.0)),
        _ => Duration::ZERO,
    }
}
