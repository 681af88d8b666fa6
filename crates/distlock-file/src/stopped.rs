//! Whether a process is stopped (Ctrl-Z, SIGSTOP, a debugger), as far as this process can see.

use std::fs;

/// A hint only: a process number means another process in another PID namespace. Whoever is taken for stopped loses
/// no right by it; somebody else is woken as well.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The state comes after the name, which stands in brackets and may contain anything.
    let after_name = stat.iter().rposition(|b| *b == b')').map(|at| at + 2);
    matches!(after_name.and_then(|at| stat.get(at)), Some(b'T' | b't'))
}
