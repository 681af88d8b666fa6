//! One connection to one server, set up the way locks need it.

use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use distlock_core::Secret;
use distlock_core::clock::Clock;
use distlock_core::driver::{DriverError, Reached, Refusal};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, TlsCertificates, Value,
};

use crate::config::{Config, Tls};
use crate::fault::{Fault, Then, connecting, is_noscript};
use crate::script::Script;

/// Requests that may wait to be written. Few, so that many tasks do not fall into step: the server works on the first of
/// their requests while we make the next ones, not after all of them.
const AHEAD: usize = 16;
/// The same for each node of a cluster: these work beside each other anyway.
const AHEAD_AT_A_NODE: usize = 64;
/// How often an answer that is late is looked for once more.
const LAST_LOOKS: usize = 4;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// Dials servers with one set of credentials and certificates.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    user: Option<String>,
    password: Option<Secret>,
    db: i64,
    tls: Option<TlsCertificates>,
    timeout: Duration,
    ahead: usize,
    clock: Clock,
}

impl Dialer {
    /// Reads the certificates.
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] naming a file that cannot be read.
    pub(crate) fn new(config: &Config, clock: Clock) -> Result<Self, DriverError> {
        Ok(Self {
            user: config.user.clone(),
            password: config.password.clone(),
            db: config.db,
            tls: config.tls.as_ref().map(certificates).transpose()?,
            timeout: config.connect_timeout,
            ahead: if config.clustered { AHEAD_AT_A_NODE } else { AHEAD },
            clock,
        })
    }

    /// The same for the sentinels of the group: their own credentials, no database.
    pub(crate) fn for_sentinels(&self, config: &Config) -> Self {
        Self {
            user: config.sentinel_user.clone(),
            password: config.sentinel_password.clone(),
            db: 0,
            tls: self.tls.clone(),
            timeout: self.timeout,
            ahead: self.ahead,
            clock: self.clock.clone(),
        }
    }

    /// Connects on the present runtime. `push` hears what the server says unasked, on the connection's own task.
    ///
    /// # Errors
    /// Nothing was sent that could take a lock: [`Reached::No`].
    pub(crate) async fn dial(
        &self,
        node: &Node,
        push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Link, DriverError> {
        let client = self.client(node).map_err(connecting)?;
        let state = Arc::new(State::default());
        let ended = state.clone();
        // Deadlines are kept by our clock, which counts suspended time.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(self.ahead)
            .set_push_sender(move |info: PushInfo| {
                if info.kind == PushKind::Disconnection {
                    ended.ended.store(true, Ordering::Release);
                }
                push(info);
                Ok::<(), std::convert::Infallible>(())
            });
        let connected = client.get_multiplexed_async_connection_with_config(&config);
        match self.clock.timeout(self.timeout, connected).await {
            None => Err(DriverError::unavailable(
                Reached::No,
                format!(
                    "no connection to Redis at {} within {:?}",
                    show(node),
                    self.timeout
                ),
            )),
            Some(Err(e)) => Err(connecting(e)),
            Some(Ok(connection)) => Ok(Link(Arc::new(Open {
                connection,
                state,
                clock: self.clock.clone(),
            }))),
        }
    }

    fn client(&self, node: &Node) -> redis::RedisResult<Client> {
        let addr = match (node, &self.tls) {
            (Node::Tcp(host, port), None) => ConnectionAddr::Tcp(host.clone(), *port),
            (Node::Tcp(host, port), Some(_)) => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
            (Node::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
        };
        let mut redis = RedisConnectionInfo::default()
            .set_db(self.db)
            .set_protocol(ProtocolVersion::RESP3);
        if let Some(user) = &self.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.password {
            redis = redis.set_password(password.reveal());
        }
        let info: ConnectionInfo = addr
            .into_connection_info()?
            .set_redis_settings(redis)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        match (&self.tls, node) {
            (Some(tls), Node::Tcp(..)) => Client::build_with_tls(info, tls.clone()),
            _ => Client::open(info),
        }
    }
}

/// An established connection. Clones share it; it carries many requests at once, in order.
#[derive(Clone)]
pub(crate) struct Link(Arc<Open>);

struct Open {
    connection: MultiplexedConnection,
    state: Arc<State>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct State {
    /// The socket is closed.
    ended: AtomicBool,
    /// Not to be used for anything new: it did not answer in time, or leads to the wrong server.
    shunned: AtomicBool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("state", &self.0.state)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Whether the socket is known to be closed: nothing that is sent here arrives any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.state.ended.load(Ordering::Acquire)
    }

    /// Whether it is closed, or not to be used for anything new.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() || self.0.state.shunned.load(Ordering::Acquire)
    }

    /// Nothing new goes over this connection, whoever shares it.
    pub(crate) fn shun(&self) {
        self.0.state.shunned.store(true, Ordering::Release);
    }

    /// Sends one command and waits for its answer, at most this long. Never sends it twice.
    pub(crate) async fn ask(&self, cmd: &Cmd, patience: Duration) -> Result<Value, Fault> {
        self.raw(cmd, patience)
            .await?
            .map_err(|e| self.judge(Fault::of(e)))
    }

    /// Runs a script, in full if the server does not know it.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd, patience: Duration) -> Result<Value, Fault> {
        match self.run_known(call, patience).await? {
            Some(value) => Ok(value),
            None => Box::pin(self.ask(&script.in_full(call), patience)).await,
        }
    }

    /// Runs a script on a node that its slot is on its way to.
    pub(crate) async fn run_asking(
        &self,
        script: &Script,
        call: &Cmd,
        patience: Duration,
    ) -> Result<Value, Fault> {
        let mut both = redis::Pipeline::with_capacity(2);
        both.cmd("ASKING");
        both.add_command(script.in_full(call));
        let answers = self.together(&both, patience).await?;
        answers.into_iter().next_back().ok_or_else(Fault::silent)
    }

    /// Runs a script; `None` if the server does not know it.
    pub(crate) async fn run_known(&self, call: &Cmd, patience: Duration) -> Result<Option<Value>, Fault> {
        match self.raw(call, patience).await? {
            Err(e) if is_noscript(&e) => Ok(None),
            Err(e) => Err(self.judge(Fault::of(e))),
            Ok(value) => Ok(Some(value)),
        }
    }

    /// Prepares the connection for [`track`](Self::track).
    pub(crate) async fn start_tracking(&self, patience: Duration) -> Result<(), Fault> {
        let mut on = Cmd::new();
        on.arg("CLIENT")
            .arg("TRACKING")
            .arg("ON")
            .arg("OPTIN")
            .arg("NOLOOP");
        self.ask(&on, patience).await?;
        self.ask(&next_is_tracked(), patience).await.map(drop)
    }

    /// Has the server tell this connection when one of these keys is next changed by another.
    ///
    /// A read inside a script would do, but costs far too much: for each of them, the server notes all keys of the
    /// script. Hence the server tracks what it is asked to track only (`OPTIN`), and reads for that apart. `spread`: the
    /// keys are in many slots.
    pub(crate) async fn track<K: AsRef<str>>(
        &self,
        keys: &[K],
        spread: bool,
        patience: Duration,
    ) -> Result<(), Fault> {
        let mut reads = redis::Pipeline::with_capacity(if spread { 2 * keys.len() } else { 2 });
        for together in keys.chunks(if spread { 1 } else { keys.len().max(1) }) {
            reads.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS");
            for key in together {
                reads.arg(key.as_ref());
            }
        }
        self.together(&reads, patience).await.map(drop)
    }

    /// Sends commands in one piece; the first error is that of all.
    async fn together(&self, commands: &redis::Pipeline, patience: Duration) -> Result<Vec<Value>, Fault> {
        let mut connection = self.0.connection.clone();
        let sent = pin!(connection.send_packed_commands(commands, 0, commands.len()));
        match self.patiently(patience, sent).await {
            Some(answers) => answers
                .and_then(|answers| answers.into_iter().map(Value::extract_error).collect())
                .map_err(|e| self.judge(Fault::of(e))),
            None => Err(self.judge(Fault::silent())),
        }
    }

    async fn raw(&self, cmd: &Cmd, patience: Duration) -> Result<redis::RedisResult<Value>, Fault> {
        let mut connection = self.0.connection.clone();
        let answer = pin!(connection.send_packed_command(cmd));
        match self.patiently(patience, answer).await {
            Some(answer) => Ok(answer.and_then(|v| v.extract_error())),
            None => Err(self.judge(Fault::silent())),
        }
    }

    /// Waits at most this long for an answer. What has arrived by then counts, also if nobody could look at it:
    /// this thread was busy, or the process was stopped.
    /// (By reference: a future that is handed on by value is kept twice.)
    async fn patiently<F: Future>(&self, patience: Duration, mut answer: Pin<&mut F>) -> Option<F::Output> {
        if let Some(answer) = self.0.clock.timeout(patience, answer.as_mut()).await {
            return Some(answer);
        }
        for _ in 0..LAST_LOOKS {
            // Gives the connection's task a chance to read its socket.
            tokio::task::yield_now().await;
            if let Poll::Ready(answer) = futures_util::poll!(&mut answer) {
                return Some(answer);
            }
        }
        None
    }

    /// Subscribes, and waits until the server confirmed all of it.
    pub(crate) async fn subscribe(&self, channels: &[String], patience: Duration) -> Result<(), Fault> {
        let mut connection = self.0.connection.clone();
        self.settle(
            self.patiently(patience, pin!(connection.subscribe(channels)))
                .await,
        )
    }

    /// Subscribes to channels of a node's own slots; what was done is told by pushes.
    pub(crate) async fn subscribe_shards(
        &self,
        channels: &[String],
        patience: Duration,
    ) -> Result<(), Fault> {
        self.together(&one_by_one("SSUBSCRIBE", channels), patience)
            .await
            .map(drop)
    }

    /// Unsubscribes from such channels; what was done is told by pushes.
    pub(crate) async fn unsubscribe_shards(
        &self,
        channels: &[String],
        patience: Duration,
    ) -> Result<(), Fault> {
        self.together(&one_by_one("SUNSUBSCRIBE", channels), patience)
            .await
            .map(drop)
    }

    /// Unsubscribes, and waits until the server confirmed all of it.
    pub(crate) async fn unsubscribe(&self, channels: &[String], patience: Duration) -> Result<(), Fault> {
        let mut connection = self.0.connection.clone();
        self.settle(
            self.patiently(patience, pin!(connection.unsubscribe(channels)))
                .await,
        )
    }

    fn settle(&self, answer: Option<redis::RedisResult<()>>) -> Result<(), Fault> {
        match answer {
            Some(answer) => answer.map_err(|e| self.judge(Fault::of(e))),
            None => Err(self.judge(Fault::silent())),
        }
    }

    fn judge(&self, fault: Fault) -> Fault {
        if fault.then == Then::Redial {
            self.shun();
        }
        fault
    }
}

/// A command for each channel: they may be in different slots.
fn one_by_one(command: &str, channels: &[String]) -> redis::Pipeline {
    let mut all = redis::Pipeline::with_capacity(channels.len());
    for channel in channels {
        all.cmd(command).arg(channel);
    }
    all
}

/// What the next command reads is tracked.
fn next_is_tracked() -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg("CLIENT").arg("CACHING").arg("YES");
    cmd
}

fn certificates(tls: &Tls) -> Result<TlsCertificates, DriverError> {
    let client_tls = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig {
            client_cert: file(cert)?,
            client_key: file(key)?,
        }),
        (None, None) => None,
        _ => {
            let why = "a client certificate needs both cert= and key=";
            return Err(DriverError::refused(Refusal::InvalidConfig(why.into())));
        }
    };
    Ok(TlsCertificates {
        client_tls,
        root_cert: tls.ca.as_deref().map(file).transpose()?,
    })
}

fn file(path: &Path) -> Result<Vec<u8>, DriverError> {
    std::fs::read(path).map_err(|e| DriverError {
        source: Some(Box::new(e)),
        ..DriverError::refused(Refusal::InvalidConfig(format!("cannot read {}", path.display())))
    })
}

/// A node for people.
pub(crate) fn show(node: &Node) -> String {
    match node {
        Node::Tcp(host, port) => format!("{host}:{port}"),
        Node::Unix(path) => path.display().to_string(),
    }
}
