//! One session: the lease of all locks of a client.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock_core::Secret;
use distlock_core::clock::{Clock, Moment};
use distlock_core::driver::{DriverError, Reached};
use distlock_core::engine::Engine;
use tokio::sync::Notify;
use zookeeper_client::{Client, Connector, StateWatcher};

use crate::call::{Call, fault};
use crate::config::{Config, Scheme};

/// How to connect as this client.
pub(crate) fn connector(config: &Config) -> Connector {
    let connector = Client::connector();
    let Some(auth) = &config.auth else {
        return connector;
    };
    match config.scheme {
        Scheme::Digest => connector.with_auth("digest", auth.reveal().as_bytes()),
        Scheme::Sasl => with_sasl(connector, auth),
    }
}

#[cfg(feature = "sasl")]
fn with_sasl(connector: Connector, auth: &Secret) -> Connector {
    let (user, password) = auth.reveal().split_once(':').unwrap_or((auth.reveal(), ""));
    connector.with_sasl(zookeeper_client::SaslOptions::digest_md5(
        user.to_owned(),
        password.to_owned(),
    ))
}

/// Refused by [`Config::checked`].
#[cfg(not(feature = "sasl"))]
fn with_sasl(connector: Connector, _: &Secret) -> Connector {
    connector
}

/// Heartbeats in a session timeout. A hold's deadline counts from the latest one that was answered.
pub(crate) const BEATS: u32 = 8;
/// A session is known to live for this part of its timeout after a heartbeat was sent.
const FRESH: u32 = 6;
/// A server that says nothing for this part of the session timeout is left for another. The session client's own choice
/// is two fifths, after which a hold has little time left to be verified elsewhere.
const SILENCE: u32 = 5;
/// But a connection is given this long, where two fifths are not shorter.
const PATIENT: Duration = Duration::from_secs(1);
/// How often the address of a single server is given to the session client. It doubles its pause whenever it has tried
/// all addresses once: a server that was away for ten seconds would be asked again after ten more, and a hold whose
/// session the server still keeps would be lost meanwhile. Named so often it is asked at least every second in the
/// first seven, and every two until the sixteenth.
const COPIES: usize = 16;

/// What the session client shall connect to.
fn addresses(hosts: &[String]) -> String {
    match hosts {
        [one] => vec![one.as_str(); COPIES].join(","),
        all => all.join(","),
    }
}

/// How long a server may say nothing.
fn silence(session: Duration) -> Duration {
    (session / SILENCE).max(PATIENT.min(session * 2 / 5))
}

/// A session from its start to its end; it is never used again after that.
pub(crate) struct Session {
    clock: Clock,
    id: i64,
    timeout: Duration,
    patience: Duration,
    /// The last clone closes the session.
    client: Mutex<Option<Arc<Client>>>,
    /// When the latest request was sent that was answered.
    alive: AtomicU64,
    connected: AtomicBool,
    connection: AtomicU64,
    ended: Notify,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &format_args!("{:#x}", self.id))
            .field("timeout", &self.timeout)
            .field("connected", &self.connected)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A new session. Its socket lives on the engine thread, since the caller's runtime may end before it.
    pub(crate) async fn open(engine: &Engine, config: &Config) -> Result<Arc<Self>, DriverError> {
        let connector = connector(config)
            .with_session_timeout(config.session_timeout)
            .with_connection_timeout(silence(config.session_timeout));
        let (clock, hosts) = (engine.clock().clone(), config.hosts.join(","));
        let servers = addresses(&config.hosts);
        let before = clock.now();
        let (limit, patience) = (config.connect_timeout, config.timeout);
        let opening = engine.spawn(async move {
            let client = clock.timeout(limit, connector.connect(&servers)).await;
            let client = client.ok_or_else(|| {
                let why = format!("no session with ZooKeeper at {hosts} within {limit:?}");
                DriverError::unavailable(Reached::No, why)
            })?;
            let client = client.map_err(fault)?;
            let session = Arc::new(Self {
                clock,
                id: client.session_id().0,
                timeout: client.session_timeout(),
                patience,
                client: Mutex::new(Some(Arc::new(client))),
                alive: AtomicU64::new(before.as_nanos()),
                connected: AtomicBool::new(true),
                connection: AtomicU64::new(1),
                ended: Notify::new(),
            });
            // Connecting may have taken long; the session's first answer dates it.
            session.beat().await?;
            Ok(session)
        });
        opening
            .await
            .map_err(|e| DriverError::unavailable(Reached::No, e))?
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// The negotiated timeout.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Until when the servers keep the session at least. They count from the latest request that reached them; what a
    /// follower heard it passes on every half tick only, and that is lost with the follower. The shortest session of
    /// a server is two ticks unless configured otherwise, so a quarter of the timeout covers it.
    pub(crate) fn deadline(&self) -> Moment {
        let alive = Moment::from_nanos(self.alive.load(Ordering::Acquire));
        alive + self.timeout * 3 / 4
    }

    /// A request that was sent then has been answered.
    pub(crate) fn alive(&self, sent: Moment) {
        self.alive.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    fn client(&self) -> Option<Arc<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }

    /// Ends it; closes it at the servers if it still lives there.
    pub(crate) fn end(&self) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(client);
        self.connected.store(false, Ordering::Release);
        self.ended.notify_one();
    }

    /// Resolves after [`end`](Self::end), for one listener.
    pub(crate) async fn until_end(&self) {
        self.ended.notified().await;
    }

    pub(crate) fn states(&self) -> Option<StateWatcher> {
        Some(self.client()?.state_watcher())
    }

    /// How many connections it has had.
    pub(crate) fn connection(&self) -> u64 {
        self.connection.load(Ordering::Acquire)
    }

    pub(crate) fn connected(&self) {
        self.connection.fetch_add(1, Ordering::AcqRel);
        self.connected.store(true, Ordering::Release);
    }

    pub(crate) fn disconnected(&self) {
        self.connected.store(false, Ordering::Release);
    }

    /// The right to send requests; refused while there is no connection, so that nothing waits for one.
    pub(crate) fn call(self: &Arc<Self>) -> Result<Call, DriverError> {
        let none = || DriverError::unavailable(Reached::No, "not connected to ZooKeeper");
        let client = self.client().ok_or_else(none)?;
        if !self.connected.load(Ordering::Acquire) {
            return Err(none());
        }
        Ok(Call {
            session: self.clone(),
            client,
            connection: self.connection(),
            sent: self.clock.now(),
        })
    }

    /// Whether a request was answered that was sent at that moment or later.
    pub(crate) fn heard_since(&self, moment: Moment) -> bool {
        self.alive.load(Ordering::Acquire) >= moment.as_nanos()
    }

    /// Whether it is connected, and a heartbeat of late was answered.
    pub(crate) fn is_fresh(&self) -> bool {
        let alive = Moment::from_nanos(self.alive.load(Ordering::Acquire));
        self.connected.load(Ordering::Acquire) && self.clock.now() < alive + self.timeout / FRESH
    }

    /// One heartbeat of our own: the session client keeps the session alive, but does not say when it last heard.
    pub(crate) async fn beat(self: &Arc<Self>) -> Result<(), DriverError> {
        let call = self.call()?;
        call.answer(call.client.check_stat("/")).await.map_err(fault)?;
        Ok(())
    }
}
