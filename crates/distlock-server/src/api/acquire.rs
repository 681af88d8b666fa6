//! Taking locks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use distlock_core::clock::{Clock, Moment};
use distlock_core::driver::Order;
use distlock_core::{ErrorKind, Key, Waiting};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::access::Right;
use crate::api::ask::{Ask, IDEMPOTENCY_KEY, Named};
use crate::api::openapi::Problems;
use crate::api::renew::renew;
use crate::api::types::{
    AcquireAllBody, AcquireBody, Granted, HolderView, LeaseView, LeasesView, Time, bad, mode,
};
use crate::attempts::Joined;
use crate::problem::Problem;
use crate::take::Wanted;
use crate::tenants::Tenant;

/// The longest wait of an ordinary request: proxies cut longer ones.
const LONG_POLL: Duration = Duration::from_secs(60);
/// The longest wait of a stream.
const STREAM: Duration = distlock_core::driver::MAX_TTL;
/// How often a stream that waits says so, so that neither side waits for one that is gone.
const BEAT: Duration = Duration::from_secs(10);
const NDJSON: &str = "application/x-ndjson";
/// How many locks may be taken together.
const TOGETHER: usize = 64;

type Answer = Result<Vec<Granted>, Problem>;

/// A request on its way to an answer. Dropped, it leaves the line.
struct Taking {
    answer: BoxFuture<'static, Answer>,
    told: watch::Receiver<Option<Waiting>>,
}

/// What is needed to tell an answer.
struct Telling {
    received: Moment,
    clock: Clock,
    /// Whether one lock was asked for, not a set.
    single: bool,
}

impl Telling {
    fn leases(&self, granted: &[Granted]) -> Vec<LeaseView> {
        let now = self.clock.now();
        granted.iter().map(|g| g.view(self.received, now)).collect()
    }

    fn json(&self, granted: &[Granted]) -> Value {
        let mut leases = self.leases(granted);
        if self.single && leases.len() == 1 {
            return json!(leases.pop());
        }
        json!(LeasesView { leases })
    }
}

/// Take a lock.
///
/// With `Accept: application/x-ndjson` the answer of a request that has to wait is a stream of lines:
/// `{"waiting": {"holder": …, "ahead": …}}` as often as there is news, at last `{"lease": …}` or `{"problem": …}`.
/// A client that closes the connection leaves the line at once.
#[utoipa::path(post, path = "/v1/locks/{key}/acquire", operation_id = "acquire", tag = "leases",
    params(
        ("key" = String, Path, description = "The lock's name, percent-encoded: 1 to 512 bytes of UTF-8", example = "order:42"),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible characters: a repeated request with it gets the same lease, at this gateway"),
        ("Distlock-Client" = Option<String>, Header, description = "The caller's own identity, a random UUID that it keeps to itself: the first part of the owner. Default: a new one for each lease"),
    ),
    request_body(content = AcquireBody, description = "Everything has a default; it may be empty"),
    responses((status = 200, description = "The lock is held", body = LeaseView), Problems))]
pub(crate) async fn acquire(ask: Ask, Named(key): Named, body: Body) -> Result<Response, Problem> {
    let tenant = ask.tenant(Right::Acquire).await?;
    let asked: AcquireBody = ask.body(body).await?;
    let request = fingerprint(&(key.as_str(), format!("{asked:?}")));
    let wanted = Wanted {
        locks: vec![(key, mode(asked.mode, asked.permits)?)],
        ttl: asked.ttl.map(|Time(ttl)| ttl),
        wait: asked.wait.map_or(Duration::ZERO, |Time(wait)| wait),
        order: asked.order.into(),
        label: asked.label,
        reason: asked.reason,
        client: ask.client.unwrap_or_else(Uuid::new_v4),
    };
    take(&ask, tenant, wanted, request, true).await
}

/// Take several locks, all or none.
///
/// They are taken in one order for everybody, so that callers who list them differently do not block each other.
/// Renew and release each lease by itself.
#[utoipa::path(post, path = "/v1/acquire", operation_id = "acquire_all", tag = "leases",
    params(
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
        ("Idempotency-Key" = Option<String>, Header, description = "As for one lock"),
    ),
    request_body = AcquireAllBody,
    responses((status = 200, description = "All are held", body = LeasesView), Problems))]
pub(crate) async fn acquire_all(ask: Ask, body: Body) -> Result<Response, Problem> {
    let tenant = ask.tenant(Right::Acquire).await?;
    let asked: AcquireAllBody = ask.body(body).await?;
    let request = fingerprint(&format!("{asked:?}"));
    if asked.locks.is_empty() || asked.locks.len() > TOGETHER {
        let why = format!(
            "{} locks are named; 1 to {TOGETHER} can be taken together",
            asked.locks.len()
        );
        return Err(bad(why).into());
    }
    let locks = asked.locks.iter().map(|part| {
        let key = Key::new(&part.key)?;
        Ok((key, mode(part.mode, part.permits)?))
    });
    let wanted = Wanted {
        locks: locks.collect::<Result<_, Problem>>()?,
        ttl: asked.ttl.map(|Time(ttl)| ttl),
        wait: asked.wait.map_or(Duration::ZERO, |Time(wait)| wait),
        order: Order::Any,
        label: asked.label,
        reason: asked.reason,
        client: ask.client.unwrap_or_else(Uuid::new_v4),
    };
    take(&ask, tenant, wanted, request, false).await
}

fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

async fn take(
    ask: &Ask,
    tenant: Arc<Tenant>,
    wanted: Wanted,
    request: u64,
    single: bool,
) -> Result<Response, Problem> {
    let clock = tenant.client.clock().clone();
    let telling = Telling {
        received: clock.now(),
        clock,
        single,
    };
    let accept = ask.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let streams = accept.is_some_and(|accept| accept.contains(NDJSON));
    let longest = if streams { STREAM } else { LONG_POLL };
    if wanted.wait > longest {
        let why = format!(
            "wait {:?} is not in 0s to {longest:?}{}",
            wanted.wait,
            if streams {
                ""
            } else {
                "; with Accept: application/x-ndjson it may be longer"
            }
        );
        return Err(bad(why).into());
    }
    let mut taking = match idempotency_key(ask)? {
        None => start(ask, &tenant, wanted)?,
        Some(key) => match join(ask, &tenant, wanted, request, key)? {
            Ok(taking) => taking,
            Err(granted) => {
                let leases = granted.into_iter().map(|g| (g.handle, Some(g.ttl))).collect();
                // Boxed, as is all that is rare: every request that waits has room for what it awaits.
                let renewed = Box::pin(renew(ask, &tenant, leases)).await;
                let renewed: Answer = renewed.into_iter().collect();
                return Ok(Json(telling.json(&renewed?)).into_response());
            }
        },
    };
    if !streams {
        return Ok(Json(telling.json(&taking.answer.await?)).into_response());
    }
    tokio::select! {
        biased;
        answer = &mut taking.answer => return Ok(Json(telling.json(&answer?)).into_response()),
        // The seat is given up a moment before the answer comes.
        Ok(_) = taking.told.wait_for(Option::is_some) => {}
    }
    taking.told.mark_changed();
    let lines = stream::unfold(Some((taking, telling)), |state| async move {
        let (taking, telling) = state?;
        let (line, state) = next_line(taking, telling).await;
        let mut line = line.to_string();
        line.push('\n');
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(line)), state))
    });
    Ok(([(CONTENT_TYPE, NDJSON)], Body::from_stream(lines.boxed())).into_response())
}

/// The next line of a stream, and what is left of it.
async fn next_line(mut taking: Taking, telling: Telling) -> (Value, Option<(Taking, Telling)>) {
    tokio::select! {
        biased;
        answer = &mut taking.answer => {
            let line = match answer {
                Ok(granted) if telling.single => json!({"lease": telling.json(&granted)}),
                Ok(granted) => telling.json(&granted),
                Err(problem) => json!({"problem": problem.body}),
            };
            return (line, None);
        }
        Ok(()) = taking.told.changed() => {}
        () = tokio::time::sleep(BEAT) => {}
    }
    let line = {
        let told = taking.told.borrow_and_update();
        let holder = told
            .as_ref()
            .and_then(|w| w.holder.as_ref())
            .map(|h| HolderView::new(h, None));
        json!({"waiting": {"holder": holder, "ahead": told.as_ref().and_then(|w| w.ahead)}})
    };
    (line, Some((taking, telling)))
}

fn idempotency_key(ask: &Ask) -> Result<Option<String>, Problem> {
    let Some(value) = ask.headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let key = value.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > 255 {
        return Err(bad("Idempotency-Key has 1 to 255 visible ASCII characters").into());
    }
    Ok(Some(key.to_owned()))
}

/// Takes a seat and goes to the engine.
fn start(ask: &Ask, tenant: &Arc<Tenant>, wanted: Wanted) -> Result<Taking, Problem> {
    let gateway = ask.gateway.clone();
    let counted = match wanted.wait {
        Duration::ZERO => None,
        _ => Some(gateway.limiter.waiter(&ask.caller.client)?),
    };
    let seated = gateway.seats.sit(
        tenant.namespace(),
        wanted.locks.clone(),
        wanted.label.clone(),
        wanted.reason.clone(),
    );
    let told = seated.seat.listen();
    let tenant = tenant.clone();
    let answer = async move {
        let began = Instant::now();
        let patience = gateway.limiter.limits.answer;
        let taken = tokio::select! {
            taken = wanted.take(&tenant, &seated.seat, &gateway.bound, patience) => taken,
            () = gateway.closing.cancelled() => return Err(Problem::closing()),
        };
        let took = began.elapsed();
        let waited = seated.seat.listen().borrow().is_some();
        let busy = matches!(&taken, Err(e) if e.kind() == ErrorKind::Busy);
        let namespace = tenant.namespace();
        if waited || busy {
            for (key, _) in &wanted.locks {
                gateway.chronicle.contended(namespace, key.as_str(), took);
            }
        }
        let granted = taken?;
        gateway
            .chronicle
            .granted(namespace, &granted, wanted.label.as_ref(), took);
        drop((counted, seated));
        Ok(granted)
    };
    Ok(Taking {
        answer: Box::pin(answer),
        told,
    })
}

/// Starts the request of this name, or joins it; what it was granted if that is long ago.
fn join(
    ask: &Ask,
    tenant: &Arc<Tenant>,
    wanted: Wanted,
    request: u64,
    key: String,
) -> Result<Result<Taking, Vec<Granted>>, Problem> {
    let name = (tenant.namespace().to_owned(), ask.caller.who.name.clone(), key);
    let joined = ask.gateway.attempts.join(&name, request, || {
        let taking = start(ask, tenant, wanted)?;
        Ok((taking.told, taking.answer))
    })?;
    Ok(match joined {
        Joined::Granted(leases) => Err(leases),
        Joined::Running(listener) => Ok(Taking {
            told: listener.told(),
            answer: Box::pin(listener.answer()),
        }),
    })
}
