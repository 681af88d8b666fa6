//! A gateway in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, Locks};
use distlock_server::{Config, Listener, Server, Tls};
use serde_json::Value;

use crate::wire::{Reply, ask};

/// How long a step may take that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) struct Gateway {
    pub(crate) at: SocketAddr,
    server: Server,
}

impl Gateway {
    /// Serves the engine of this URL.
    pub(crate) async fn on(engine: &str) -> Self {
        Self::with(engine, |_| {}).await
    }

    /// The same, with other settings.
    pub(crate) async fn with(engine: &str, set: impl FnOnce(&mut Config)) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), engine, set).await
    }

    /// The same, at this address.
    pub(crate) async fn at(at: SocketAddr, engine: &str, set: impl FnOnce(&mut Config)) -> Self {
        Self::start(listen(at).await, engine, set)
    }

    /// Speaks TLS.
    pub(crate) async fn encrypted(at: SocketAddr, engine: &str, tls: Tls) -> Self {
        let listener = Listener::tcp(at, Some(&tls)).await.unwrap();
        Self::start(listener, engine, |_| {})
    }

    fn start(listener: Listener, engine: &str, set: impl FnOnce(&mut Config)) -> Self {
        let url = engine.to_owned();
        let mut config = Config::new(Arc::new(move |namespace| {
            let url = url.clone();
            Box::pin(async move {
                let locks = Locks::builder()
                    .namespace(namespace.as_str())
                    .connect(&url)
                    .await?;
                Ok(Client::clone(&locks))
            })
        }));
        set(&mut config);
        let at = listener.url().split_once("://").unwrap().1.parse().unwrap();
        let server = Server::start(config, vec![listener]).unwrap();
        Self { at, server }
    }

    /// The URL of the engine that speaks to it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        ask(self.at, "POST", path, &[], body.to_string().as_bytes()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        ask(self.at, "GET", path, &[], b"").await
    }

    /// Ends it as an orderly stop does.
    pub(crate) async fn stop(self) {
        assert!(
            self.server.shutdown(PATIENCE).await,
            "the gateway did not end in time"
        );
    }

    /// Ends it as a crash does, as far as that can be had in one process: its connections are cut.
    pub(crate) async fn kill(self) {
        self.server.shutdown(Duration::ZERO).await;
    }
}

/// Listens at an address, which may still be in use for a moment if it was just given up.
async fn listen(at: SocketAddr) -> Listener {
    let end = Instant::now() + PATIENCE;
    loop {
        match Listener::tcp(at, None).await {
            Ok(listener) => return listener,
            Err(e) => assert!(Instant::now() < end, "{e}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Polls until `found` gives something.
pub(crate) async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let polled = async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let polled = tokio::time::timeout(PATIENCE, polled).await;
    polled.unwrap_or_else(|_| panic!("it never happened: {what}"))
}
