//! One contender on Redis.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::FencingToken;
use distlock_core::clock::Moment;
use distlock_core::driver::{
    Claim, DriverError, Grant, Line, Mode, Reached, Refusal, Released, Standing, Want,
};
use redis::Value;

use crate::dial::Link;
use crate::driver::Shared;
use crate::fault::Fault;
use crate::hub::{Armed, Watched};
use crate::record::{self, Record};
use crate::replicas::MinReplicas;
use crate::seen::is_owner;
use crate::shape::{Call, Form, Shape, millis};

/// The longest time for which a waiter relies on being told.
const LONGEST: Duration = Duration::from_secs(5);
/// The same, when nobody tells it: between these, at random.
const DEAF: std::ops::Range<f64> = 0.1..0.3;

#[derive(Debug)]
pub(crate) struct RedisClaim {
    pub(crate) shared: Arc<Shared>,
    want: Arc<Want>,
    shape: Arc<Shape>,
    about: String,
    over: bool,
    armed: Option<Armed>,
    watched: Option<Watched>,
    /// The connection on which an acquisition went out that was not answered; a release goes there first, for there
    /// it cannot arrive before it.
    pub(crate) owed: Option<Link>,
    /// How long the server has had its data, if it was asked.
    age: Option<Duration>,
    /// Its clock then, in µs.
    time: Option<u64>,
    proposed: Option<FencingToken>,
}

/// What a look found.
enum Look {
    Held(Grant),
    Waiting(Standing),
    /// Free, but somebody is in line.
    Line,
}

impl RedisClaim {
    pub(crate) fn new(shared: Arc<Shared>, want: Arc<Want>, shape: Shape) -> Self {
        let about = record::tail(&want);
        Self {
            shared,
            want,
            shape: Arc::new(shape),
            about,
            over: false,
            armed: None,
            watched: None,
            owed: None,
            age: None,
            time: None,
            proposed: None,
        }
    }

    async fn look(&mut self) -> Result<Look, DriverError> {
        let join = self.want.line == Line::Join;
        let call = self
            .shape
            .acquire(self.want.ttl, &self.about, join, self.proposed);
        // WAIT keeps a connection busy, and counts what was written on it.
        let lent = match self.shared.config.min_replicas {
            MinReplicas::Count(0) => None,
            _ => Some(Box::pin(self.shared.links.lend()).await?),
        };
        let link = match &lent {
            Some(lent) => lent.link.clone(),
            None => self.shared.links.get().await?,
        };
        let sent = self.shared.clock().now();
        let link = self.owed.insert(link);
        let answer = self.shared.run(link, &call).await;
        let link = match &answer {
            Err(fault) if fault.error.reached == Reached::Maybe => None,
            _ => self.owed.take(),
        };
        let mut answer = answer.map_err(|fault| fault.error)?;
        if self.shared.config.aged {
            let words = match answer {
                Value::Array(words) => words,
                other => return Err(strange(&other)),
            };
            self.age = number(&words, 1).map(|ms| Duration::from_millis(ms.unsigned_abs()));
            self.time = number(&words, 2).map(i64::unsigned_abs);
            answer = words.into_iter().next().unwrap_or(Value::Nil);
        }
        let look = self.read(answer, sent)?;
        if let (Some(lent), Some(link)) = (lent, link) {
            if matches!(look, Look::Held(_)) {
                Box::pin(self.replicated(&link)).await?;
            }
            lent.give_back();
        }
        Ok(look)
    }

    fn read(&self, answer: Value, sent: Moment) -> Result<Look, DriverError> {
        let words = match answer {
            Value::Int(number) => {
                let token = self
                    .want
                    .mode
                    .is_exclusive()
                    .then(|| FencingToken::new(number.unsigned_abs()));
                return Ok(Look::Held(Grant {
                    token,
                    valid_until: sent + Duration::from_millis(millis(self.want.ttl)),
                    mark: 0,
                }));
            }
            Value::Array(words) => words,
            other => return Err(strange(&other)),
        };
        match text(&words, 0).as_str() {
            "line" => Ok(Look::Line),
            "kind" => Err(self.mismatch(text(&words, 1))),
            "wait" => {
                let stored = text(&words, 2);
                if self.is_foreign(&stored) {
                    return Err(self.mismatch("a hash that is no lock".to_owned()));
                }
                let left = number(&words, 1);
                let recheck = number(&words, 5)
                    .and_then(|ms| u64::try_from(ms).ok())
                    .map(Duration::from_millis);
                let record = Record::parse(&text(&words, 3));
                // Those who share the plain format with us do not say when they release.
                let tells =
                    self.shape.form != Form::String || record.as_ref().is_some_and(|r| r.is_of(&stored));
                let holder = (!stored.is_empty()).then(|| {
                    let mode = match self.want.mode {
                        Mode::Read => Mode::Write,
                        Mode::Write if !stored.ends_with(":write") => Mode::Read,
                        mode => mode,
                    };
                    let mut holder = record::holder(self.shared.client(), &stored, mode, record.as_ref());
                    holder.expires_in = left
                        .and_then(|ms| u64::try_from(ms).ok())
                        .map(Duration::from_millis);
                    holder
                });
                Ok(Look::Waiting(Standing::Waiting {
                    recheck: self.recheck(left, tells).min(recheck.unwrap_or(LONGEST)),
                    holder,
                    ahead: number(&words, 4).and_then(|n| u32::try_from(n).ok()),
                }))
            }
            _ => Err(strange(&Value::Array(words))),
        }
    }

    /// When the holder's record ends, at the latest; more often if its release is not told or not heard.
    fn recheck(&self, left: Option<i64>, tells: bool) -> Duration {
        let most = match &self.armed {
            Some(armed) if tells && armed.is_live() => LONGEST,
            _ => Duration::from_secs_f64(rand::random_range(DEAF)),
        };
        match left.and_then(|ms| u64::try_from(ms).ok()) {
            Some(ms) => most.min(Duration::from_millis(ms.saturating_add(1))),
            None => most,
        }
    }

    /// Whether a hash with this field is somebody's data.
    fn is_foreign(&self, stored: &str) -> bool {
        self.shape.form != Form::String && !stored.is_empty() && !is_owner(stored)
    }

    fn mismatch(&self, have: String) -> DriverError {
        let have = match have.as_str() {
            "string" => "a string (another product's lock, a semaphore, or data)".to_owned(),
            "list" | "set" | "zset" | "stream" => format!("a Redis {have}, which is no lock"),
            _ => have,
        };
        DriverError::refused(Refusal::KindMismatch {
            have,
            want: self.want.mode.kind().to_string(),
        })
    }

    /// Where only a line of others is in the way, has its dead removed and looks once more.
    async fn past_the_dead(&mut self, look: Look) -> Result<Look, DriverError> {
        if !matches!(look, Look::Line) {
            return Ok(look);
        }
        let link = self.shared.links.get().await?;
        let left = self
            .shared
            .run(&link, &self.shape.prune())
            .await
            .map_err(|fault| fault.error)?;
        let words = match &left {
            Value::Array(words) => words.as_slice(),
            _ => &[],
        };
        let ahead = number(words, 0).and_then(|n| u32::try_from(n).ok());
        if ahead == Some(0) {
            return self.look().await;
        }
        // A head that is dead stands in the way until then.
        let over = number(words, 1)
            .and_then(|ms| u64::try_from(ms).ok())
            .map(Duration::from_millis);
        let recheck = self
            .recheck(None, true)
            .min(Duration::from_secs(2))
            .min(over.unwrap_or(LONGEST));
        Ok(Look::Waiting(Standing::Waiting {
            recheck,
            holder: None,
            ahead,
        }))
    }

    /// The lock was not to be had at the first look.
    async fn wait_for_it(&mut self, first: Look) -> Result<Standing, DriverError> {
        let look = self.past_the_dead(first).await?;
        if matches!(look, Look::Held(_)) || self.want.line == Line::Never {
            return Ok(self.settle(look));
        }
        if self.armed.is_none() {
            self.armed = Some(self.shared.hub.arm(self.shape.channel(), self.want.bell.clone()));
        } else if self.armed.as_ref().is_some_and(Armed::is_live) {
            return Ok(self.settle(look));
        }
        // Armed just now, or again after a lost connection: only a look after it counts.
        if let Some(armed) = &self.armed {
            self.shared
                .clock()
                .timeout(self.shared.links.patience(), armed.heard())
                .await;
        }
        let look = self.look().await?;
        let look = self.past_the_dead(look).await?;
        Ok(self.settle(look))
    }

    fn settle(&mut self, look: Look) -> Standing {
        match look {
            Look::Held(grant) => {
                self.over = true;
                self.armed = None;
                let (hub, shape) = (&self.shared.hub, &self.shape);
                self.watched =
                    Some(hub.watch(&shape.key, &shape.stored, shape.tracked(), self.want.bell.clone()));
                Standing::Held(grant)
            }
            Look::Waiting(standing) => standing,
            // The line went and came again meanwhile.
            Look::Line => Standing::Waiting {
                recheck: self.recheck(None, true).min(Duration::from_secs(2)),
                holder: None,
                ahead: None,
            },
        }
    }

    /// Leaves where the unanswered acquisition went, for there this cannot arrive before it.
    async fn chase(&mut self, owed: Link, keep: Option<Duration>) -> Result<Released, DriverError> {
        if !owed.has_ended() {
            match self.leave(&owed, keep).await {
                Ok(released) => return Ok(released),
                Err(fault) if fault.error.reached == Reached::No => return Err(fault.error),
                Err(_) => {}
            }
        }
        // That connection is closed, or its runtime is blocked; the engine thread's is not.
        if !owed.has_ended() {
            self.owed = Some(owed);
        }
        let link = self.shared.links.engine_side().await?;
        self.leave(&link, keep).await.map_err(|fault| fault.error)
    }

    pub(crate) async fn leave(&self, link: &Link, keep: Option<Duration>) -> Result<Released, Fault> {
        match self.shared.run(link, &self.shape.release(keep)).await {
            Ok(Value::Int(1)) => Ok(Released::Freed),
            Ok(_) => Ok(Released::NotHeld),
            // Something else is there now; it is not ours, and stays.
            Err(fault) if is_kind_mismatch(&fault) => Ok(Released::NotHeld),
            Err(fault) => Err(fault),
        }
    }
}

#[async_trait]
impl Claim for RedisClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if self.over || self.shared.closed.load(Ordering::Acquire) {
            return Err(DriverError::closed());
        }
        match self.look().await? {
            held @ Look::Held(_) => Ok(self.settle(held)),
            // In a future of its own: the usual one is small, and quickly had.
            other => Box::pin(self.wait_for_it(other)).await,
        }
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        self.over = true;
        self.armed = None;
        self.watched = None;
        if let Some(owed) = self.owed.take() {
            return Box::pin(self.chase(owed, keep)).await;
        }
        let link = self.shared.links.get().await?;
        self.leave(&link, keep).await.map_err(|fault| fault.error)
    }

    fn age(&self) -> Option<Duration> {
        self.age
    }

    fn time(&self) -> Option<u64> {
        self.time
    }

    fn propose(&mut self, token: FencingToken) {
        self.proposed = Some(token);
    }
}

/// Runs a call with the client's patience.
impl Shared {
    pub(crate) async fn run(&self, link: &Link, (script, cmd): &Call) -> Result<Value, Fault> {
        link.run(script, cmd, self.links.patience()).await
    }
}

fn is_kind_mismatch(fault: &Fault) -> bool {
    use distlock_core::driver::DriverErrorKind::Refused;
    matches!(fault.error.kind, Refused(Refusal::KindMismatch { .. }))
}

fn strange(answer: &Value) -> DriverError {
    DriverError::unavailable(
        Reached::Yes,
        format!("Redis gave an answer that is not understood: {answer:?}"),
    )
}

fn text(words: &[Value], at: usize) -> String {
    match words.get(at) {
        Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(Value::SimpleString(text)) => text.clone(),
        _ => String::new(),
    }
}

fn number(words: &[Value], at: usize) -> Option<i64> {
    match words.get(at) {
        Some(Value::Int(n)) => Some(*n),
        _ => None,
    }
}
