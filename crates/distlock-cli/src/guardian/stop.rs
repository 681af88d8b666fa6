//! When and how the guardian stops its command.

use std::time::Duration;

use distlock_core::clock::Moment;
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::process::{Guardian, end_of};
use super::wire::{End, Report, Why};
use crate::values::OnLost;

/// The command was told to end, and will be killed at that moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopping {
    pub(super) why: Why,
    kill_at: Moment,
}

impl Guardian {
    /// The next moment at which something has to be done.
    pub(super) fn next_due(&self) -> Moment {
        if self.child.is_none() {
            return Moment::FAR;
        }
        if let Some(stopping) = self.stopping {
            return stopping.kill_at.min(self.killing_deadline());
        }
        let lost_at = match self.plan.on_lost {
            OnLost::Ignore => Moment::FAR,
            OnLost::Signal(_) if self.told => Moment::FAR,
            _ => self.deadline.before(self.kill_after),
        };
        let max_at = self.max_at.unwrap_or(Moment::FAR);
        lost_at.min(max_at).min(self.last_call.unwrap_or(Moment::FAR))
    }

    /// The deadline, when it is one at which the command has to be dead.
    fn killing_deadline(&self) -> Moment {
        match self.plan.on_lost {
            OnLost::Kill => self.deadline,
            _ => Moment::FAR,
        }
    }

    /// Does what is due.
    pub(super) fn look_at_clock(&mut self) {
        let now = self.clock.now();
        if self.next_due() > now {
            return;
        }
        if self.stopping.is_some() {
            return self.kill();
        }
        if self.killing_deadline() <= now {
            // Too late for TERM: this process was starved, or suspended with the host.
            self.stop(Why::Lost, now);
        } else if self.max_at.is_some_and(|at| at <= now) {
            self.stop(Why::MaxHold, now + self.kill_after);
        } else if self.last_call.is_some_and(|at| at <= now) {
            self.stop(Why::Impatient, now);
        } else {
            match self.plan.on_lost {
                OnLost::Kill => self.stop(Why::Lost, self.deadline),
                OnLost::Signal(signal) => self.tell(signal),
                OnLost::Ignore => {}
            }
        }
    }

    /// The wrapper says that the lock is lost, and how long the command may take to end.
    pub(super) fn lost(&mut self, grace: Duration) {
        if self.child.is_none() {
            return;
        }
        let kill_at = self.clock.now() + grace;
        match self.plan.on_lost {
            OnLost::Ignore => {}
            OnLost::Signal(signal) => self.tell(signal),
            OnLost::Kill => match &mut self.stopping {
                Some(stopping) => stopping.kill_at = stopping.kill_at.min(kill_at),
                None => self.stop(Why::Lost, kill_at),
            },
        }
    }

    fn tell(&mut self, signal: i32) {
        if !std::mem::replace(&mut self.told, true)
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            let _ = self.family.signal(signal);
        }
    }

    /// Tells all descendants to end by then. With no time left they are killed at once.
    fn stop(&mut self, why: Why, kill_at: Moment) {
        self.stopping = Some(Stopping { why, kill_at });
        self.report(&Report::Stopping(why));
        if kill_at <= self.clock.now() {
            return self.kill();
        }
        let _ = self.family.signal(Signal::TERM);
        // Those that are stopped shall hear it too.
        let _ = self.family.signal(Signal::CONT);
    }

    fn kill(&mut self) {
        self.family.kill(self.group_to_kill());
        if let Some(child) = self.child.filter(|_| self.end.is_none()) {
            // Again, for a host where /proc could not be read; it was not reaped, so the number is still its own.
            let _ = kill_process(child, Signal::KILL);
            let status = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            self.end = match status {
                Ok(Some(status)) => end_of(&status),
                _ => Some(End::Signal(libc::SIGKILL)),
            };
        }
    }

    /// Passes on a signal that somebody sent to the wrapper.
    pub(super) fn forward(&mut self, signal: i32, by_terminal: bool) {
        if self.child.is_none() {
            return;
        }
        let Some(named) = Signal::from_named_raw(signal) else {
            return;
        };
        match self.placement.group() {
            Some(group) => {
                let _ = kill_process_group(group, named);
            }
            // In the wrapper's group: what the terminal sends, the command got as well.
            None if by_terminal => {}
            None => {
                let _ = self.family.signal(named);
            }
        }
        if signal == libc::SIGTERM {
            self.last_call = self.plan.patience.map(|patience| self.clock.now() + patience);
        }
    }
}
