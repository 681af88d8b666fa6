//! The records of one bucket as they are stored: a checksum, a header, and the entries in line order.
//!
//! ```text
//! 0   checksum of all that follows      u64
//! 8   length of the whole snapshot      u32
//! 12  number of entries                 u32
//! 16  sequence number, as in the root   u64
//! 24  hash of the boot id               u64
//! 32  the last token granted            u64
//! 40  entries
//! ```
//! Integers are little-endian. A snapshot that does not add up is never trusted.

use std::sync::Arc;

use distlock_core::OwnerId;
use distlock_core::driver::Mode;
use uuid::Uuid;

use crate::hash;

const HEADER: usize = 40;
/// The fixed part of an entry.
const FIXED: usize = 120;

/// One contender of one key, or what it left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The record's name, and its hash (not stored).
    pub(crate) key: Arc<str>,
    pub(crate) hash: u64,
    pub(crate) owner: OwnerId,
    /// The FIFO of the process (strictly: the client) that the entry belongs to; 0 for ownerless records.
    pub(crate) process: u128,
    /// The process's own number for the claim: what it is woken with.
    pub(crate) claim: u64,
    pub(crate) state: State,
    pub(crate) mode: Mode,
    pub(crate) fifo: bool,
    /// Once it holds, judged by its TTL alone.
    pub(crate) lease: bool,
    /// Holding, kept, broken: until when. Waiting: 0.
    pub(crate) until: u64,
    pub(crate) ttl: u64,
    pub(crate) token: u64,
    pub(crate) since: u64,
    /// When it was last woken without having looked since; 0 if it was not.
    pub(crate) woken: u64,
    /// Waiting: by when it will have looked again.
    pub(crate) recheck_by: u64,
    pub(crate) pid: u32,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) host: Option<Arc<str>>,
}

/// What an [`Entry`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// In line.
    Waiting,
    /// Holds the lock.
    Holding,
    /// What a holder left behind: counts as one of its mode until its end, and belongs to nobody.
    Kept,
    /// Keeps everybody out until its end.
    Barred,
    /// Tells its former holder why it no longer holds; keeps nobody out.
    Broken,
}

/// All entries of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) last_token: u64,
    pub(crate) entries: Vec<Entry>,
}

/// What was read from a slot.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
    pub(crate) boot: u64,
    pub(crate) snapshot: Snapshot,
}

impl Snapshot {
    /// A bucket without a history. Its tokens start at the wall clock: the counter itself may have vanished (a
    /// table in memory after a reboot), and must not step back.
    pub(crate) fn empty(wall_micros: u64) -> Self {
        Self {
            last_token: wall_micros,
            entries: Vec::new(),
        }
    }

    /// Writes the snapshot into `out`, replacing what is there.
    pub(crate) fn encode(&self, seq: u64, boot: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0; HEADER]);
        for entry in &self.entries {
            entry.encode(out);
        }
        let (len, n) = (out.len() as u32, self.entries.len() as u32);
        out[8..12].copy_from_slice(&len.to_le_bytes());
        out[12..16].copy_from_slice(&n.to_le_bytes());
        out[16..24].copy_from_slice(&seq.to_le_bytes());
        out[24..32].copy_from_slice(&boot.to_le_bytes());
        out[32..40].copy_from_slice(&self.last_token.to_le_bytes());
        let sum = hash::of(&out[8..]);
        out[..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// The length that a snapshot claims to have, from its first 12 bytes.
    pub(crate) fn claimed_len(bytes: &[u8]) -> Option<usize> {
        let len = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
        (len >= HEADER).then_some(len)
    }

    /// Reads a snapshot; `None` if anything about it does not add up.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Stored> {
        let len = Self::claimed_len(bytes)?;
        let bytes = bytes.get(..len)?;
        let mut r = Reader(bytes);
        if r.u64()? != hash::of(&bytes[8..]) {
            return None;
        }
        let (_, n) = (r.u32()?, r.u32()?);
        let (seq, boot, last_token) = (r.u64()?, r.u64()?, r.u64()?);
        let mut entries = Vec::with_capacity((n as usize).min(len / FIXED + 1));
        for _ in 0..n {
            entries.push(Entry::decode(&mut r)?);
        }
        r.0.is_empty().then_some(Stored {
            seq,
            boot,
            snapshot: Self { last_token, entries },
        })
    }
}

impl Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fixed = [0u8; FIXED];
        let mut w = Writer(&mut fixed);
        w.put(&self.process.to_le_bytes());
        w.put(self.owner.client.as_bytes());
        for v in [
            self.owner.n,
            self.claim,
            self.until,
            self.ttl,
            self.token,
            self.since,
            self.woken,
            self.recheck_by,
        ] {
            w.put(&v.to_le_bytes());
        }
        let (mode, of) = match self.mode {
            Mode::Mutex => (0, 0),
            Mode::Write => (1, 0),
            Mode::Read => (2, 0),
            Mode::Slot { of } => (3, of),
        };
        w.put(&self.pid.to_le_bytes());
        w.put(&of.to_le_bytes());
        let state = match self.state {
            State::Waiting => 0,
            State::Holding => 1,
            State::Kept => 2,
            State::Barred => 3,
            State::Broken => 4,
        };
        w.put(&[
            mode,
            state,
            u8::from(self.fifo) | u8::from(self.lease) << 1,
            0,
            0,
            0,
            0,
            0,
        ]);
        for text in self.texts() {
            w.put(&len16(text).to_le_bytes());
        }
        out.extend_from_slice(&fixed);
        for text in self.texts() {
            out.extend_from_slice(text.unwrap_or("").as_bytes());
        }
    }

    fn texts(&self) -> [Option<&str>; 4] {
        [
            Some(&self.key),
            self.label.as_deref(),
            self.reason.as_deref(),
            self.host.as_deref(),
        ]
    }

    fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let process = u128::from_le_bytes(r.take(16)?.try_into().ok()?);
        let client = Uuid::from_bytes(r.take(16)?.try_into().ok()?);
        let [n, claim, until, ttl, token, since, woken, recheck_by] = [(); 8].map(|()| r.u64());
        let (pid, of) = (r.u32()?, r.u32()?);
        let &[mode, state, flags, ..] = r.take(8)? else {
            return None;
        };
        let lens = [(); 4].map(|()| r.u16());
        let key: Arc<str> = r.text(lens[0]?)??;
        Some(Self {
            hash: hash::of(key.as_bytes()),
            key,
            owner: OwnerId { client, n: n? },
            process,
            claim: claim?,
            state: match state {
                0 => State::Waiting,
                1 => State::Holding,
                2 => State::Kept,
                3 => State::Barred,
                4 => State::Broken,
                _ => return None,
            },
            mode: match mode {
                0 => Mode::Mutex,
                1 => Mode::Write,
                2 => Mode::Read,
                3 => Mode::Slot { of },
                _ => return None,
            },
            fifo: flags & 1 != 0,
            lease: flags & 2 != 0,
            until: until?,
            ttl: ttl?,
            token: token?,
            since: since?,
            woken: woken?,
            recheck_by: recheck_by?,
            pid,
            label: r.text(lens[1]?)?,
            reason: r.text(lens[2]?)?,
            host: r.text(lens[3]?)?,
        })
    }
}

/// Lengths are stored plus one; 0 means "no text".
fn len16(text: Option<&str>) -> u16 {
    text.map_or(0, |t| u16::try_from(t.len() + 1).unwrap_or(u16::MAX))
}

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (head, tail) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.0 = tail;
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self, len: u16) -> Option<Option<Arc<str>>> {
        let Some(len) = len.checked_sub(1) else {
            return Some(None);
        };
        let text = std::str::from_utf8(self.take(len.into())?).ok()?;
        Some(Some(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Snapshot {
        let entry = Entry {
            key: "distlock:a/../{b}".into(),
            hash: hash::of(b"distlock:a/../{b}"),
            owner: OwnerId {
                client: Uuid::from_u128(7),
                n: 3,
            },
            process: u128::MAX - 5,
            claim: 9,
            state: State::Holding,
            mode: Mode::Slot { of: 4 },
            fifo: true,
            lease: true,
            until: 1,
            ttl: 2,
            token: 3,
            since: 4,
            woken: 5,
            recheck_by: 6,
            pid: 77,
            label: Some("".into()),
            reason: None,
            host: Some("höst".into()),
        };
        Snapshot {
            last_token: 42,
            entries: vec![entry; 3],
        }
    }

    #[test]
    fn a_snapshot_reads_back_as_written() {
        let mut bytes = Vec::new();
        sample().encode(11, 12, &mut bytes);
        let back = Snapshot::decode(&bytes).unwrap();
        assert_eq!((back.seq, back.boot, back.snapshot), (11, 12, sample()));
    }

    #[test]
    fn a_snapshot_with_any_bit_changed_or_cut_short_is_refused() {
        let mut bytes = Vec::new();
        sample().encode(11, 12, &mut bytes);
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            assert!(Snapshot::decode(&bytes).is_none(), "byte {at}");
            bytes[at] ^= 0x10;
            assert!(Snapshot::decode(&bytes[..at]).is_none(), "cut at {at}");
        }
    }
}
