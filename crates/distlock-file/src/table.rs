//! The table: its file, its roots, and the one way to change it.
//!
//! A bucket's records are an immutable snapshot in one of its slots, named by the bucket's root, a single word. A
//! change writes a new snapshot into another slot and swings the root by compare-and-swap. So no record is ever
//! half-written, and no process that is stopped, frozen or killed at any instruction can keep others from going on:
//! the byte lock that a writer holds only reserves scratch space.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use distlock_core::driver::DriverError;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{self, Errno};

use crate::boot::Boot;
use crate::dir::Dir;
use crate::hook;
use crate::root::Root;
use crate::snapshot::Snapshot;
use crate::sys;
use crate::trouble::{corrupt, failed, refused, unavailable};

const MAGIC: [u8; 8] = *b"distlock";
const VERSION: u32 = 1;
/// How many buckets a table has.
pub(crate) const BUCKETS: usize = 256;
/// How many slots a bucket has.
pub(crate) const SLOTS: usize = 16;
/// The room of a slot (sparse).
pub(crate) const STRIDE: usize = 1 << 20;
/// What is allocated in slots 0 and 1 of each bucket when the table is made, so that a release works on a full disk.
pub(crate) const ALLOCATED: usize = 4096;
const ROOTS_AT: usize = 4096;
/// Roots are a cache line apart.
const ROOT_STEP: usize = 64;
const SLOTS_AT: u64 = 1 << 20;
const NAME: &str = "table";

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    file: OwnedFd,
    map: MmapRaw,
    path: PathBuf,
    pub(crate) boot: Boot,
    cells: Vec<Mutex<Cell>>,
    pid: u32,
}

/// What this process remembers of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    /// The snapshot under this root: the sequence number in a root never comes back, so neither does its content.
    pub(crate) seen: Option<Seen>,
    pub(crate) buffer: Vec<u8>,
    /// Slots (bits) whose lock somebody holds without getting on, and since when they are avoided.
    pub(crate) avoid: u32,
    pub(crate) avoided_at: Option<std::time::Instant>,
    /// How much is known to be allocated in slots 0 and 1.
    pub(crate) allocated: usize,
    /// Slots (bits) that were trimmed since `allocated` was last raised.
    pub(crate) trimmed: u32,
}

/// A snapshot, and the root and length under which it was seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) root: Root,
    pub(crate) len: usize,
    pub(crate) snapshot: Snapshot,
}

impl Table {
    /// Opens the table of a directory, making it if it is missing.
    pub(crate) fn open(dir: &Dir, boot: Boot) -> Result<Self, DriverError> {
        let path = dir.path().join(NAME);
        let file = loop {
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            match fs::openat(dir, NAME, flags, Mode::empty()) {
                Ok(file) => break file,
                Err(Errno::NOENT) => create(dir, &path)?,
                Err(Errno::LOOP) => {
                    return Err(refused(format!(
                        "{} is a symbolic link, which is not followed",
                        path.display()
                    )));
                }
                Err(e) => return Err(failed("cannot open", &path, e)),
            }
        };
        check(&file, &path)?;
        let map = MmapOptions::new()
            .len(SLOTS_AT as usize)
            .map_raw(&file)
            .map_err(|e| failed("cannot map", &path, e))?;
        let cell = || {
            Mutex::new(Cell {
                allocated: ALLOCATED,
                ..Cell::default()
            })
        };
        Ok(Self {
            file,
            map,
            path,
            boot,
            cells: (0..BUCKETS).map(|_| cell()).collect(),
            pid: std::process::id(),
        })
    }

    /// The bucket of a key's hash.
    pub(crate) fn bucket(hash: u64) -> usize {
        (hash % BUCKETS as u64) as usize
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a forked child of the process that opened the table.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Whether the file was removed: what is committed to it now, nobody else sees.
    pub(crate) fn is_removed(&self) -> bool {
        fs::fstat(&self.file).is_ok_and(|s| s.st_nlink == 0)
    }

    /// Whether the directory's table is still this one.
    pub(crate) fn is_in_place(&self, dir: &Dir) -> bool {
        match (
            fs::statat(dir, NAME, AtFlags::SYMLINK_NOFOLLOW),
            fs::fstat(&self.file),
        ) {
            (Ok(path), Ok(open)) => (path.st_dev, path.st_ino) == (open.st_dev, open.st_ino),
            _ => false,
        }
    }

    pub(crate) fn cell(&self, bucket: usize) -> MutexGuard<'_, Cell> {
        self.cells[bucket].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn root(&self, bucket: usize) -> &AtomicU64 {
        sys::word(&self.map, ROOTS_AT + bucket * ROOT_STEP)
    }

    pub(crate) fn load(&self, bucket: usize) -> Root {
        hook::step();
        Root::from_word(self.root(bucket).load(Ordering::Acquire))
    }

    /// Where a slot is. All first slots come first, so that the file is no longer than it has to be.
    pub(crate) fn slot_at(bucket: usize, slot: u32) -> u64 {
        SLOTS_AT + (slot as usize * BUCKETS + bucket) as u64 * STRIDE as u64
    }

    /// The present snapshot of a bucket. Takes no lock.
    pub(crate) fn read(&self, bucket: usize) -> Result<(Root, Snapshot), DriverError> {
        let mut buffer = Vec::new();
        loop {
            let root = self.load(bucket);
            if let Some(snapshot) = self.read_at(bucket, root, &mut buffer)? {
                return Ok((root, snapshot));
            }
            if self.load(bucket) == root {
                let what = format!("the records of bucket {bucket} are damaged");
                return Err(corrupt(&self.path, &what));
            }
        }
    }

    /// The snapshot under this root; `None` if it does not add up (it was replaced meanwhile, or is damaged).
    pub(crate) fn read_at(
        &self,
        bucket: usize,
        root: Root,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Snapshot>, DriverError> {
        let Some(slot) = root.slot() else {
            return Ok(Some(Snapshot::empty(self.boot.wall_micros())));
        };
        let at = Self::slot_at(bucket, slot);
        hook::step();
        let unreadable = |e: Errno| failed("cannot read", &self.path, e);
        buffer.resize(ALLOCATED, 0);
        let mut got = read_fully(&self.file, buffer, at).map_err(unreadable)?;
        let len = Snapshot::claimed_len(&buffer[..got]).filter(|len| *len <= STRIDE);
        if let Some(len) = len.filter(|len| *len > got) {
            buffer.resize(len, 0);
            got = read_fully(&self.file, buffer, at).map_err(unreadable)?;
        }
        let stored = Snapshot::decode(&buffer[..got]).filter(|s| root.names(s.seq));
        Ok(match stored {
            Some(s) if s.boot == self.boot.hash => Some(s.snapshot),
            // The host was restarted since: whoever held or waited is gone.
            Some(s) => Some(Snapshot::empty(
                s.snapshot.last_token.max(self.boot.wall_micros()),
            )),
            // Torn by the restart (nothing is synced to the disk on the way): not trusted, but not in the way.
            None if !root.is_of(&self.boot) => Some(Snapshot::empty(self.boot.wall_micros())),
            None => None,
        })
    }

    /// Reserves room for a snapshot of this length, and so for every shorter one that replaces it.
    pub(crate) fn allocate(&self, cell: &mut Cell, bucket: usize, len: usize) -> Result<(), Errno> {
        if len <= cell.allocated {
            return Ok(());
        }
        let len = len.next_multiple_of(ALLOCATED).min(STRIDE);
        for slot in 0..2 {
            let at = Self::slot_at(bucket, slot);
            match fs::fallocate(&self.file, FallocateFlags::empty(), at, len as u64) {
                // Where it cannot be done, a release may find the disk full.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(e) => return Err(e),
            }
        }
        cell.allocated = len;
        cell.trimmed = 0;
        Ok(())
    }

    /// Gives back the room of a slot that a crowd once needed. The caller has locked it.
    pub(crate) fn trim(&self, cell: &mut Cell, bucket: usize, slot: u32) {
        let at = Self::slot_at(bucket, slot) + ALLOCATED as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Only hygiene: where it cannot be done, the room stays allocated.
        let _ = fs::fallocate(&self.file, flags, at, (STRIDE - ALLOCATED) as u64);
        cell.trimmed |= 1 << slot;
        if cell.trimmed & 0b11 == 0b11 {
            cell.allocated = ALLOCATED;
            cell.trimmed = 0;
        }
    }
}

pub(crate) fn read_fully(file: &OwnedFd, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut got = 0;
    while got < buffer.len() {
        match io::pread(file, &mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

pub(crate) fn write_fully(file: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => {
                bytes = &bytes[n..];
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn header() -> [u8; 28] {
    let mut h = [0; 28];
    h[..8].copy_from_slice(&MAGIC);
    h[8..12].copy_from_slice(&VERSION.to_le_bytes());
    h[12..16].copy_from_slice(&(BUCKETS as u32).to_le_bytes());
    h[16..20].copy_from_slice(&(SLOTS as u32).to_le_bytes());
    h[20..28].copy_from_slice(&(STRIDE as u64).to_le_bytes());
    h
}

/// Writes a whole new table under another name, then links it: nobody ever sees a part of it.
fn create(dir: &Dir, path: &Path) -> Result<(), DriverError> {
    let trouble = |e: Errno| failed("cannot create", path, e);
    let name = format!(".new-{:032x}", rand::random::<u128>());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(dir, &*name, flags, Mode::from_raw_mode(0o600)).map_err(trouble)?;
    let written = (|| {
        fs::fchmod(&file, Mode::from_raw_mode(dir.share().file_mode()))?;
        write_fully(file.as_fd(), &header(), 0)?;
        write_fully(file.as_fd(), &vec![0; BUCKETS * ROOT_STEP], ROOTS_AT as u64)?;
        for slot in 0..2 {
            for bucket in 0..BUCKETS {
                write_fully(file.as_fd(), &[0; ALLOCATED], Table::slot_at(bucket, slot))?;
            }
        }
        match fs::linkat(dir, &*name, dir, NAME, AtFlags::empty()) {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        }
    })();
    let _ = fs::unlinkat(dir, &*name, AtFlags::empty());
    written.map_err(trouble)
}

fn check(file: &OwnedFd, path: &Path) -> Result<(), DriverError> {
    let trouble = |e: Errno| failed("cannot read", path, e);
    let stat = fs::fstat(file).map_err(trouble)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(refused(format!("{} is not a regular file", path.display())));
    }
    let mut found = [0; 28];
    let got = read_fully(file, &mut found, 0).map_err(trouble)?;
    if got < found.len() || (stat.st_size as u64) < SLOTS_AT {
        return Err(corrupt(path, "the table is truncated"));
    }
    if found[..8] != MAGIC {
        return Err(corrupt(path, "this is not a table of locks"));
    }
    if found != header() {
        return Err(unavailable(format!(
            "{} was made by another version of distlock (format {}, this one is {VERSION}); use one version, or \
             remove the directory when nobody uses it",
            path.display(),
            u32::from_le_bytes([found[8], found[9], found[10], found[11]])
        )));
    }
    Ok(())
}
