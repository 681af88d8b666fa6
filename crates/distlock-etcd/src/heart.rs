//! One stream of keepalives for all leases of a client.
//!
//! Each lease has at most one keepalive on its way, so that an answer belongs to a known moment of sending: the
//! lease's deadline is counted from there, never from the answer's arrival.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::driver::DriverError;
use distlock_core::engine::Engine;
use futures_util::stream::unfold;
use tokio::sync::{mpsc, oneshot};
use tonic::Streaming;

use crate::client::Client;
use crate::failure::{Failure, Why};
use crate::wire::{self, LeaseKeepAliveRequest, LeaseKeepAliveResponse};

/// The answer to a keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// The lease lives `ttl` from `sent` on.
    Alive {
        /// Before the request was handed to the socket.
        sent: Moment,
        /// What the server granted.
        ttl: Duration,
    },
    /// There is no such lease.
    Gone,
}

#[derive(Debug)]
struct Ask {
    lease: i64,
    /// How long to wait for the answer before another endpoint is tried.
    patience: Duration,
    answer: oneshot::Sender<Result<Beat, Failure>>,
}

/// The handle of the stream's task.
#[derive(Debug, Clone)]
pub(crate) struct Heart {
    asks: mpsc::UnboundedSender<Ask>,
}

impl Heart {
    /// Starts the task on the engine thread; it ends with the last handle.
    pub(crate) fn start(engine: &Engine, client: Arc<Client>) -> Self {
        let (asks, todo) = mpsc::unbounded_channel();
        engine.spawn(run(client, todo));
        Self { asks }
    }

    /// Keeps a lease alive, once.
    ///
    /// # Cancel safety
    /// Safe; the keepalive may have been sent.
    pub(crate) async fn beat(&self, lease: i64, patience: Duration) -> Result<Beat, DriverError> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask {
            lease,
            patience,
            answer,
        };
        if self.asks.send(ask).is_err() {
            return Err(DriverError::closed());
        }
        match answered.await {
            Ok(beat) => beat.map_err(DriverError::from),
            Err(_) => Err(DriverError::closed()),
        }
    }
}

/// A keepalive on its way.
struct OnTheWay {
    sent: Moment,
    give_up: Moment,
    answers: Vec<oneshot::Sender<Result<Beat, Failure>>>,
}

struct Open {
    endpoint: usize,
    requests: mpsc::UnboundedSender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseKeepAliveResponse>,
}

type Waiting = HashMap<i64, OnTheWay>;

async fn run(client: Arc<Client>, mut todo: mpsc::UnboundedReceiver<Ask>) {
    while let Some(first) = todo.recv().await {
        let endpoint = client.current();
        let (requests, outgoing) = mpsc::unbounded_channel();
        let mut waiting = Waiting::new();
        let patience = first.patience;
        send(&client, &requests, &mut waiting, first);
        // The server opens its side with its first answer, so the first request must be there already.
        let opened = client
            .clock()
            .timeout(patience, open(&client, endpoint, outgoing))
            .await;
        let failure = match opened {
            Some(Ok(answers)) => {
                let stream = Open {
                    endpoint,
                    requests,
                    answers,
                };
                match beat_on(&client, stream, &mut waiting, &mut todo).await {
                    Some(failure) => failure,
                    None => return,
                }
            }
            Some(Err(failure)) => failure,
            None => Failure::timeout(&client.names()[endpoint]),
        };
        if failure.why == Why::SignIn {
            client.sign_in_again();
        }
        client.leave(endpoint);
        for ask in waiting.into_values().flat_map(|w| w.answers) {
            let _ = ask.send(Err(Failure::unsent(failure.to_string())));
        }
    }
}

/// Sends a keepalive, unless one for this lease is on its way: then that one's answer is the answer.
fn send(
    client: &Client,
    requests: &mpsc::UnboundedSender<LeaseKeepAliveRequest>,
    waiting: &mut Waiting,
    ask: Ask,
) {
    let sent = client.clock().now();
    let entry = waiting.entry(ask.lease).or_insert_with(|| {
        // A closed stream is noticed by its reader.
        let _ = requests.send(LeaseKeepAliveRequest { id: ask.lease });
        OnTheWay {
            sent,
            give_up: sent + ask.patience,
            answers: Vec::new(),
        }
    });
    entry.answers.push(ask.answer);
}

async fn open(
    client: &Client,
    endpoint: usize,
    outgoing: mpsc::UnboundedReceiver<LeaseKeepAliveRequest>,
) -> Result<Streaming<LeaseKeepAliveResponse>, Failure> {
    let outgoing = unfold(outgoing, |mut o| async { o.recv().await.map(|r| (r, o)) });
    let peer = client.peer(endpoint).await;
    let request = client.request(outgoing, &peer).await?;
    wire::stream(peer.channel, wire::KEEP_ALIVE, request)
        .await
        .map_err(|status| Failure::from_status(&status, &client.names()[endpoint]))
}

/// Sends and answers on this stream until it fails; `None` when nobody will ask any more.
async fn beat_on(
    client: &Client,
    mut stream: Open,
    waiting: &mut Waiting,
    todo: &mut mpsc::UnboundedReceiver<Ask>,
) -> Option<Failure> {
    let clock = client.clock().clone();
    let mut moved = client.moved();
    if client.current() != stream.endpoint {
        // Left while it was being opened; what follows makes everybody ask again, elsewhere.
        moved.mark_changed();
    }
    loop {
        let give_up = waiting.values().map(|w| w.give_up).min().unwrap_or(Moment::FAR);
        tokio::select! {
            ask = todo.recv() => send(client, &stream.requests, waiting, ask?),
            answer = stream.answers.message() => match answer {
                Ok(Some(answer)) => answered(client, waiting, &answer),
                Ok(None) => return Some(Failure::unsent("the stream of keepalives was closed")),
                Err(status) => return Some(Failure::from_status(&status, &client.names()[stream.endpoint])),
            },
            () = clock.sleep_until(give_up) => return Some(Failure::timeout(&client.names()[stream.endpoint])),
            _ = moved.changed() => return Some(Failure::unsent("another endpoint is asked")),
        }
    }
}

fn answered(client: &Client, waiting: &mut Waiting, answer: &LeaseKeepAliveResponse) {
    let term = answer.header.map_or(0, |h| h.raft_term);
    if !client.is_recent(term) {
        tracing::debug!(target: "distlock", term, "a keepalive answer of an older raft term is ignored");
        return;
    }
    let Some(sent) = waiting.remove(&answer.id) else {
        return;
    };
    let beat = match u64::try_from(answer.ttl) {
        Ok(ttl) if ttl > 0 => Beat::Alive {
            sent: sent.sent,
            ttl: Duration::from_secs(ttl),
        },
        _ => Beat::Gone,
    };
    for ask in sent.answers {
        let _ = ask.send(Ok(beat));
    }
}
