//! Renewal: many holds in one script, few scripts in flight, each answer given as soon as it is known.

use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_core::driver::{DriverError, Hold, LostReason, Reached, Renewal};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{Cmd, FromRedisValue, Value};

use crate::dial::Link;
use crate::driver::Shared;
use crate::script::{RENEW_HASH, RENEW_RAISE, RENEW_READ, RENEW_SLOT, RENEW_STRING, Script};
use crate::shape::{Form, Shape, millis};

/// Holds in one script: the server serves nobody else meanwhile (about 0.5 ms).
const BATCH: usize = 256;
/// Scripts on their way at once, for the whole client: a reconnect has all holds verified together.
pub(crate) const IN_FLIGHT: usize = 4;

type Answer<'a> = &'a (dyn Fn(usize, Renewal) + Send + Sync);

impl Shared {
    pub(crate) async fn renew(&self, holds: &[Hold], answer: Answer<'_>) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let mut groups: [(&'static Script, Vec<(usize, Shape)>); 5] = [
            (&RENEW_HASH, Vec::new()),
            (&RENEW_READ, Vec::new()),
            (&RENEW_SLOT, Vec::new()),
            (&RENEW_STRING, Vec::new()),
            (&RENEW_RAISE, Vec::new()),
        ];
        for (index, hold) in holds.iter().enumerate() {
            let shape = self.shape(&hold.want);
            let group = match shape.form {
                _ if hold.floor.is_some() && hold.want.mode.is_exclusive() => 4,
                Form::Mutex { .. } | Form::Fair { .. } | Form::Write { .. } => 0,
                Form::Read { .. } => 1,
                Form::Slot { .. } => 2,
                Form::String => 3,
            };
            groups[group].1.push((index, shape));
        }
        let mut scripts: Vec<BoxFuture<'_, ()>> = Vec::new();
        for (script, group) in &groups {
            for chunk in group.chunks(BATCH) {
                scripts.push(self.renew_chunk(script, chunk, holds, answer).boxed());
            }
        }
        futures_util::future::join_all(scripts).await;
    }

    async fn renew_chunk(
        &self,
        script: &'static Script,
        chunk: &[(usize, Shape)],
        holds: &[Hold],
        answer: Answer<'_>,
    ) {
        let Ok(_turn) = self.renewals.acquire().await else {
            return;
        };
        // The hub's connection is the one that the server tells about changes; a write over another would be told.
        let (link, tracks) = match self.hub_live() {
            Some(live) => (live.link, live.tracks),
            None => match self.links.get().await {
                Ok(link) => (link, false),
                Err(e) => return all_unknown(chunk, e, answer),
            },
        };
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (index, shape) in chunk {
            let hold = &holds[*index];
            match hold.floor.filter(|_| std::ptr::eq(script, &RENEW_RAISE)) {
                Some(floor) => shape.raise(hold.ttl, floor.get(), &mut keys, &mut args),
                None => shape.renew(hold.ttl, &mut keys, &mut args),
            }
        }
        let mut call: Cmd = script.call(keys.len());
        call.arg(keys);
        if std::ptr::eq(script, &RENEW_HASH) || std::ptr::eq(script, &RENEW_STRING) {
            call.arg(u8::from(tracks));
        }
        call.arg(args);
        // A renewal that is not answered in good time is asked again while there still is some.
        let shortest = chunk
            .iter()
            .map(|(index, _)| holds[*index].ttl)
            .min()
            .unwrap_or_default();
        let patience = self
            .links
            .patience()
            .min(shortest / 3)
            .max(Duration::from_millis(20));
        let sent = self.clock().now();
        let answers = match link.run(script, &call, patience).await {
            Ok(Value::Array(answers)) if answers.len() == chunk.len() => answers,
            Ok(other) => {
                let e = DriverError::unavailable(Reached::Yes, format!("not understood: {other:?}"));
                return all_unknown(chunk, e, answer);
            }
            Err(fault) => return all_unknown(chunk, fault.error, answer),
        };
        for ((index, shape), renewed) in chunk.iter().zip(answers) {
            let hold = &holds[*index];
            if renewed != Value::Int(1) {
                answer(*index, Renewal::Lost(self.why_lost(&link, shape).await));
                continue;
            }
            answer(
                *index,
                Renewal::Good(sent + Duration::from_millis(millis(hold.ttl))),
            );
        }
    }

    /// Somebody who broke the lock left a note; otherwise it was just gone.
    async fn why_lost(&self, link: &Link, shape: &Shape) -> LostReason {
        let mut get = Cmd::new();
        get.arg("HGET").arg(shape.broken()).arg(&*shape.stored);
        match link
            .ask(&get, self.links.patience())
            .await
            .map(Option::<String>::from_redis_value)
        {
            Ok(Ok(Some(reason))) => LostReason::Broken {
                reason: (!reason.is_empty()).then_some(reason),
            },
            _ => LostReason::Taken,
        }
    }
}

fn all_unknown(chunk: &[(usize, Shape)], e: DriverError, answer: Answer<'_>) {
    let text = e.to_string();
    for (index, _) in chunk {
        answer(
            *index,
            Renewal::Unknown(DriverError::unavailable(e.reached, text.clone())),
        );
    }
}
