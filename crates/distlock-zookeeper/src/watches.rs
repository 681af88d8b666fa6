//! One task per client that waits for all of its watches.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use distlock_core::bell::Bell;
use distlock_core::engine::Engine;
use futures_util::future::{AbortHandle, BoxFuture, abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use zookeeper_client::OneshotWatcher;

enum Command {
    Wait(BoxFuture<'static, ()>),
    Settle(oneshot::Sender<()>),
}

/// The client's watches; they are waited for on its engine thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Watches(mpsc::UnboundedSender<Command>);

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watches")
    }
}

impl Watches {
    pub(crate) fn start(engine: &Engine) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        engine.spawn(run(receiver));
        Self(sender)
    }

    /// Runs `wait` on the engine thread until it ends.
    pub(crate) fn wait(&self, wait: impl Future<Output = ()> + Send + 'static) {
        // The task ends with the client only.
        let _ = self.0.send(Command::Wait(Box::pin(wait)));
    }

    /// Rings `bell` when the watched node changes or goes.
    pub(crate) fn ring(&self, path: String, watcher: OneshotWatcher, bell: Bell) -> Watched {
        let fired = Arc::new(AtomicBool::new(false));
        let flag = fired.clone();
        let (wait, abort) = abortable(async move {
            watcher.changed().await;
            flag.store(true, Ordering::Release);
            bell.ring();
        });
        self.wait(async move {
            let _ = wait.await;
        });
        Watched { path, fired, abort }
    }

    /// Resolves when everything was handled that the session had received before the call. A session receives
    /// events in the order of the changes, and before the answer to any later request; so an answer, then this,
    /// means that all earlier events are known.
    pub(crate) async fn settle(&self) {
        let (done, settled) = oneshot::channel();
        if self.0.send(Command::Settle(done)).is_ok() {
            let _ = settled.await;
        }
    }
}

async fn run(mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut waits = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                None => return,
                Some(Command::Wait(wait)) => waits.push(wait),
                Some(Command::Settle(done)) => {
                    // All that were woken, not only as many as a task may poll in one go.
                    tokio::task::unconstrained(poll_fn(|cx| {
                        while let Poll::Ready(Some(())) = waits.poll_next_unpin(cx) {}
                        Poll::Ready(())
                    }))
                    .await;
                    let _ = done.send(());
                }
            },
            Some(()) = waits.next(), if !waits.is_empty() => {}
        }
    }
}

/// A watch that rings. Dropped, it is taken back.
#[derive(Debug)]
pub(crate) struct Watched {
    path: String,
    fired: Arc<AtomicBool>,
    abort: AbortHandle,
}

impl Watched {
    /// Whether this still watches that node.
    pub(crate) fn watches(&self, path: &str) -> bool {
        self.path == path && !self.fired.load(Ordering::Acquire)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.abort.abort();
    }
}
