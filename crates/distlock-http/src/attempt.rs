//! One request for a lock, on its way: on the engine thread, whatever its caller does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use distlock_core::FencingToken;
use distlock_core::clock::Moment;
use distlock_core::driver::{DriverError, Grant, Holder, Line as Queue, Mode, Order, Reached, Want};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::driver::Shared;
use crate::failure::of_problem;
use crate::gateway::{Answer, part, read};
use crate::wire::{AcquireBody, LeaseView, Line, Problem, time};

/// The longest line of a stream.
const LINE: usize = 1 << 20;
/// For how long a request waits: its caller leaves when it has had enough.
const FOREVER: &str = "365days";
/// A stream that is silent for this long, three beats, has lost its gateway.
const SILENCE: Duration = Duration::from_secs(35);

/// Where a request stands.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Nothing was answered yet.
    Asking,
    /// It waits there.
    Waiting {
        holder: Option<Holder>,
        ahead: Option<u32>,
    },
    /// It did not wait, and somebody else holds the lock.
    Busy(Option<Holder>),
    /// It holds.
    Held { grant: Grant, handle: String },
    /// It is over; taken out by whoever is told.
    Failed(Option<DriverError>),
}

/// A request. Dropped, it is cut off: the gateway leaves the line.
#[derive(Debug)]
pub(crate) struct Attempt {
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    progress: Mutex<Progress>,
    changed: Notify,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Attempt {
    pub(crate) fn start(shared: &Arc<Shared>, want: &Arc<Want>, name: &str) -> Self {
        let state = Arc::new(State {
            progress: Mutex::new(Progress::Asking),
            changed: Notify::new(),
        });
        let asking = Asking {
            shared: shared.clone(),
            want: want.clone(),
            name: name.to_owned(),
            state: state.clone(),
        };
        Self {
            state,
            task: shared.engine.spawn(asking.run()),
        }
    }

    /// Where it stands, once it stands somewhere.
    pub(crate) async fn progress(&self) -> MutexGuard<'_, Progress> {
        while matches!(*self.state.lock(), Progress::Asking) {
            if self.task.is_finished() {
                *self.state.lock() = Progress::Failed(Some(DriverError::closed()));
                break;
            }
            tokio::select! {
                () = self.state.changed.notified() => {}
                // The engine thread may have ended under it.
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
        }
        self.state.lock()
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Asking {
    shared: Arc<Shared>,
    want: Arc<Want>,
    name: String,
    state: Arc<State>,
}

/// The path of a lock.
pub(crate) fn path(want: &Want, verb: &str) -> String {
    format!("/v1/locks/{}/{verb}", part(want.key.as_str()))
}

impl Asking {
    async fn run(self) {
        let closed = self.shared.closing.clone();
        let asked = tokio::select! {
            asked = self.ask() => asked,
            () = closed.cancelled() => Err(DriverError::closed()),
        };
        if let Err(e) = asked {
            self.stands(Progress::Failed(Some(e)));
        }
    }

    fn stands(&self, progress: Progress) {
        let first = matches!(
            std::mem::replace(&mut *self.state.lock(), progress),
            Progress::Asking
        );
        self.state.changed.notify_one();
        if !first {
            self.want.bell.ring();
        }
    }

    async fn ask(&self) -> Result<(), DriverError> {
        let want = &self.want;
        let (mode, permits) = match want.mode {
            Mode::Mutex => ("mutex", None),
            Mode::Read => ("read", None),
            Mode::Write => ("write", None),
            Mode::Slot { of } => ("semaphore", Some(of)),
        };
        let joins = want.line == Queue::Join;
        let body = AcquireBody {
            ttl: time(want.ttl),
            wait: if joins { FOREVER } else { "0s" },
            mode,
            permits,
            order: match want.order {
                Order::Any => "any",
                Order::Fifo => "fifo",
            },
            label: want.label.as_deref(),
            reason: want.reason.as_deref(),
        };
        let answer = self
            .shared
            .gateway
            .acquire(&path(want, "acquire"), &self.name, &body, joins)
            .await?;
        let status = answer.body.status();
        let streams = answer
            .body
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-ndjson"));
        if status == StatusCode::OK && streams {
            return self.follow(answer).await;
        }
        if status == StatusCode::CONFLICT {
            let (problem, _) = read::<Problem>(Answer {
                body: {
                    let mut body = answer.body;
                    *body.status_mut() = StatusCode::OK;
                    body
                },
                sent: answer.sent,
            })
            .await?;
            return self.refused(status, problem);
        }
        let (lease, sent) = read::<LeaseView>(answer).await?;
        self.held(lease, sent);
        Ok(())
    }

    /// The lock is busy, or in use as something else.
    fn refused(&self, status: StatusCode, problem: Problem) -> Result<(), DriverError> {
        if !matches!(problem.kind.as_str(), "busy" | "timeout") {
            return Err(of_problem(status.as_u16(), problem));
        }
        self.stands(Progress::Busy(problem.holder.map(Into::into)));
        Ok(())
    }

    fn held(&self, lease: LeaseView, sent: Moment) {
        let valid_until = until(&lease, sent);
        let grant = Grant {
            token: lease.token.map(FencingToken::new),
            valid_until,
            mark: crate::renew::mark(&lease.handle),
        };
        self.stands(Progress::Held {
            grant,
            handle: lease.handle,
        });
    }

    /// Reads the lines of a request that waits.
    async fn follow(&self, answer: Answer) -> Result<(), DriverError> {
        let sent = answer.sent;
        let mut body = answer.body.into_body();
        let mut text = BytesMut::new();
        let cut = |why: String| DriverError::unavailable(Reached::Maybe, why);
        loop {
            let frame = match tokio::time::timeout(SILENCE, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(e))) => return Err(cut(format!("the gateway was lost while waiting: {e}"))),
                Ok(None) => return Err(cut("the gateway ended the wait".into())),
                Err(_) => return Err(cut(format!("nothing was heard of the gateway for {SILENCE:?}"))),
            };
            if let Some(data) = frame.data_ref() {
                text.extend_from_slice(data);
            }
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line = text.split_to(end + 1);
                let line = serde_json::from_slice(&line)
                    .map_err(|e| cut(format!("the gateway said what is not understood: {e}")))?;
                match line {
                    Line::Waiting { holder, ahead } => self.waits(holder.map(Into::into), ahead),
                    Line::Lease(lease) => {
                        self.held(lease, sent);
                        return Ok(());
                    }
                    Line::Problem(problem) if matches!(problem.kind.as_str(), "busy" | "timeout") => {
                        return Err(cut("the gateway ended the wait".into()));
                    }
                    Line::Problem(problem) => {
                        return Err(of_problem(StatusCode::CONFLICT.as_u16(), *problem));
                    }
                }
            }
            if text.len() > LINE {
                return Err(cut("the gateway said too much".into()));
            }
        }
    }

    fn waits(&self, holder: Option<Holder>, ahead: Option<u32>) {
        let mut progress = self.state.lock();
        match &mut *progress {
            // News for people; it is nobody's turn.
            Progress::Waiting { holder: h, ahead: a } => (*h, *a) = (holder, ahead),
            _ => {
                drop(progress);
                self.stands(Progress::Waiting { holder, ahead });
            }
        }
    }
}

/// Until when a lease is held: it was granted at least so long after the request was sent as the gateway kept it.
pub(crate) fn until(lease: &LeaseView, sent: Moment) -> Moment {
    sent + Duration::from_millis(lease.answered_after_ms) + Duration::from_millis(lease.valid_for_ms)
}
