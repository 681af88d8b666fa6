//! The one write path: a pure change of a bucket's snapshot, committed by compare-and-swap of the bucket's root.
//!
//! Killed before the swap: nothing happened. Stopped anywhere: the swap fails later. So an outcome is never unknown.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use distlock_core::clock::{Clock, Moment};
use distlock_core::driver::DriverError;
use rustix::io::Errno;

use crate::hook;
use crate::root::Root;
use crate::snapshot::Snapshot;
use crate::sys::ByteLock;
use crate::table::{ALLOCATED, Cell, SLOTS, STRIDE, Seen, Table, write_fully};
use crate::trouble::{corrupt, failed, unavailable};

/// How long one call may keep its thread.
const PATIENCE: Duration = Duration::from_millis(5);
/// A writer that has not moved the root for so long is stopped.
const STOPPED: Duration = Duration::from_millis(3);
/// How long a stopped writer's slot is left alone.
const AVOID: Duration = Duration::from_secs(10);

/// What came of an [`update`].
pub(crate) enum Outcome<R> {
    /// Decided; committed if anything changed.
    Done(R),
    /// Nothing was committed within the patience; worth trying again after a pause.
    Stuck,
}

/// What became of a try for a slot.
enum Slot<'a> {
    Locked(u32, ByteLock<'a>),
    /// Somebody committed meanwhile: decide anew.
    Moved,
    Stuck,
}

/// Decides `f` on the present snapshot of a bucket, and commits what it changed. `f` says whether it changed
/// anything; it may run several times, each time on a fresh copy, and must not do anything else.
pub(crate) fn update<R>(
    table: &Table,
    bucket: usize,
    clock: &Clock,
    f: &mut dyn FnMut(&mut Snapshot, Moment) -> (R, bool),
) -> Result<Outcome<R>, DriverError> {
    let cell = &mut *table.cell(bucket);
    let mut begun = None;
    let mut full = 0u32;
    loop {
        let (root, current_len, mut next) = present(table, bucket, cell)?;
        let now = clock.now();
        let (answer, changed) = f(&mut next, now);
        if !changed {
            return Ok(Outcome::Done(answer));
        }
        next.forget(now.as_nanos());
        let mut buffer = std::mem::take(&mut cell.buffer);
        next.encode(root.seq() % ((1 << 44) - 1) + 1, table.boot.hash, &mut buffer);
        let written = commit(
            table,
            bucket,
            cell,
            root,
            &buffer,
            current_len,
            &mut full,
            &mut begun,
        );
        cell.buffer = buffer;
        match written? {
            Written::Committed(root) => {
                cell.seen = Some(Seen {
                    root,
                    len: cell.buffer.len(),
                    snapshot: next,
                });
                return Ok(Outcome::Done(answer));
            }
            Written::Again => {
                if begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    return Ok(Outcome::Stuck);
                }
            }
            Written::Stuck => return Ok(Outcome::Stuck),
        }
    }
}

/// Replaces the records of a damaged bucket by none. An operator's decision, never taken by itself.
pub(crate) fn clear_damaged(table: &Table, bucket: usize) -> Result<(), DriverError> {
    let cell = &mut *table.cell(bucket);
    let root = table.load(bucket);
    if table.read(bucket).is_ok() {
        return Ok(());
    }
    let mut buffer = Vec::new();
    Snapshot::empty(table.boot.wall_micros()).encode(
        root.seq() % ((1 << 44) - 1) + 1,
        table.boot.hash,
        &mut buffer,
    );
    commit(table, bucket, cell, root, &buffer, 0, &mut 0, &mut None)?;
    cell.seen = None;
    Ok(())
}

fn present(table: &Table, bucket: usize, cell: &mut Cell) -> Result<(Root, usize, Snapshot), DriverError> {
    loop {
        let root = table.load(bucket);
        if let Some(seen) = cell.seen.as_ref().filter(|seen| seen.root == root) {
            return Ok((root, seen.len, seen.snapshot.clone()));
        }
        let mut buffer = std::mem::take(&mut cell.buffer);
        let read = table.read_at(bucket, root, &mut buffer);
        cell.buffer = buffer;
        if let Some(snapshot) = read? {
            if root.slot().is_none() {
                return Ok((root, 0, snapshot));
            }
            let len = Snapshot::claimed_len(&cell.buffer).unwrap_or(0);
            cell.seen = Some(Seen {
                root,
                len,
                snapshot: snapshot.clone(),
            });
            return Ok((root, len, snapshot));
        }
        if table.load(bucket) == root {
            let what = format!("the records of bucket {bucket} are damaged");
            return Err(corrupt(table.path(), &what));
        }
    }
}

enum Written {
    Committed(Root),
    Again,
    Stuck,
}

#[expect(clippy::too_many_arguments, reason = "the parts of one attempt of `update`")]
fn commit(
    table: &Table,
    bucket: usize,
    cell: &mut Cell,
    root: Root,
    bytes: &[u8],
    current_len: usize,
    full: &mut u32,
    begun: &mut Option<Instant>,
) -> Result<Written, DriverError> {
    if bytes.len() > STRIDE {
        return Err(unavailable(format!(
            "too many contenders at once: the records of one of the {} parts of {} would need {} bytes; it has \
             room for {STRIDE}",
            crate::table::BUCKETS,
            table.path().display(),
            bytes.len()
        )));
    }
    if bytes.len() > current_len {
        table
            .allocate(cell, bucket, bytes.len())
            .map_err(|e| failed("cannot reserve room in", table.path(), e))?;
    }
    let (slot, _lock) = match lock_slot(table, bucket, cell, root, *full, begun)? {
        Slot::Locked(slot, lock) => (slot, lock),
        Slot::Moved => return Ok(Written::Again),
        Slot::Stuck => return Ok(Written::Stuck),
    };
    // Only who holds a slot's lock can make that slot the current one. So if the root has not moved by now, this
    // slot is scratch for as long as the lock is held.
    if table.load(bucket) != root {
        return Ok(Written::Again);
    }
    hook::step();
    if let Err(e) = write_fully(table.file(), bytes, Table::slot_at(bucket, slot)) {
        *full |= 1 << slot;
        if e == Errno::NOSPC && *full != (1 << SLOTS) - 1 {
            return Ok(Written::Again);
        }
        return Err(failed("cannot write", table.path(), e));
    }
    if cell.allocated > 8 * ALLOCATED && bytes.len() <= ALLOCATED && slot < 2 {
        table.trim(cell, bucket, slot);
    }
    hook::before_commit();
    let next = root.next(slot, &table.boot);
    Ok(if swing(table, bucket, root, next) {
        Written::Committed(next)
    } else {
        Written::Again
    })
}

fn swing(table: &Table, bucket: usize, from: Root, to: Root) -> bool {
    hook::step();
    if distlock_core::mutant::is("file_cas") {
        // A writer that was overtaken overwrites what others committed.
        table.root(bucket).store(to.word(), Ordering::Release);
        return true;
    }
    table
        .root(bucket)
        .compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

fn lock_slot<'a>(
    table: &'a Table,
    bucket: usize,
    cell: &mut Cell,
    root: Root,
    full: u32,
    begun: &mut Option<Instant>,
) -> Result<Slot<'a>, DriverError> {
    if cell.avoid != 0 && cell.avoided_at.is_none_or(|at| at.elapsed() > AVOID) {
        cell.avoid = 0;
    }
    for slot in 0..SLOTS as u32 {
        if Some(slot) == root.slot() || (cell.avoid | full) & (1 << slot) != 0 {
            continue;
        }
        let mut tries = 0u32;
        let mut waiting: Option<Instant> = None;
        loop {
            hook::step();
            let lock = ByteLock::take(table.file(), Table::slot_at(bucket, slot))
                .map_err(|e| failed("cannot lock", table.path(), e))?;
            if let Some(lock) = lock {
                return Ok(Slot::Locked(slot, lock));
            }
            if table.load(bucket) != root {
                return Ok(Slot::Moved);
            }
            let waited = waiting.get_or_insert_with(Instant::now).elapsed();
            if begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Ok(Slot::Stuck);
            }
            if waited > STOPPED || hook::passes_by() {
                cell.avoid |= 1 << slot;
                cell.avoided_at = Some(Instant::now());
                break;
            }
            tries += 1;
            if tries <= 20 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
    cell.avoid = 0;
    Ok(Slot::Stuck)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Boot;
    use crate::config::Config;
    use crate::dir::Dir;
    use crate::entry;
    use crate::protocol::{Look, acquire};

    const BUCKET: usize = 7;

    fn try_it(table: &Table, owner: u64) -> Result<Option<u64>, DriverError> {
        let mut me = entry::of_key("k".into());
        (me.owner.n, me.process, me.ttl) = (owner, 1, 3_600_000_000_000);
        let mut f = |s: &mut Snapshot, now| acquire(s, now, &me, false, &[], &mut Vec::new());
        let Outcome::Done(look) = update(table, BUCKET, &Clock::boot(), &mut f)? else {
            panic!("stuck");
        };
        Ok(match look {
            Look::Held { token, .. } => Some(token),
            _ => None,
        })
    }

    #[test]
    fn a_restart_of_the_host_frees_everything_and_tokens_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Dir::open(&Config::new(dir.path())).unwrap();
        let boot = |n: u64| Boot { hash: n << 48 | n };
        let before = Table::open(&dir, boot(1)).unwrap();
        let first = try_it(&before, 1).unwrap().unwrap();
        assert_eq!(try_it(&before, 2).unwrap(), None);
        let after = Table::open(&dir, boot(2)).unwrap();
        let second = try_it(&after, 3).unwrap().unwrap();
        assert!(second > first);
        // The same tag of 16 bits by chance: the whole hash decides.
        let twin = Table::open(&dir, Boot { hash: 2 << 48 | 9 }).unwrap();
        assert!(try_it(&twin, 4).unwrap().unwrap() > second);
    }

    #[test]
    fn what_a_power_cut_tore_is_dropped_but_damage_within_a_run_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Dir::open(&Config::new(dir.path())).unwrap();
        let boot = |n: u64| Boot { hash: n << 48 };
        let before = Table::open(&dir, boot(1)).unwrap();
        let first = try_it(&before, 1).unwrap().unwrap();
        let at = Table::slot_at(BUCKET, before.load(BUCKET).slot().unwrap());
        write_fully(before.file(), &[0xff; 64], at).unwrap();
        let same_run = Table::open(&dir, boot(1)).unwrap();
        assert!(try_it(&same_run, 2).is_err());
        let after = Table::open(&dir, boot(2)).unwrap();
        assert!(try_it(&after, 3).unwrap().unwrap() > first);
    }

    #[test]
    fn a_commit_that_was_overtaken_is_decided_anew() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Dir::open(&Config::new(dir.path())).unwrap();
        let boot = Boot { hash: 1 << 48 };
        let (a, b) = (Table::open(&dir, boot).unwrap(), Table::open(&dir, boot).unwrap());
        let mut runs = 0;
        let mut f = |s: &mut Snapshot, _| {
            if runs == 0 {
                assert!(try_it(&b, 1).unwrap().is_some());
            }
            runs += 1;
            s.last_token += 1;
            (s.entries.len(), true)
        };
        let Outcome::Done(seen) = update(&a, BUCKET, &Clock::boot(), &mut f).unwrap() else {
            panic!("stuck");
        };
        assert_eq!((seen, runs), (1, 2));
        assert_eq!(try_it(&a, 2).unwrap(), None);
    }
}
