//! What runs in the guardian process.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitIdStatus, getpid, set_child_subreaper, setpgid, waitid,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::placement::Placement;
use super::stop::Stopping;
use super::tree::Family;
use super::wire::{self, End, Order, Report, Start};
use crate::stdio;
use crate::sys::{self, Before, SignalFd, SignalSet};
use crate::values::OnLost;

/// What the guardian knows from its birth.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) command: Vec<OsString>,
    pub(crate) no_stdin: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_lost: OnLost,
    /// After a TERM to the wrapper the command has this long, when the user said so.
    pub(crate) patience: Option<Duration>,
    pub(crate) wrapper_group: Pid,
    /// The signal mask for the command.
    pub(crate) mask: SignalSet,
}

/// Runs the guardian, which is this process from now on.
pub(super) fn run(plan: Plan, socket: OwnedFd) -> ! {
    let code = match Guardian::new(plan, socket) {
        Ok(mut guardian) => guardian.run(),
        // The wrapper sees the end of the socket, and that nothing was started.
        Err(_) => 1,
    };
    std::process::exit(code)
}

pub(super) struct Guardian {
    pub(super) plan: Plan,
    socket: OwnedFd,
    signals: SignalFd,
    timer: OwnedFd,
    pub(super) clock: Clock,
    pub(super) placement: Placement,
    pub(super) family: Family,
    /// Keeps the wrapper's holds alive on the file engine, until this process ends.
    liveness: Option<OwnedFd>,
    pub(super) child: Option<Pid>,
    pub(super) end: Option<End>,
    pub(super) deadline: Moment,
    pub(super) kill_after: Duration,
    pub(super) max_at: Option<Moment>,
    /// When a command that was told to end by a forwarded TERM has used up its time.
    pub(super) last_call: Option<Moment>,
    /// The signal of `--on-lost signal:…` was sent.
    pub(super) told: bool,
    pub(super) stopping: Option<Stopping>,
}

impl Guardian {
    fn new(plan: Plan, socket: OwnedFd) -> io::Result<Self> {
        // Nothing but KILL and STOP shall reach this process, also no SIGTTOU when it moves the terminal.
        SignalSet::of(
            (1..32).filter(|n| ![libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE].contains(n)),
        )
        .block()?;
        // Children of a process that ignores this signal vanish without a status.
        sys::default_action(libc::SIGCHLD);
        // Its own group: a signal to the wrapper's or the command's group (`kill -9 0`) does not reach it.
        setpgid(None, None)?;
        set_child_subreaper(Some(getpid()))?;
        let _ = rustix::thread::set_name(c"distlock-guard");
        Ok(Self {
            placement: Placement::new(plan.wrapper_group),
            plan,
            socket,
            signals: SignalFd::new(&SignalSet::of([libc::SIGCHLD]))?,
            timer: timerfd_create(
                TimerfdClockId::Boottime,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )?,
            clock: Clock::boot(),
            family: Family::default(),
            liveness: None,
            child: None,
            end: None,
            deadline: Moment::FAR,
            kill_after: Duration::ZERO,
            max_at: None,
            last_call: None,
            told: false,
            stopping: None,
        })
    }

    fn run(&mut self) -> i32 {
        loop {
            self.look_at_clock();
            if let Some(end) = self.finished() {
                let why = self.stopping.map(|s| s.why);
                self.placement.give_back(why.is_some());
                self.report(&Report::Ended { end, why });
                return 0;
            }
            self.sleep();
            if !self.read_orders() {
                return self.orphaned();
            }
            self.look_at_children();
        }
    }

    /// Obeys what has arrived; false when the wrapper is dead.
    fn read_orders(&mut self) -> bool {
        loop {
            match wire::recv::<Order>(&self.socket) {
                Ok(Some((order, fd))) => self.obey(order, fd),
                Ok(None) => return false,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A wrapper that speaks nonsense is as good as dead.
                Err(_) => return false,
            }
        }
    }

    /// The wrapper is dead, and with it the hold: nobody may go on.
    fn orphaned(&mut self) -> i32 {
        if self.child.is_some() {
            self.family.kill(self.group_to_kill());
            self.placement.give_back(true);
        }
        0
    }

    /// Sleeps until there is an order, a child changed, or a moment has come.
    fn sleep(&self) {
        let due = self.next_due();
        let value = match due {
            Moment::FAR => Duration::ZERO,
            due => due.since(self.clock.now()).max(Duration::from_nanos(1)),
        };
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: Timespec::try_from(value).unwrap_or(Timespec {
                tv_sec: i64::from(i32::MAX),
                tv_nsec: 0,
            }),
        };
        let armed = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec).is_ok();
        let mut fds = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        // Should the timer fail, look at the clock often instead.
        let often = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        let _ = poll(&mut fds, (!armed).then_some(&often));
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.timer, &mut count);
    }

    fn obey(&mut self, order: Order, fd: Option<OwnedFd>) {
        match order {
            Order::Start(start) => self.start(start, fd),
            Order::Deadline(at) => self.deadline = Moment::from_nanos(at),
            Order::Signal { signal, by_terminal } => self.forward(signal, by_terminal),
            Order::Lost { grace_ns } => self.lost(Duration::from_nanos(grace_ns)),
            Order::Continue => self.placement.resume(),
        }
    }

    fn start(&mut self, start: Start, liveness: Option<OwnedFd>) {
        self.liveness = liveness;
        self.deadline = Moment::from_nanos(start.deadline);
        self.kill_after = Duration::from_nanos(start.kill_after_ns);
        if self.deadline <= self.clock.now() {
            return self.report(&Report::TooLate);
        }
        match self.spawn(&start.env) {
            Ok((pid, own_group)) => {
                self.placement.started(pid, own_group);
                self.child = Some(pid);
                self.max_at = self.plan.max_hold.map(|limit| self.clock.now() + limit);
                self.report(&Report::Started {
                    pid: pid.as_raw_nonzero().get(),
                });
                stdio::let_go(true);
            }
            Err(e) => self.report(&Report::Failed {
                errno: e.raw_os_error().unwrap_or(libc::EINVAL),
            }),
        }
    }

    fn spawn(&mut self, env: &[(String, Option<String>)]) -> io::Result<(Pid, bool)> {
        let (program, args) = self
            .plan
            .command
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(args);
        for (name, value) in env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if self.plan.no_stdin {
            command.stdin(Stdio::null());
        }
        let (own_group, terminal) = self.placement.decide();
        sys::prepare(
            &mut command,
            Before {
                parent: getpid(),
                // Not the guardian's, whatever else.
                group: (!own_group).then_some(self.plan.wrapper_group),
                terminal,
                mask: self.plan.mask,
            },
        );
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok((pid.ok_or(io::ErrorKind::Other)?, own_group))
    }

    /// Tells the wrapper. If it does not listen it is dead or stopped, which is noticed elsewhere.
    pub(super) fn report(&self, report: &Report) {
        let _ = wire::send(&self.socket, report, None);
    }

    fn look_at_children(&mut self) {
        while let Ok(Some(_)) = self.signals.next() {}
        let Some(child) = self.child.filter(|_| self.end.is_none()) else {
            return;
        };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(status)) = waitid(WaitId::Pid(child), look) {
            self.end = end_of(&status);
            return;
        }
        let stopped = waitid(WaitId::Pid(child), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        if let Ok(Some(_)) = stopped
            && self.stopping.is_none()
            && self.placement.has_terminal()
        {
            self.report(&Report::Stopped {
                own_group: self.placement.group().is_some(),
            });
        }
        // Daemons of the command that came to us and have ended.
        self.family.reap(Some(child));
    }

    /// How the command ended, when there is nothing left to do.
    fn finished(&mut self) -> Option<End> {
        let end = self.end?;
        // A command that has to be stopped is gone when all that it started is.
        (self.stopping.is_none() || self.family.is_extinct()).then_some(end)
    }

    /// The command's group, while no stranger can have its number: its leader is reaped last.
    pub(super) fn group_to_kill(&self) -> Option<Pid> {
        self.placement.group()
    }
}

/// How a child ended, if it did.
pub(super) fn end_of(status: &WaitIdStatus) -> Option<End> {
    if let Some(code) = status.exit_status() {
        return Some(End::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX)));
    }
    status.terminating_signal().map(End::Signal)
}
