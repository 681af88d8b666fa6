//! `distlock elect`: a command that runs while this candidate leads, term after term.
//!
//! Each term is a `distlock run` in a process of its own, forked before there is any thread. This process only waits
//! for it, passes signals on, and decides whether to stand again.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, waitpid};
use serde_json::json;

use crate::args::{Common, ElectArgs, LockArgs, RunArgs};
use crate::cmd::run::{self, How, Outcome};
use crate::exit::Exit;
use crate::say::Say;
use crate::settings::Session;
use crate::sys::{self, Side, SignalFd, SignalSet};

/// Those that end the candidacy.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// Those that are only passed on.
const PASSED: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];
/// The least and the most time between two terms that went wrong at once.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Stands until the command ends by itself, or a signal ends the candidacy.
pub(crate) fn elect(common: &Common, args: &ElectArgs) -> Exit {
    let args = as_run(args);
    let say = match Session::open(common, None) {
        Ok(session) => session.say,
        Err(exit) => return exit,
    };
    match Candidate::new(common, &args, &say).and_then(Candidate::stand) {
        Ok(exit) => exit,
        Err(e) => say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None),
    }
}

fn as_run(args: &ElectArgs) -> RunArgs {
    RunArgs {
        lock: LockArgs {
            keys: args.office.clone().into_iter().collect(),
            key: args.key.clone().into_iter().collect(),
            ttl: args.ttl,
            reason: args.reason.clone(),
            label: args.label.clone(),
            status_fd: args.status_fd,
            wait: Some(crate::values::Wait::Forever),
            ..LockArgs::default()
        },
        max_hold: None,
        once_per: None,
        on_crash: None,
        kill_after: args.kill_after,
        on_lost: None,
        metrics_file: None,
        no_stdin: args.no_stdin,
        command: args.command.clone(),
    }
}

struct Candidate<'a> {
    common: &'a Common,
    args: &'a RunArgs,
    say: &'a Say,
    /// The mask before, which each term gets.
    before: SignalSet,
    signals: SignalFd,
    /// A signal asked for the end.
    ending: bool,
}

/// How a term ended.
struct Term {
    exit: Exit,
    /// `None` if its process was killed.
    how: Option<How>,
    lasted: Duration,
    /// This is the term's own process, which ends now.
    here: bool,
}

impl<'a> Candidate<'a> {
    fn new(common: &'a Common, args: &'a RunArgs, say: &'a Say) -> std::io::Result<Self> {
        let heard = ENDING.into_iter().chain(PASSED).filter(|s| !sys::is_ignored(*s));
        let heard = SignalSet::of(heard.chain([libc::SIGCHLD]));
        sys::default_action(libc::SIGCHLD);
        Ok(Self {
            common,
            args,
            say,
            before: heard.block()?,
            signals: SignalFd::new(&heard)?,
            ending: false,
        })
    }

    fn stand(mut self) -> std::io::Result<Exit> {
        let mut has_led = false;
        let mut pause = PAUSE.0;
        loop {
            let term = self.term()?;
            has_led |= matches!(term.how, Some(How::Lost | How::Ran));
            let again = match term.how {
                _ if term.here || self.ending => false,
                Some(How::Lost) => true,
                // Who has led once knows that the engine's URL is right.
                Some(How::NotRun) => has_led && term.exit == Exit::ENGINE,
                Some(How::Ran | How::Skipped) | None => false,
            };
            if !again {
                return Ok(term.exit);
            }
            self.say.event("standing_again", json!({}));
            if term.lasted > PAUSE.1 {
                pause = PAUSE.0;
            } else {
                self.rest(pause)?;
                pause = (pause * 2).min(PAUSE.1);
            }
            if self.ending {
                return Ok(term.exit);
            }
        }
    }

    /// One term, from standing to its end.
    fn term(&mut self) -> std::io::Result<Term> {
        let start = Instant::now();
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let elector = getpid();
        match sys::fork()? {
            Side::Child => {
                drop(reader);
                let Outcome { exit, how } = self.lead(elector)?;
                let _ = File::from(writer).write_all(&[how as u8]);
                Ok(Term {
                    exit,
                    how: Some(how),
                    lasted: start.elapsed(),
                    here: true,
                })
            }
            Side::Parent(pid) => {
                drop(writer);
                let status = self.wait_for(pid)?;
                Ok(Term {
                    exit: exit_of(status),
                    how: told(reader),
                    lasted: start.elapsed(),
                    here: false,
                })
            }
        }
    }

    /// In the term's own process.
    fn lead(&self, elector: Pid) -> std::io::Result<Outcome> {
        // Nobody would stand again, or hear of the end.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(elector) {
            return Ok(Exit::signal(libc::SIGKILL).into());
        }
        self.before.set()?;
        Ok(run::outcome(self.common, self.args, false))
    }

    /// Passes signals on until the process ends.
    fn wait_for(&mut self, pid: Pid) -> std::io::Result<WaitStatus> {
        loop {
            if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG)? {
                return Ok(status);
            }
            self.hear(Some(pid), None)?;
        }
    }

    /// Waits, but not for one who is asked to end.
    fn rest(&mut self, time: Duration) -> std::io::Result<()> {
        let until = Instant::now() + time;
        while !self.ending && Instant::now() < until {
            self.hear(None, Some(until.saturating_duration_since(Instant::now())))?;
        }
        Ok(())
    }

    /// Waits for a signal, at most so long, and handles those that have arrived.
    fn hear(&mut self, term: Option<Pid>, limit: Option<Duration>) -> std::io::Result<()> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut input = [PollFd::new(&self.signals, PollFlags::IN)];
        match poll(&mut input, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        while let Some(arrived) = self.signals.next()? {
            self.ending |= ENDING.contains(&arrived.signal);
            let passed = arrived.signal != libc::SIGCHLD && !arrived.by_kernel;
            if let (true, Some(term), Some(signal)) = (passed, term, Signal::from_named_raw(arrived.signal)) {
                let _ = kill_process(term, signal);
            }
        }
        Ok(())
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => Exit::signal(signal.unwrap_or(libc::SIGKILL)),
    }
}

fn told(reader: OwnedFd) -> Option<How> {
    let mut how = [0];
    File::from(reader).read_exact(&mut how).ok()?;
    How::ALL.into_iter().find(|known| *known as u8 == how[0])
}
