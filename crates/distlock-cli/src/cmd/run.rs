//! `distlock run` and `distlock try`: a command under a lock.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use distlock_core::driver::LostReason;
use distlock_core::{OnCrash, Release};
use serde_json::json;

use crate::args::{Common, RunArgs};
use crate::engine::GOODBYE;
use crate::exit::Exit;
use crate::guardian::{Family, Guardian, Plan};
use crate::held::Held;
use crate::obtain::obtain;
use crate::program;
use crate::runtime;
use crate::say::Say;
use crate::settings::{Session, Want};
use crate::signals::Blocked;
use crate::supervise::{Ended, Supervisor};
use crate::textfile::{self, RunEnd};
use crate::values::{OnLost, Wait};

/// The most that a command gets to end after TERM, unless the user says otherwise.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Runs it. To be called while the process has one thread.
pub(crate) fn run(common: &Common, args: &RunArgs, only_try: bool) -> Exit {
    outcome(common, args, only_try).exit
}

/// How a run ended, beyond its exit code, which may be the command's own.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    pub(crate) how: How,
}

/// What became of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    NotRun,
    /// Somebody else was at it, or it was done already.
    Skipped,
    Ran,
    /// It was stopped, or not started, because the lock was lost.
    Lost,
}

impl How {
    pub(crate) const ALL: [Self; 4] = [Self::NotRun, Self::Skipped, Self::Ran, Self::Lost];
}

impl From<Exit> for Outcome {
    fn from(exit: Exit) -> Self {
        Self {
            exit,
            how: How::NotRun,
        }
    }
}

/// As [`run`], with what became of the command.
pub(crate) fn outcome(common: &Common, args: &RunArgs, only_try: bool) -> Outcome {
    match prepare(common, args, only_try) {
        Ok(run) => run.go(),
        Err(exit) => exit.into(),
    }
}

/// All that can be known before anything is contacted.
struct Run {
    session: Session,
    want: Want,
    kill_after: Option<Duration>,
    metrics_file: Option<PathBuf>,
    start: Start,
}

/// What is ready to start the command.
struct Start {
    blocked: Blocked,
    guardian: Guardian,
    family: Family,
    program: std::ffi::OsString,
}

fn prepare(common: &Common, args: &RunArgs, only_try: bool) -> Result<Run, Exit> {
    let session = Session::open(common, args.lock.status_fd)?;
    let say = &session.say;
    let program = args.command.first().cloned().unwrap_or_default();
    let label = Path::new(&program)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let mut want = Want::new(&args.lock, &session, label)?;
    if only_try {
        if args.lock.wait.is_some_and(|wait| wait != Wait::Try) {
            let hint = Some("to wait, use: distlock run --wait …");
            return Err(say.error(Exit::USAGE, "try does not wait, but --wait was given", hint));
        }
        want.wait = Wait::Try;
    }
    let kill_after = args.kill_after.or(session.config.kill_after.map(|t| t.0));
    if let (Some(window), Some(on_crash)) = (args.once_per, args.on_crash) {
        if on_crash == OnCrash::Skip {
            // The lease is the window; only a TTL that was asked for here contradicts that.
            want.ttl = args.lock.ttl;
        }
        want = want.once_per(window, on_crash, say)?;
    }
    check_kill_after(kill_after, &want, say)?;
    program::check(&program).map_err(|e| {
        let hint = e.hint(&program);
        say.error(e.exit(), e, hint.as_deref())
    })?;

    let trouble = |e: std::io::Error| say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None);
    let family = Family::from_now();
    let blocked = Blocked::now().map_err(trouble)?;
    // What the guardian leaves behind if it is killed comes to this process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(|e| trouble(e.into()))?;
    let guardian = Guardian::fork(Plan {
        command: args.command.clone(),
        no_stdin: args.no_stdin,
        max_hold: args.max_hold.or(session.config.max_hold.map(|t| t.0)),
        on_lost: args.on_lost.or(session.config.on_lost).unwrap_or(OnLost::Kill),
        patience: args.kill_after,
        wrapper_group: rustix::process::getpgrp(),
        mask: blocked.before,
    })
    .map_err(trouble)?;
    Ok(Run {
        session,
        want,
        kill_after,
        metrics_file: args.metrics_file.clone(),
        start: Start {
            blocked,
            guardian,
            family,
            program,
        },
    })
}

/// With more than half of the lease for the time after TERM, an ordinary renewal would come too late.
fn check_kill_after(kill_after: Option<Duration>, want: &Want, say: &Say) -> Result<(), Exit> {
    if let (Some(kill_after), Some(ttl)) = (kill_after, want.ttl)
        && kill_after > ttl / 2
    {
        let text = format!(
            "--kill-after is {}; with --ttl {} it can be at most half of that",
            humantime::format_duration(kill_after),
            humantime::format_duration(ttl),
        );
        return Err(say.error(
            Exit::USAGE,
            text,
            Some("make --ttl longer, or --kill-after shorter"),
        ));
    }
    Ok(())
}

impl Run {
    fn go(self) -> Outcome {
        let runtime = match runtime::current_thread() {
            Ok(runtime) => runtime,
            Err(e) => {
                let say = &self.session.say;
                return say
                    .error(Exit::ENGINE, format_args!("cannot start: {e}"), None)
                    .into();
            }
        };
        runtime.block_on(self.main())
    }

    async fn main(self) -> Outcome {
        let Self {
            session,
            want,
            kill_after,
            metrics_file,
            start,
        } = self;
        let started = Instant::now();
        let mut granted = None;
        let outcome = start.run(&session, &want, kill_after, &mut granted).await;
        if let Some(path) = metrics_file {
            let end = RunEnd {
                exit: outcome.exit,
                how: outcome.how,
                waited: granted.unwrap_or_else(Instant::now).duration_since(started),
                held: granted.map_or(Duration::ZERO, |at| at.elapsed()),
            };
            let key = want.names_json().join(",");
            if let Err(e) = textfile::record(&path, &key, &end) {
                let text = format_args!("warning: the run is not counted in {}: {e}", path.display());
                session.say.note(text);
            }
        }
        outcome
    }
}

impl Start {
    /// Obtains the lock and runs the command; notes when the lock was granted.
    async fn run(
        self,
        session: &Session,
        want: &Want,
        kill_after: Option<Duration>,
        granted: &mut Option<Instant>,
    ) -> Outcome {
        let Self {
            blocked,
            guardian,
            family,
            program,
        } = self;
        let say = &session.say;
        let trouble = |e: std::io::Error| say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None);
        let (signals, guardian) = match (blocked.listen(), guardian.watch()) {
            (Ok(signals), Ok(guardian)) => (signals, guardian),
            (Err(e), _) | (_, Err(e)) => return trouble(e).into(),
        };
        let locks = tokio::select! {
            biased;
            signal = signals.ending() => return Exit::signal(signal).into(),
            locks = session.engine.connect(want.label.as_deref()) => match locks {
                Ok(locks) => locks,
                Err(e) => return say.failure(&e, Exit::of_connect(&e)).into(),
            },
        };
        let url = session.engine.public_url(&locks);
        let mut held = match obtain(&locks, &url, want, say, &signals).await {
            Ok(held) => held,
            Err(exit) => {
                locks.shutdown(GOODBYE).await;
                let how = if want.skips(exit) {
                    How::Skipped
                } else {
                    How::NotRun
                };
                return Outcome { exit, how };
            }
        };
        *granted = Some(Instant::now());
        let supervisor = Supervisor {
            guardian: &guardian,
            signals: &signals,
            family: &family,
            say,
            url: &url,
            mode: want.mode_words(),
            kill_after: kill_after.unwrap_or_else(|| KILL_AFTER.min(held.valid_for() / 4)),
            liveness: locks.driver().liveness(),
            program: &program,
        };
        let ended = supervisor.run(&mut held).await;
        if let Some((window, _)) = want.once
            && ended.exit == Exit::OK
            && let Err(e) = held.keep_for(window)
        {
            say.note(format_args!("warning: the run is not remembered: {e}"));
        }
        let how = if ended.by_loss { How::Lost } else { How::Ran };
        let exit = finish(ended, held, say).await;
        locks.shutdown(GOODBYE).await;
        Outcome { exit, how }
    }
}

/// Gives the lock back and says what has to be said.
async fn finish(ended: Ended, held: Held, say: &Say) -> Exit {
    let Ended { exit, lost, .. } = ended;
    if let Some(lost) = lost {
        // Stays on record as lost; what is left of it is removed.
        let _ = held.release().await;
        say.event("released", json!({ "exit": exit.number(), "lost": lost.word() }));
        return exit;
    }
    match held.release().await {
        Ok(Release::Clean) => say.event("released", json!({ "exit": exit.number() })),
        Ok(Release::Unsure) => {
            say.event("released", json!({ "exit": exit.number(), "unsure": true }));
            say.note("the release was answered only when repeated; whether the lock was held to the end is not known");
        }
        Ok(Release::Lost(reason)) => {
            say.event(
                "released",
                json!({ "exit": exit.number(), "lost": reason.word() }),
            );
            let still = if matches!(reason, LostReason::Expired) {
                "ran out"
            } else {
                "was gone"
            };
            say.note(format_args!(
                "warning: the command has ended, but the lock {still} before it was released: {reason}"
            ));
        }
        Err(e) => {
            say.event(
                "release_failed",
                json!({ "exit": exit.number(), "kind": e.kind().word(), "message": e.to_string() }),
            );
            say.note(format_args!(
                "warning: the lock could not be released and will end by its lease: {e}"
            ));
        }
    }
    exit
}
