//! Process groups and the terminal: where the command runs, so that the terminal treats it as it would without us.
//!
//! | started | the command's group | the terminal's keys |
//! |---|---|---|
//! | in the background, or without a terminal | its own | do not concern it |
//! | in the foreground, with input and output on the terminal | its own, made the foreground group | go to it alone |
//! | in the foreground, in a pipeline | the wrapper's | go to the whole pipeline |
//!
//! The last row is there because making the command the only foreground process would stop the other members of
//! the pipeline, such as a pager that reads keys.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{
    Pid, Signal, getpgid, getpgrp, getpid, getppid, getsid, kill_process, kill_process_group,
};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal, if there is one.
fn terminal() -> Option<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    open("/dev/tty", flags, Mode::empty()).ok().map(File::from)
}

/// Whether this process's group is the terminal's foreground group: whether people see what it writes there.
pub(crate) fn wrapper_in_foreground() -> bool {
    terminal().is_some_and(|tty| tcgetpgrp(&tty).is_ok_and(|group| group == getpgrp()))
}

/// The guardian's view of groups and terminal.
#[derive(Debug)]
pub(super) struct Placement {
    wrapper_group: Pid,
    terminal: Option<File>,
    /// Input and output are the terminal: the command may have it for itself.
    alone: bool,
    /// The terminal's modes before the command could change them.
    modes: Option<Termios>,
    /// The command's group, when it is its own.
    group: Option<Pid>,
}

impl Placement {
    pub(super) fn new(wrapper_group: Pid) -> Self {
        Self {
            wrapper_group,
            terminal: terminal(),
            alone: isatty(std::io::stdin()) && isatty(std::io::stdout()),
            modes: None,
            group: None,
        }
    }

    fn foreground(&self) -> Option<Pid> {
        self.terminal.as_ref().and_then(|tty| tcgetpgrp(tty).ok())
    }

    /// Decides: whether the command gets its own group, and the terminal that it takes when it does.
    pub(super) fn decide(&mut self) -> (bool, Option<RawFd>) {
        match &self.terminal {
            Some(tty) if self.foreground() == Some(self.wrapper_group) => {
                if self.alone {
                    self.modes = tcgetattr(tty).ok();
                    (true, Some(tty.as_fd().as_raw_fd()))
                } else {
                    (false, None)
                }
            }
            _ => (true, None),
        }
    }

    /// The command has started, as the leader of its own group or not.
    pub(super) fn started(&mut self, command: Pid, own_group: bool) {
        self.group = own_group.then_some(command);
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// The command's own group.
    pub(super) fn group(&self) -> Option<Pid> {
        self.group
    }

    /// The wrapper's job was continued: the command goes on too, in the foreground if the shell put the wrapper
    /// there (`fg`), else in the background (`bg`).
    pub(super) fn resume(&self) {
        let Some(group) = self.group else { return };
        if let Some(tty) = &self.terminal
            && self.alone
            && self.foreground() == Some(self.wrapper_group)
        {
            let _ = tcsetpgrp(tty, group);
        }
        let _ = kill_process_group(group, Signal::CONT);
    }

    /// The command has ended: the wrapper's group gets the terminal back, with its modes if the command was not
    /// given the time to restore them.
    pub(super) fn give_back(&self, was_stopped: bool) {
        let Some(tty) = &self.terminal else { return };
        if self.group.is_some() && self.foreground() == self.group {
            let _ = tcsetpgrp(tty, self.wrapper_group);
            if let Some(modes) = self.modes.as_ref().filter(|_| was_stopped) {
                let _ = tcsetattr(tty, OptionalActions::Now, modes);
            }
        }
    }
}

/// Stops the wrapper because the command was stopped, so that the shell has its terminal again; returns after it
/// was continued. With a group of the command's own the whole job has to stop; else the terminal saw to the others.
///
/// Returns at once when nobody could continue us: no shell with job control is above. The command is to be
/// continued then, as the kernel would not have stopped it without us.
pub(crate) fn stop_own_group(whole: bool) {
    if orphaned() {
        return;
    }
    // Not TSTP, which this process reads from a descriptor instead of obeying.
    let _ = if whole {
        kill_process_group(getpgrp(), Signal::STOP)
    } else {
        kill_process(getpid(), Signal::STOP)
    };
}

/// Whether no ancestor in this session, but outside of this group, could continue the group. (The kernel calls
/// such a group orphaned and never stops it by a key.)
fn orphaned() -> bool {
    let (Ok(session), group) = (getsid(None), getpgrp()) else {
        return true;
    };
    let mut parent = getppid();
    // An unusual chain of parents inside one group is short.
    for _ in 0..64 {
        let Some(pid) = parent else { return true };
        match (getsid(Some(pid)), getpgid(Some(pid))) {
            (Ok(s), Ok(_)) if s != session => return true,
            (Ok(_), Ok(g)) if g != group => return false,
            (Ok(_), Ok(_)) => parent = super::tree::parent_of(pid),
            _ => return true,
        }
    }
    true
}
