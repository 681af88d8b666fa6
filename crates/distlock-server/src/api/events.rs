//! What happens to locks, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use distlock_core::driver::{Holder, LockInfo};
use distlock_core::{Error, Lease};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::access::Right;
use crate::api::ask::{Ask, LEASE, Named};
use crate::api::openapi::Problems;
use crate::api::types::{HolderView, LockView};
use crate::gateway::Gateway;
use crate::limits::Counted;
use crate::overview::Look;
use crate::problem::Problem;
use crate::tenants::Tenant;

/// How often a silent stream says that it is alive.
const BEAT: Duration = Duration::from_secs(10);
/// How often locks are told although nobody came or went: leases were renewed.
const AGAIN: Duration = Duration::from_secs(3);
/// A lost reader's events pile up to this many, then the stream waits for it.
const AHEAD: usize = 16;

/// One event, as it is written.
fn event(name: &str, data: &Value) -> Bytes {
    // JSON has no line breaks, so an event cannot be forged by what it quotes.
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

fn answer(events: mpsc::Receiver<Bytes>) -> Response {
    let lines = stream::unfold(events, |mut events| async move {
        let bytes = tokio::select! {
            bytes = events.recv() => bytes?,
            () = tokio::time::sleep(BEAT) => Bytes::from_static(b": still here\n\n"),
        };
        Some((Ok::<_, Infallible>(bytes), events))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(lines)).into_response()
}

/// Follow a lock: who comes, who goes, and why.
///
/// Events: `state` (first, the whole lock), `granted`, `released`, `lost`, `broken`, `ended` (it is not known how),
/// `waiting` (the line). With the header `Distlock-Lease` only what concerns that lease is told, and the stream ends
/// with it.
#[utoipa::path(get, path = "/v1/locks/{key}/events", operation_id = "events", tag = "locks",
    params(
        ("key" = String, Path, description = "The lock's name, percent-encoded", example = "order:42"),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
        ("Distlock-Lease" = Option<String>, Header, description = "A handle of a lease of this key"),
    ),
    responses((status = 200, description = "Server-sent events, until the client leaves", body = String,
        content_type = "text/event-stream"), Problems))]
pub(crate) async fn of_key(ask: Ask, Named(key): Named) -> Result<Response, Problem> {
    let tenant = ask.tenant(Right::Read).await?;
    let lease = match ask.headers.get(LEASE).map(|value| value.to_str()) {
        None => None,
        Some(handle) => Some(handle.unwrap_or_default().parse::<Lease>()?),
    };
    let counted = ask.gateway.limiter.stream(&ask.caller.client)?;
    let states = tenant.client.watch(key)?;
    let (events, receiver) = mpsc::channel(AHEAD);
    let follow = Follow {
        gateway: ask.gateway.clone(),
        tenant,
        of: lease.map(|lease| lease.owner().to_string()),
        events,
        last: None,
        _counted: counted,
    };
    tokio::spawn(follow.run(states));
    Ok(answer(receiver))
}

/// Somebody who follows a lock.
struct Follow {
    gateway: Arc<Gateway>,
    tenant: Arc<Tenant>,
    /// Only of this owner.
    of: Option<String>,
    events: mpsc::Sender<Bytes>,
    /// What was told last, and when.
    last: Option<(LockInfo, Instant)>,
    _counted: Counted,
}

impl Follow {
    async fn run(mut self, mut states: BoxStream<'static, Result<LockInfo, Error>>) {
        loop {
            let state = tokio::select! {
                state = states.next() => state,
                () = self.events.closed() => return,
                () = self.gateway.closing.cancelled() => return,
            };
            let told = match state {
                None => return,
                Some(Err(e)) => {
                    let problem = Problem::from(&e).body;
                    self.tell("trouble", &json!(problem)).await
                }
                Some(Ok(state)) => self.changed(state).await,
            };
            if told.is_none() {
                return;
            }
        }
    }

    /// None: nobody listens any more, or the lease that was followed is over.
    async fn tell(&self, name: &str, data: &Value) -> Option<()> {
        self.events.send(event(name, data)).await.ok()
    }

    async fn changed(&mut self, mut now: LockInfo) -> Option<()> {
        self.gateway
            .seats
            .complete(self.tenant.namespace(), std::slice::from_mut(&mut now));
        let last = self.last.replace((now.clone(), Instant::now()));
        let Some((before, at)) = last else {
            self.tell("state", &json!(LockView::new(&now, None))).await?;
            return self.is_there(&now);
        };
        let here = |holders: &[Holder], holder: &Holder| holders.iter().any(|h| h.owner == holder.owner);
        for gone in before.holders.iter().filter(|holder| !here(&now.holders, holder)) {
            if self.concerns(gone) {
                let (how, reason) = self.how(&now, gone, at);
                let data = json!({"holder": HolderView::new(gone, None), "reason": reason});
                self.tell(how, &data).await?;
            }
        }
        for new in now.holders.iter().filter(|holder| !here(&before.holders, holder)) {
            if self.concerns(new) {
                self.tell("granted", &json!({"holder": HolderView::new(new, None)}))
                    .await?;
            }
        }
        let owners =
            |info: &LockInfo| -> Vec<String> { info.waiters.iter().map(|w| w.owner.clone()).collect() };
        if self.of.is_none() && owners(&before) != owners(&now) {
            let waiters: Vec<HolderView> = now.waiters.iter().map(|h| HolderView::new(h, None)).collect();
            self.tell("waiting", &json!({"waiters": waiters})).await?;
        }
        self.is_there(&now)
    }

    fn concerns(&self, holder: &Holder) -> bool {
        self.of.as_ref().is_none_or(|of| holder.owner == *of)
    }

    fn is_there(&self, now: &LockInfo) -> Option<()> {
        let of = self.of.as_ref();
        of.is_none_or(|of| now.holders.iter().any(|h| h.owner == *of))
            .then_some(())
    }

    /// How a hold ended, as far as this gateway knows.
    fn how(&self, now: &LockInfo, gone: &Holder, seen: Instant) -> (&'static str, Option<String>) {
        let key = now.key.as_str();
        let recent = self
            .gateway
            .chronicle
            .activity(self.tenant.namespace(), Some(key), 8);
        let ended = recent
            .events
            .into_iter()
            .find(|e| e.what != "granted" && (e.label == gone.label || e.label.is_none()));
        match ended {
            Some(e) if e.what == "released" => ("released", None),
            Some(e) if e.what == "broken" => ("broken", e.reason),
            Some(e) => ("lost", e.reason),
            // Its lease had run out since it was last seen.
            None if gone.expires_in.is_some_and(|left| left <= seen.elapsed()) => {
                ("lost", Some("expired".into()))
            }
            None => ("ended", None),
        }
    }
}

/// Follow all locks of a namespace: the first 500 of them, whenever somebody came or went.
///
/// Events: `locks` (all of them), `trouble` (the engine cannot be asked).
#[utoipa::path(get, path = "/v1/watch", operation_id = "watch", tag = "locks",
    params(("namespace" = Option<String>, Query, description = "Default: the gateway's")),
    responses((status = 200, description = "Server-sent events, until the client leaves", body = String,
        content_type = "text/event-stream"), Problems))]
pub(crate) async fn watch(ask: Ask) -> Result<Response, Problem> {
    let tenant = ask.tenant(Right::Read).await?;
    let counted = ask.gateway.limiter.stream(&ask.caller.client)?;
    let looks = tenant.overview.follow(&ask.gateway, &tenant);
    let (events, receiver) = mpsc::channel(1);
    tokio::spawn(tell_looks(looks, events, counted));
    Ok(answer(receiver))
}

async fn tell_looks(mut looks: watch::Receiver<Look>, events: mpsc::Sender<Bytes>, _counted: Counted) {
    let mut told: Option<(Vec<LockInfo>, Instant)> = None;
    loop {
        let look = looks.borrow_and_update().clone();
        let line = match look.as_deref() {
            None => None,
            Some(Err(why)) => {
                told = None;
                Some(event("trouble", &json!({"detail": why})))
            }
            Some(Ok(locks)) => {
                let same = told.as_ref().is_some_and(|(before, at)| {
                    let people = before
                        .iter()
                        .zip(locks)
                        .all(|(a, b)| a.key == b.key && a.same_people(b));
                    people && before.len() == locks.len() && at.elapsed() < AGAIN
                });
                (!same).then(|| {
                    told = Some((locks.clone(), Instant::now()));
                    let views: Vec<LockView> = locks.iter().map(|info| LockView::new(info, None)).collect();
                    event(
                        "locks",
                        &json!({"locks": views, "more": locks.len() >= crate::overview::MOST}),
                    )
                })
            }
        };
        if let Some(line) = line
            && events.send(line).await.is_err()
        {
            return;
        }
        tokio::select! {
            changed = looks.changed() => if changed.is_err() { return },
            () = events.closed() => return,
        }
    }
}
