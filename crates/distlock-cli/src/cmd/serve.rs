//! `distlock serve`: the lock service.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueHint};
use distlock::Prometheus;
use distlock_core::{Client, Error};
use distlock_server::{Config, Limits, Listener, Server, Tls};
use serde_json::json;

use crate::args::Common;
use crate::engine::Engine;
use crate::exit::Exit;
use crate::log;
use crate::say::Say;
use crate::settings::Session;
use crate::signals::Blocked;
use crate::values::duration;

#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen: HOST:PORT, or unix:PATH. May be given several times
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7466")]
    listen: Vec<String>,

    /// Ask for bearer tokens, whose digests and scopes are in this file; it is read again when it changes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tokens: Option<PathBuf>,

    /// Speak TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    tls_key: Option<PathBuf>,

    /// Serve only clients with a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    client_ca: Option<PathBuf>,

    /// Listen beyond this host although there are no tokens or no TLS: for networks where everybody may do
    /// everything, or behind a proxy that asks
    #[arg(long)]
    insecure: bool,

    /// Append each break to this file, one JSON object a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    audit_log: Option<PathBuf>,

    /// The most requests that wait at a time
    #[arg(long, value_name = "N", default_value_t = Limits::default().waiters)]
    max_waiters: usize,

    /// The most requests of one token or address that wait at a time
    #[arg(long, value_name = "N", default_value_t = Limits::default().waiters_per_client)]
    max_waiters_per_client: usize,

    /// The most requests of one token or address in a second
    #[arg(long, value_name = "N", default_value_t = Limits::default().requests_per_second)]
    max_rate: u32,

    /// How long answers that are on their way may take at the end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    drain: Duration,
}

/// Serves until a signal comes.
pub(crate) fn serve(common: &Common, args: &ServeArgs) -> Exit {
    let session = match Session::open(common, None) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    log::start_service(common.json, common.quiet);
    let say = &session.say;
    let at = args.listen.iter().map(|at| Address::parse(at));
    let at: Vec<Address> = match at.collect() {
        Ok(at) => at,
        Err(why) => return say.error(Exit::USAGE, why, None),
    };
    if let Err(exit) = is_guarded(args, &at, say) {
        return exit;
    }
    let trouble = |e: std::io::Error| say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None);
    raise_descriptors();
    // The signals first: the threads of the runtime inherit the mask.
    let runtime = Blocked::now().and_then(|blocked| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        Ok((blocked, runtime))
    });
    match runtime {
        Ok((blocked, runtime)) => runtime.block_on(run(&session, args, at, &blocked)),
        Err(e) => trouble(e),
    }
}

/// Every connection is a descriptor: as many as the system allows, not the few that a shell gives.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it is refused, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Where to listen.
#[derive(Debug)]
enum Address {
    Tcp(Vec<SocketAddr>),
    Unix(PathBuf),
}

impl Address {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let found = text.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        match found {
            Ok(found) if !found.is_empty() => Ok(Self::Tcp(found)),
            _ => Err(format!("--listen {text:?} is neither HOST:PORT nor unix:PATH")),
        }
    }

    fn is_of_this_host(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(at) => at.iter().all(|at| at.ip().is_loopback()),
        }
    }
}

/// Beyond this host, a gateway without tokens or without TLS gives every lock to everybody.
fn is_guarded(args: &ServeArgs, at: &[Address], say: &Say) -> Result<(), Exit> {
    if args.insecure || at.iter().all(Address::is_of_this_host) {
        return Ok(());
    }
    let missing = match (&args.tokens, &args.tls_cert) {
        (Some(_), Some(_)) => return Ok(()),
        (None, Some(_)) => "--tokens",
        (Some(_), None) => "--tls-cert and --tls-key",
        (None, None) => "--tokens, --tls-cert and --tls-key",
    };
    let text = format!("listening beyond this host needs {missing}");
    let hint = Some("or say --insecure, if everybody who can reach it may do everything");
    Err(say.error(Exit::USAGE, text, hint))
}

async fn run(session: &Session, args: &ServeArgs, at: Vec<Address>, blocked: &Blocked) -> Exit {
    let say = &session.say;
    let trouble = |e: std::io::Error| say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None);
    let signals = match blocked.listen() {
        Ok(signals) => signals,
        Err(e) => return trouble(e),
    };
    // Before the client, whose metrics it is to have.
    let metrics = match Prometheus::install() {
        Ok(metrics) => metrics,
        Err(e) => return say.failure(&e, Exit::ENGINE),
    };
    // The engine is asked at once, so that a wrong URL is told now.
    let locks = match session.engine.connect(Some("gateway")).await {
        Ok(locks) => locks,
        Err(e) => return say.failure(&e, Exit::of_connect(&e)),
    };
    let first = Client::clone(&locks);
    let mut config = Config::new(connect(&session.engine, first));
    config.engine = session.engine.public_url(&locks);
    config.namespace = locks.namespace().clone();
    config.tokens.clone_from(&args.tokens);
    config.audit.clone_from(&args.audit_log);
    config.limits.waiters = args.max_waiters;
    config.limits.waiters_per_client = args.max_waiters_per_client;
    config.limits.requests_per_second = args.max_rate;
    config.metrics = Some(Arc::new(move || metrics.render()));
    let listeners = match listen(args, at).await {
        Ok(listeners) => listeners,
        Err(e) => return trouble(e),
    };
    let urls: Vec<String> = listeners.iter().map(Listener::url).collect();
    let engine = config.engine.clone();
    let server = match Server::start(config, listeners) {
        Ok(server) => server,
        Err(e) => return say.error(Exit::CONFIG, e, None),
    };
    say.note(format_args!("serving {engine} at {}", urls.join(", ")));
    say.event("serving", json!({ "engine": engine, "urls": urls }));
    let signal = loop {
        match signals.ending().await {
            // The tokens are read again by themselves.
            libc::SIGHUP | libc::SIGUSR1 | libc::SIGUSR2 => {}
            signal => break signal,
        }
    };
    say.note("shutting down; leases stay");
    // A second signal ends it at once.
    tokio::select! {
        _ = server.shutdown(args.drain) => Exit::OK,
        _ = signals.ending() => Exit::signal(signal),
    }
}

async fn listen(args: &ServeArgs, at: Vec<Address>) -> std::io::Result<Vec<Listener>> {
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let tls = tls.map(|(certificates, key)| Tls {
        certificates,
        key,
        client_authority: args.client_ca.clone(),
    });
    let mut listeners = Vec::new();
    for address in at {
        match address {
            Address::Unix(path) => listeners.push(Listener::unix(&path).await?),
            Address::Tcp(all) => {
                for at in all {
                    listeners.push(Listener::tcp(at, tls.as_ref()).await?);
                }
            }
        }
    }
    Ok(listeners)
}

/// Makes the client of a namespace: the first one is there already, others are of the same URL.
fn connect(engine: &Engine, first: Client) -> distlock_server::Connect {
    let engine = engine.clone();
    Arc::new(move |namespace| {
        let (engine, first) = (engine.clone(), first.clone());
        Box::pin(async move {
            if namespace == *first.namespace() {
                return Ok::<_, Error>(first);
            }
            let locks = engine.connect_to(namespace.as_str()).await?;
            Ok(Client::clone(&locks))
        })
    })
}
