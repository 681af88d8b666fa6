//! The task that keeps a client in a session: heartbeats, disconnections, a new session after the end of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock_core::clock::Moment;
use tracing::{info, warn};
use zookeeper_client::SessionState;

use crate::driver::Shared;
use crate::session::{BEATS, Session};
use crate::witness::testify;

/// Between two attempts to get a new session.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How soon a heartbeat must be answered in the first time after a disconnection; else somebody else is asked whether
/// our nodes exist.
const DOUBT: Duration = Duration::from_millis(250);
/// That first time. A connection that was made while somebody else took the session over may be forgotten by the
/// server when the session is closed: it stays open, and nothing is answered.
const WATCHFUL: Duration = Duration::from_secs(3);

pub(crate) async fn supervise(shared: Arc<Shared>, mut session: Arc<Session>) {
    loop {
        attend(&shared, &session).await;
        session.end();
        shared.no_session(&session);
        // Holders are lost; waiters have lost their places and take new ones.
        shared.registry.ring_all();
        if shared.is_closed() {
            return;
        }
        warn!(target: "distlock", ?session, "the ZooKeeper session ended; all of its locks are gone");
        let Some(next) = reopen(&shared).await else { return };
        session = next;
        info!(target: "distlock", ?session, "a new ZooKeeper session");
        shared.registry.ring_all();
    }
}

async fn reopen(shared: &Arc<Shared>) -> Option<Arc<Session>> {
    let mut pause = PAUSE;
    while !shared.is_closed() {
        match Session::open(&shared.engine, &shared.config).await {
            Ok(session) => return shared.new_session(session),
            Err(e) => warn!(target: "distlock", error = %e, "no new ZooKeeper session yet"),
        }
        let clock = shared.engine.clock();
        clock.sleep(pause.mul_f64(0.5 + clock.unit() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    None
}

/// Until the session's end.
async fn attend(shared: &Arc<Shared>, session: &Arc<Session>) {
    let clock = shared.engine.clock();
    let beating = Arc::new(AtomicBool::new(false));
    let beat = || {
        if !beating.swap(true, Ordering::AcqRel) {
            let (session, beating) = (session.clone(), beating.clone());
            // Not awaited: a server that hangs must not keep us from hearing of the end.
            shared.engine.spawn(async move {
                let _ = session.beat().await;
                beating.store(false, Ordering::Release);
            });
        }
    };
    let Some(mut states) = session.states() else {
        return;
    };
    // When the latest heartbeat was sent whose answer matters, when to look for it, and until when to go on so.
    let (mut asked, mut doubt, mut watchful) = (clock.now(), Moment::FAR, clock.now());
    let asking = Arc::new(AtomicBool::new(false));
    loop {
        tokio::select! {
            state = states.changed() => {
                // A disconnection that was short may be told by the new connection alone.
                if session.heard_since(asked) {
                    asked = clock.now();
                }
                doubt = doubt.min(clock.now() + DOUBT);
                watchful = clock.now() + WATCHFUL;
                match state {
                SessionState::SyncConnected => {
                    session.connected();
                    // A hold is verified at once, and a waiter looks: events may have been missed meanwhile.
                    shared.registry.ring_all();
                    beat();
                }
                SessionState::Disconnected => {
                    session.disconnected();
                    shared.registry.ring_holders();
                }
                SessionState::ConnectedReadOnly => session.disconnected(),
                _ => return,
                }
            }
            () = session.until_end() => return,
            () = clock.sleep_until(doubt) => {
                let silent = !session.heard_since(asked);
                if silent && !asking.swap(true, Ordering::AcqRel) {
                    let (shared, session, asking) = (shared.clone(), session.clone(), asking.clone());
                    shared.engine.clone().spawn(async move {
                        testify(&shared, &session).await;
                        asking.store(false, Ordering::Release);
                    });
                }
                doubt = Moment::FAR;
                if silent || clock.now() < watchful {
                    asked = clock.now();
                    doubt = asked + if silent { DOUBT * 2 } else { DOUBT };
                    beat();
                }
            }
            () = clock.sleep(session.timeout() / BEATS) => beat(),
        }
    }
}
