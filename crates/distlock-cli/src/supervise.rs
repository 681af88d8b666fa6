//! The wrapper while its command runs: between the lock, the guardian, the signals and nested runs.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use distlock_core::Key;
use distlock_core::driver::LostReason;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::sync::watch;

use crate::exit::Exit;
use crate::guardian::{self, End, Family, Order, Report, Start, Watched, Why};
use crate::held::Held;
use crate::program::CannotRun;
use crate::reenter::{self, Server, Shared};
use crate::say::Say;
use crate::signals::Signals;
use crate::stdio;
use crate::values::signal_name;

/// How long the guardian may be silent after a loss, beyond what the command was given.
const SLACK: Duration = Duration::from_millis(500);
/// A holder whose lock is broken with the usual grace of 5 s, and who is told within 1 s, is gone before the next.
const BROKEN_GRACE: Duration = Duration::from_secs(3);

/// What the wrapper needs while the command runs.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    pub(crate) guardian: &'a Watched,
    pub(crate) signals: &'a Signals,
    pub(crate) family: &'a Family,
    pub(crate) say: &'a Say,
    pub(crate) url: &'a str,
    pub(crate) mode: String,
    pub(crate) kill_after: Duration,
    pub(crate) liveness: Option<OwnedFd>,
    pub(crate) program: &'a OsStr,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// The lock was lost, and people were told.
    pub(crate) lost: Option<LostReason>,
    /// The command was stopped, or not started, because the lock was lost or about to be.
    pub(crate) by_loss: bool,
}

impl Supervisor<'_> {
    /// Starts the command and stays with it to its end.
    pub(crate) async fn run(mut self, held: &mut Held) -> Ended {
        let (state, watched) = watch::channel((held.deadline(), None));
        let server = match Server::open() {
            Ok(server) => Some(server),
            Err(e) => {
                self.say
                    .note(format_args!("warning: nested runs will not re-enter: {e}"));
                None
            }
        };
        let start = Start {
            deadline: held.deadline().as_nanos(),
            kill_after_ns: nanos(self.kill_after),
            env: self.environment(held, server.as_ref().map(Server::name)),
        };
        let liveness = self.liveness.take();
        if let Err(e) = self.guardian.start(start, liveness.as_ref().map(AsFd::as_fd)) {
            return self.not_run(
                Exit::ENGINE,
                format_args!("the guardian could not be told to start: {e}"),
            );
        }
        drop(liveness);
        let serving = server.map(|server| {
            tokio::spawn(
                server.serve(Shared {
                    engine: self.url.to_owned(),
                    mode: self.mode.clone(),
                    owner: held.owner(),
                    tokens: held
                        .tokens()
                        .into_iter()
                        .map(|(key, t)| (key.as_str().to_owned(), t))
                        .collect(),
                    parent: std::env::var(reenter::VARIABLE)
                        .ok()
                        .filter(|name| !name.is_empty()),
                    guardian: self.guardian.pid(),
                    state: watched,
                }),
            )
        });
        let ended = self.stay(held, &state).await;
        if let Some(serving) = serving {
            serving.abort();
        }
        ended
    }

    async fn stay(
        &self,
        held: &mut Held,
        state: &watch::Sender<(distlock_core::clock::Moment, Option<String>)>,
    ) -> Ended {
        let mut loss = Box::pin(held.lost());
        let mut lost: Option<(Key, LostReason)> = None;
        let mut overdue = None::<tokio::time::Instant>;
        loop {
            tokio::select! {
                biased;
                report = self.guardian.report() => match report {
                    Ok(Some(Report::Started { pid })) => {
                        self.say.event("started", json!({ "pid": pid }));
                        stdio::let_go(false);
                    }
                    Ok(Some(Report::Failed { errno })) => {
                        let cannot = CannotRun::from_errno(self.program, errno);
                        return self.not_run(cannot.exit(), cannot);
                    }
                    Ok(Some(Report::TooLate)) => {
                        return self.not_run(Exit::LOST, "the lock ran out before the command could be started");
                    }
                    Ok(Some(Report::Stopped { own_group })) => {
                        guardian::stop_own_group(own_group);
                        self.guardian.order(&Order::Continue);
                    }
                    Ok(Some(Report::Stopping(why))) => self.stopping(why),
                    Ok(Some(Report::Ended { end, why })) => return self.ended(end, why, lost),
                    Ok(None) | Err(_) => return self.guardian_died(),
                },
                arrived = self.signals.next() => match arrived.signal {
                    libc::SIGCONT => self.guardian.order(&Order::Continue),
                    signal => {
                        self.say.event("signal", json!({ "signal": signal_name(signal) }));
                        self.guardian.order(&Order::Signal { signal, by_terminal: arrived.by_kernel });
                    }
                },
                (key, reason) = &mut loss, if lost.is_none() => {
                    let grace = self.grace(&reason);
                    self.guardian.order(&Order::Lost { grace_ns: nanos(grace) });
                    state.send_modify(|state| state.1 = Some(reason.to_string()));
                    self.say.event("lost", json!({ "key": key.as_str(), "reason": reason.word() }));
                    self.say.note(format_args!("the lock {key:?} is lost: {reason}"));
                    overdue = Some(tokio::time::Instant::now() + grace + SLACK);
                    lost = Some((key, reason));
                },
                deadline = held.deadline_changed() => {
                    self.guardian.order(&Order::Deadline(deadline.as_nanos()));
                    state.send_modify(|state| state.0 = deadline);
                },
                () = passed(overdue) => {
                    // Somebody stopped the guardian: it has its orders, and its timer.
                    let _ = kill_process(self.guardian.pid(), Signal::CONT);
                    overdue = None;
                },
            }
        }
    }

    /// How long a command whose lock is lost may take to end.
    fn grace(&self, reason: &LostReason) -> Duration {
        match reason {
            // Still ours until the deadline, which the guardian minds.
            LostReason::Disconnected => self.kill_after,
            LostReason::Broken { .. } => self.kill_after.min(BROKEN_GRACE),
            // Somebody else may hold it already.
            _ => Duration::ZERO,
        }
    }

    fn stopping(&self, why: Why) {
        let (word, text) = match why {
            Why::Lost => (
                "lost",
                "the lock is about to be lost, or is lost; stopping the command",
            ),
            Why::MaxHold => ("max_hold", "--max-hold passed; stopping the command"),
            Why::Impatient => (
                "kill_after",
                "the command did not end within --kill-after of TERM; killing it",
            ),
        };
        self.say.event("stopping", json!({ "why": word }));
        self.say.note(text);
    }

    fn ended(&self, end: End, why: Option<Why>, lost: Option<(Key, LostReason)>) -> Ended {
        let exit = match (why, end) {
            (Some(Why::Lost), _) => Exit::LOST,
            (Some(Why::MaxHold), _) => Exit::MAX_HOLD,
            (_, End::Code(code)) => Exit::code(code),
            (_, End::Signal(signal)) => Exit::signal(signal),
        };
        let (code, signal) = match end {
            End::Code(code) => (Some(code), None),
            End::Signal(signal) => (None, Some(signal_name(signal))),
        };
        self.say.event(
            "ended",
            json!({ "code": code, "signal": signal, "exit": exit.number() }),
        );
        Ended {
            exit,
            lost: lost.map(|(_, reason)| reason),
            by_loss: why == Some(Why::Lost),
        }
    }

    /// Nothing was run.
    fn not_run(&self, exit: Exit, text: impl std::fmt::Display) -> Ended {
        Ended {
            exit: self.say.error(exit, text, None),
            lost: None,
            by_loss: exit == Exit::LOST,
        }
    }

    /// The kernel has killed the command with it; what the command had started has come to us.
    fn guardian_died(&self) -> Ended {
        self.family.kill(None);
        self.say.event("guardian_died", json!({}));
        let text = "the guardian process was killed, so the command was stopped";
        Ended {
            exit: self.say.error(Exit::signal(libc::SIGKILL), text, None),
            lost: None,
            by_loss: false,
        }
    }

    /// What the command gets to know.
    fn environment(&self, held: &Held, socket: Option<&str>) -> Vec<(String, Option<String>)> {
        let tokens = held.tokens();
        let keys: Vec<&str> = tokens.iter().map(|(key, _)| key.as_str()).collect();
        let numbers: Option<Vec<String>> = tokens
            .iter()
            .map(|(_, token)| token.map(|t| t.to_string()))
            .collect();
        vec![
            // Several are on lines of their own: a key has no control characters.
            ("DISTLOCK_KEY".into(), Some(keys.join("\n"))),
            ("DISTLOCK_TOKEN".into(), numbers.map(|numbers| numbers.join("\n"))),
            ("DISTLOCK_OWNER".into(), Some(held.owner())),
            ("DISTLOCK_ENGINE".into(), Some(self.url.to_owned())),
            (reenter::VARIABLE.into(), socket.map(str::to_owned)),
        ]
    }
}

async fn passed(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
