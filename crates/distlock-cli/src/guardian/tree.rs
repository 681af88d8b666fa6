//! The descendants of a sub-reaper: finding, signalling and reaping them.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};

/// All that descend from this process, except what was there before.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// Children that this process had from its start: a shell that started jobs and then became this program.
    strangers: Vec<Pid>,
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    parent: i32,
    alive: bool,
}

impl Family {
    /// The family of a process that may have children already; those are left alone.
    pub(crate) fn from_now() -> Self {
        // The usual case, found without reading the table of all processes.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, look), Err(Errno::CHILD)) {
            return Self::default();
        }
        let table = table().unwrap_or_default();
        Self {
            strangers: children_of(getpid(), &table),
        }
    }

    /// The live descendants, each with its parent, parents before children.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    fn members(&self) -> io::Result<Vec<(Pid, i32)>> {
        let table = table()?;
        let mut members = Vec::new();
        let mut next = children_of(getpid(), &table);
        next.retain(|pid| !self.strangers.contains(pid));
        while !next.is_empty() {
            let generation = std::mem::take(&mut next);
            for pid in generation {
                next.extend(children_of(pid, &table));
                if let Some(entry) = table.get(&raw(pid)).filter(|entry| entry.alive) {
                    members.push((pid, entry.parent));
                }
            }
        }
        Ok(members)
    }

    /// Whether no descendant is left alive. (Without `/proc` nobody can be seen.)
    pub(crate) fn is_extinct(&self) -> bool {
        self.members().is_ok_and(|members| members.is_empty())
    }

    /// Sends a signal to every live descendant; says how many there were, and how many refused.
    ///
    /// # Errors
    /// When `/proc` cannot be read; then nobody got it.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<(usize, usize)> {
        let members = self.members()?;
        let refused = members
            .iter()
            .filter(|(pid, parent)| !send(*pid, *parent, signal))
            .count();
        Ok((members.len(), refused))
    }

    /// Kills all descendants and waits until none is left. `group` is a process group of theirs whose leader has
    /// not been reaped: one call reaches most of them at the same instant.
    ///
    /// A process that may not be signalled (a set-user-id program) is waited for, however long it takes: the lock
    /// is not to be given back before.
    pub(crate) fn kill(&self, group: Option<Pid>) {
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let left = match self.signal(Signal::KILL) {
                Ok((left, _)) => left,
                // Without /proc only the group and the direct children can be found.
                Err(_) => usize::from(group.is_some_and(|g| waitid_exited(g).is_ok_and(|gone| !gone))),
            };
            if left == 0 {
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
            self.reap(group);
        }
    }

    /// Reaps those direct children that have ended, except `keep`.
    pub(crate) fn reap(&self, keep: Option<Pid>) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !matches!(waitid(WaitId::All, look), Ok(Some(_))) {
            return;
        }
        let Ok(table) = table() else { return };
        for pid in children_of(getpid(), &table) {
            let ended = table.get(&raw(pid)).is_some_and(|entry| !entry.alive);
            if ended && Some(pid) != keep && !self.strangers.contains(&pid) {
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            }
        }
    }
}

/// Whether this child has ended, without reaping it.
fn waitid_exited(pid: Pid) -> io::Result<bool> {
    let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), flags)?.is_some())
}

/// Sends a signal to a process that was just seen below us, under that parent; false when it may not be signalled.
///
/// It may have ended since, and its number may belong to a stranger: so the process is pinned first, then looked at
/// again.
fn send(pid: Pid, parent: i32, signal: Signal) -> bool {
    let sent = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pinned) => {
            // A process whose parent has died in between belongs to its sub-reaper, which is this process.
            let still_ours = entry(raw(pid)).is_some_and(|e| e.parent == parent || e.parent == raw(getpid()));
            if !still_ours {
                return true;
            }
            pidfd_send_signal(&pinned, signal)
        }
        // An old kernel, or a sandbox that forbids it.
        Err(Errno::NOSYS | Errno::PERM) => kill_process(pid, signal),
        Err(e) => Err(e),
    };
    !matches!(sent, Err(Errno::PERM))
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

fn children_of(parent: Pid, table: &HashMap<i32, Entry>) -> Vec<Pid> {
    table
        .iter()
        .filter(|(_, entry)| entry.parent == raw(parent))
        .filter_map(|(pid, _)| Pid::from_raw(*pid))
        .collect()
}

fn table() -> io::Result<HashMap<i32, Entry>> {
    let mut table = HashMap::new();
    for item in std::fs::read_dir("/proc")? {
        let pid = item?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && let Some(entry) = entry(pid)
        {
            table.insert(pid, entry);
        }
    }
    Ok(table)
}

/// Reads `/proc/PID/stat`: what is wanted comes after the name, which may contain anything.
fn entry(pid: i32) -> Option<Entry> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = text.iter().rposition(|b| *b == b')')? + 1;
    let mut words = std::str::from_utf8(&text[after_name..]).ok()?.split_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    let threads: u32 = words.nth(15)?.parse().ok()?;
    Some(Entry {
        parent,
        // A process whose first thread has ended looks like a zombie while its other threads run.
        alive: !matches!(state, "Z" | "X" | "x") || threads > 1,
    })
}

/// Whether `pid` descends from `ancestor`.
pub(crate) fn descends_from(pid: Pid, ancestor: Pid) -> bool {
    let mut at = raw(pid);
    // No chain of parents is longer than the table of processes.
    for _ in 0..4096 {
        if at == raw(ancestor) {
            return true;
        }
        match entry(at) {
            Some(entry) if entry.parent > 0 => at = entry.parent,
            _ => return false,
        }
    }
    false
}

/// The parent of a process, if there is one that can be seen.
pub(super) fn parent_of(pid: Pid) -> Option<Pid> {
    Pid::from_raw(entry(raw(pid))?.parent)
}
