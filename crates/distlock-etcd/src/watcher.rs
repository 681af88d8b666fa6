//! One stream of watches for all claims of a client.
//!
//! A watch starts at the revision after the read that found it worth watching, so that nothing is missed in
//! between; after a broken stream it goes on after the last change it saw. What cannot go on (its revision was
//! compacted away, the server cancelled it) says so once, and its owner reads again.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use distlock_core::engine::Engine;
use futures_util::stream::unfold;
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::client::Client;
use crate::failure::{Failure, Why};
use crate::wire::{
    self, EVENT_DELETE, FILTER_NO_PUT, KeyValue, WatchCancelRequest, WatchCreateRequest, WatchRequest,
    WatchResponse, watch_request::Union,
};

/// What a watch saw.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// The key was written.
    Put(&'a KeyValue),
    /// The key is gone.
    Deleted,
    /// The watch has ended; what happened since is not known.
    Blind,
}

/// Told of what a watch sees; on the engine thread, so it must not block.
pub(crate) type Tell = Box<dyn Fn(Seen<'_>) + Send>;

struct Sub {
    key: Vec<u8>,
    /// The first revision that was not seen yet.
    from: i64,
    puts: bool,
    tell: Tell,
}

enum Command {
    Start(i64, Sub),
    Stop(i64),
}

/// The handle of the stream's task.
#[derive(Debug)]
pub(crate) struct Watcher {
    commands: mpsc::UnboundedSender<Command>,
    next: AtomicI64,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(id, _) => write!(f, "Start({id})"),
            Self::Stop(id) => write!(f, "Stop({id})"),
        }
    }
}

/// A watch; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Watch {
    id: i64,
    commands: mpsc::UnboundedSender<Command>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop(self.id));
    }
}

impl Watcher {
    /// Starts the task on the engine thread; it ends with the last handle and watch.
    pub(crate) fn start(engine: &Engine, client: Arc<Client>) -> Self {
        let (commands, todo) = mpsc::unbounded_channel();
        engine.spawn(run(client, todo));
        Self {
            commands,
            next: AtomicI64::new(1),
        }
    }

    /// Watches a key from this revision on; its writes only if `puts`.
    pub(crate) fn watch(&self, key: Vec<u8>, from: i64, puts: bool, tell: Tell) -> Watch {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let _ = self.commands.send(Command::Start(
            id,
            Sub {
                key,
                from,
                puts,
                tell,
            },
        ));
        Watch {
            id,
            commands: self.commands.clone(),
        }
    }
}

type Subs = HashMap<i64, Sub>;

struct Open {
    endpoint: usize,
    requests: mpsc::UnboundedSender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Open {
    fn send(&self, request: Union) {
        // A closed stream is noticed by its reader.
        let _ = self.requests.send(WatchRequest { union: Some(request) });
    }
}

async fn run(client: Arc<Client>, mut todo: mpsc::UnboundedReceiver<Command>) {
    let mut subs = Subs::new();
    let mut pause = Duration::ZERO;
    loop {
        while subs.is_empty() {
            match todo.recv().await {
                Some(command) => apply(&mut subs, command),
                None => return,
            }
        }
        if !pause.is_zero() {
            client.clock().sleep(pause).await;
        }
        while let Ok(command) = todo.try_recv() {
            apply(&mut subs, command);
        }
        if todo.is_closed() {
            return;
        }
        let endpoint = client.current();
        let (requests, outgoing) = mpsc::unbounded_channel();
        // The server opens its side with its first answer, so the requests must be there already.
        for (id, sub) in &subs {
            let _ = requests.send(WatchRequest {
                union: Some(create(*id, sub)),
            });
        }
        match client
            .clock()
            .timeout(client.timeout(), open(&client, endpoint, outgoing))
            .await
        {
            Some(Ok(answers)) => {
                let stream = Open {
                    endpoint,
                    requests,
                    answers,
                };
                match watch_on(&client, stream, &mut subs, &mut todo).await {
                    End::Closed => return,
                    End::Moved => pause = Duration::ZERO,
                    End::Failed { seen } => {
                        client.leave(endpoint);
                        pause = if seen { Duration::ZERO } else { longer(pause) };
                    }
                }
            }
            Some(Err(failure)) => {
                if failure.why == Why::SignIn {
                    client.sign_in_again();
                }
                client.leave(endpoint);
                pause = longer(pause);
            }
            None => {
                client.leave(endpoint);
                pause = longer(pause);
            }
        }
    }
}

/// The next pause before a stream is opened again.
fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(Duration::from_millis(20), Duration::from_millis(500))
}

fn apply(subs: &mut Subs, command: Command) {
    match command {
        Command::Start(id, sub) => {
            subs.insert(id, sub);
        }
        Command::Stop(id) => {
            subs.remove(&id);
        }
    }
}

async fn open(
    client: &Client,
    endpoint: usize,
    outgoing: mpsc::UnboundedReceiver<WatchRequest>,
) -> Result<Streaming<WatchResponse>, Failure> {
    let outgoing = unfold(outgoing, |mut o| async { o.recv().await.map(|r| (r, o)) });
    let peer = client.peer(endpoint).await;
    let request = client.request(outgoing, &peer).await?;
    wire::stream(peer.channel, wire::WATCH, request)
        .await
        .map_err(|status| Failure::from_status(&status, &client.names()[endpoint]))
}

fn create(id: i64, sub: &Sub) -> Union {
    Union::Create(WatchCreateRequest {
        key: sub.key.clone(),
        start_revision: sub.from,
        filters: if sub.puts { Vec::new() } else { vec![FILTER_NO_PUT] },
        watch_id: id,
    })
}

/// Why a stream is no longer used.
enum End {
    /// Nobody will watch any more.
    Closed,
    /// Another endpoint is the current one.
    Moved,
    /// It broke; whether it had worked.
    Failed { seen: bool },
}

async fn watch_on(
    client: &Client,
    mut stream: Open,
    subs: &mut Subs,
    todo: &mut mpsc::UnboundedReceiver<Command>,
) -> End {
    let mut moved = client.moved();
    if client.current() != stream.endpoint {
        return End::Moved;
    }
    let mut seen = false;
    loop {
        tokio::select! {
            command = todo.recv() => match command {
                None => return End::Closed,
                Some(Command::Start(id, sub)) => {
                    stream.send(create(id, &sub));
                    subs.insert(id, sub);
                }
                Some(Command::Stop(id)) => {
                    if subs.remove(&id).is_some() {
                        stream.send(Union::Cancel(WatchCancelRequest { watch_id: id }));
                    }
                }
            },
            answer = stream.answers.message() => match answer {
                Ok(Some(answer)) => {
                    seen = true;
                    told(client, subs, &answer);
                }
                Ok(None) => return End::Failed { seen },
                Err(status) => {
                    tracing::debug!(target: "distlock", %status, "the stream of watches broke");
                    return End::Failed { seen };
                }
            },
            _ = moved.changed() => return End::Moved,
        }
    }
}

fn told(client: &Client, subs: &mut Subs, answer: &WatchResponse) {
    let Some(sub) = subs.get_mut(&answer.watch_id) else {
        return;
    };
    for event in &answer.events {
        let Some(kv) = &event.kv else { continue };
        if event.kind == EVENT_DELETE {
            (sub.tell)(Seen::Deleted);
        } else {
            (sub.tell)(Seen::Put(kv));
        }
        sub.from = sub.from.max(kv.mod_revision + 1);
    }
    if answer.canceled {
        if answer.cancel_reason.contains("auth") {
            client.sign_in_again();
        }
        if let Some(sub) = subs.remove(&answer.watch_id) {
            (sub.tell)(Seen::Blind);
        }
    }
}
