//! The engine thread of a client, and the handle that drivers get to it.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::key::Namespace;
use crate::owner::Owners;

/// What a driver gets when it is built: the client's engine thread, clock, namespace, label and identity.
///
/// What must outlive the caller (sessions, subscriptions, clean-up) is spawned here, never on the caller's runtime.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    runtime: Handle,
    clock: Clock,
    namespace: Namespace,
    label: Option<Arc<str>>,
    owners: Arc<Owners>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("client", &self.0.owners.client())
            .field("namespace", &self.0.namespace)
            .field("clock", &self.0.clock)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts an engine: a thread with a current-thread runtime of its own, or, with a manual clock, the present
    /// runtime and no thread.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be created.
    ///
    /// # Panics
    /// With a manual clock outside of a tokio runtime.
    pub fn start(
        clock: Clock,
        namespace: Namespace,
        label: Option<Arc<str>>,
    ) -> io::Result<(Self, EngineThread)> {
        let (runtime, thread) = match &clock {
            Clock::Manual(_) => (
                Handle::current(),
                EngineThread {
                    stop: None,
                    thread: None,
                },
            ),
            Clock::Boot(_) => EngineThread::spawn(clock.clone())?,
        };
        let owners = Arc::new(Owners::new());
        Ok((
            Self(Arc::new(Inner {
                runtime,
                clock,
                namespace,
                label,
                owners,
            })),
            thread,
        ))
    }

    /// The clock; every wait of a driver goes through it.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The runtime of the engine thread (with I/O and time).
    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// Runs a task on the engine thread.
    pub fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.runtime.spawn(task)
    }

    /// The prefix of this client's records.
    pub fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    /// The client's label.
    pub fn label(&self) -> Option<&Arc<str>> {
        self.0.label.as_ref()
    }

    /// The client's identity, and owners for the driver's own use.
    pub fn owners(&self) -> &Arc<Owners> {
        &self.0.owners
    }
}

/// Owns the engine thread; the thread ends when this is dropped or stopped.
#[derive(Debug)]
pub struct EngineThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl EngineThread {
    fn spawn(clock: Clock) -> io::Result<(Handle, Self)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("distlock".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! { () = clock.drive() => {}, _ = stopped => {} }
            });
        })?;
        Ok((
            handle,
            Self {
                stop: Some(stop),
                thread: Some(thread),
            },
        ))
    }

    /// Asks the thread to end; what still runs on it is dropped.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    /// Ends the thread and waits for it, unless this is that very thread.
    pub fn join(mut self) {
        self.stop();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // A panic on the engine thread was reported when it happened.
            let _ = thread.join();
        }
    }
}
