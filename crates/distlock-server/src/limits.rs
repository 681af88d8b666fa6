//! What one client, and all together, may ask of a gateway.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::problem::Problem;

/// The limits of a gateway. Each has an answer of its own, which names it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// The largest body of a request, in bytes. Beyond: 413.
    pub body: usize,
    /// The most requests that wait at a time. Beyond: 429.
    pub waiters: usize,
    /// The most requests of one client (token, or address) that wait at a time. Beyond: 429.
    pub waiters_per_client: usize,
    /// The most requests of one client in a second. Beyond: 429.
    pub requests_per_second: u32,
    /// The most event streams at a time. Beyond: 429.
    pub streams: usize,
    /// The most event streams of one client at a time. Beyond: 429.
    pub streams_per_client: usize,
    /// The most connections at a time. Beyond, new ones wait to be accepted.
    pub connections: usize,
    /// The most namespaces, each of which is a client of the engine. Beyond: 429.
    pub namespaces: usize,
    /// How long the head of a request may take, and how long a connection may be idle.
    pub head: Duration,
    /// How long the body of a request may take, and how long an answer of the engine.
    pub answer: Duration,
    /// How long a client may take nothing of an answer, or have vanished, until its connection is ended (on Linux;
    /// elsewhere as long as the system's TCP allows).
    pub stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 * 1024,
            waiters: 20_000,
            waiters_per_client: 10_000,
            requests_per_second: 10_000,
            streams: 500,
            streams_per_client: 100,
            connections: 50_000,
            namespaces: 64,
            head: Duration::from_secs(30),
            answer: Duration::from_secs(15),
            stalled: Duration::from_secs(30),
        }
    }
}

/// Counts against the limits.
#[derive(Debug)]
pub(crate) struct Limiter {
    pub(crate) limits: Limits,
    waiters: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
    clients: Mutex<HashMap<String, Client>>,
}

#[derive(Debug)]
struct Client {
    waiters: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
    /// The present second, and the requests in it.
    second: Instant,
    requests: u32,
}

/// Something that was counted; uncounted by its drop.
#[derive(Debug)]
pub(crate) struct Counted(Vec<Arc<AtomicUsize>>);

impl Counted {
    /// Counts here if that stays within the limit.
    fn add(&mut self, count: &Arc<AtomicUsize>, limit: usize) -> bool {
        let fits = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
            (n < limit).then_some(n + 1)
        });
        if fits.is_ok() {
            self.0.push(count.clone());
        }
        fits.is_ok()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Limiter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiters: Arc::default(),
            streams: Arc::default(),
            clients: Mutex::default(),
        }
    }

    /// Runs `f` on what is known of a client.
    fn client<T>(&self, name: &str, f: impl FnOnce(&mut Client) -> T) -> T {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if clients.len() > 10_000 {
            clients.retain(|_, c| {
                let open = c.waiters.load(Ordering::Acquire) + c.streams.load(Ordering::Acquire);
                open > 0 || now - c.second < Duration::from_secs(1)
            });
        }
        if let Some(client) = clients.get_mut(name) {
            return f(client);
        }
        f(clients.entry(name.to_owned()).or_insert(Client {
            waiters: Arc::default(),
            streams: Arc::default(),
            second: now,
            requests: 0,
        }))
    }

    /// Counts a request.
    pub(crate) fn request(&self, client: &str) -> Result<(), Problem> {
        let most = self.limits.requests_per_second;
        let fits = self.client(client, |c| {
            let now = Instant::now();
            if now - c.second >= Duration::from_secs(1) {
                c.second = now;
                c.requests = 0;
            }
            c.requests = c.requests.saturating_add(1);
            c.requests <= most
        });
        if fits {
            return Ok(());
        }
        let why = format!("one client may make {most} requests in a second");
        Err(Problem::limited(why, 1))
    }

    /// Counts a request that may wait.
    pub(crate) fn waiter(&self, client: &str) -> Result<Counted, Problem> {
        let mut counted = Counted(Vec::with_capacity(2));
        let own = self.client(client, |c| c.waiters.clone());
        let most = self.limits.waiters_per_client;
        if !counted.add(&own, most) {
            let why = format!("one client may have {most} requests waiting");
            return Err(Problem::limited(why, 1));
        }
        let most = self.limits.waiters;
        if !counted.add(&self.waiters, most) {
            let why = format!("{most} requests wait at this gateway");
            return Err(Problem::limited(why, 1));
        }
        Ok(counted)
    }

    /// Counts an event stream.
    pub(crate) fn stream(&self, client: &str) -> Result<Counted, Problem> {
        let mut counted = Counted(Vec::with_capacity(2));
        let own = self.client(client, |c| c.streams.clone());
        let most = self.limits.streams_per_client;
        if !counted.add(&own, most) {
            let why = format!("one client may have {most} event streams open");
            return Err(Problem::limited(why, 5));
        }
        let most = self.limits.streams;
        if !counted.add(&self.streams, most) {
            let why = format!("{most} event streams are open at this gateway");
            return Err(Problem::limited(why, 5));
        }
        Ok(counted)
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.load(Ordering::Acquire)
    }
}
