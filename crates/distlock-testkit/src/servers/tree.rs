//! A process and its descendants, as `/proc` shows them (elsewhere than on Linux there are none).

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Pid;

pub(super) fn pid(raw: u32) -> io::Result<Pid> {
    i32::try_from(raw)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("not a process id"))
}

/// All descendants of a process, parents before children (Linux; elsewhere none).
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let children: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The command's name, in parentheses, may contain anything.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((parent, pid))
        })
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(children.iter().filter(|(p, _)| *p == parent).map(|(_, c)| *c));
        next += 1;
    }
    found.remove(0);
    found
}

/// Whether a process is there and not just waiting to be reaped.
pub(super) fn runs(pid: u32) -> bool {
    state(format!("/proc/{pid}/stat")).is_some_and(|state| !"ZX".contains(state))
}

/// Whether no thread of a process runs any more, or will before it is continued.
pub(super) fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut states = threads.map(|thread| state(thread.path().join("stat")));
    states.all(|state| state.is_none_or(|state| "TtZX".contains(state)))
}

/// The state of a process or thread, as `stat` tells it.
fn state(stat: impl AsRef<Path>) -> Option<char> {
    let stat = fs::read_to_string(stat).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
