//! The lock service: an HTTP API and a dashboard over any engine.
//!
//! A gateway stores nothing itself: a lease is a record of the engine, and its handle is what any other gateway on the
//! same engine needs to renew or release it. So gateways may be restarted, and any number of them may stand side by
//! side. Only on an engine that ties locks to a session (ZooKeeper, `mode=session` of the databases) do locks end with
//! the gateway that took them; its answers say so.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{sync::Arc, time::Duration};
//! use distlock_core::{Client, memory::Memory};
//! use distlock_server::{Config, Listener, Server};
//!
//! let memory = Memory::new();
//! let config = Config::new(Arc::new(move |namespace| {
//!     let made = Client::builder().namespace(namespace.as_str()).memory(&memory);
//!     Box::pin(std::future::ready(made))
//! }));
//! let listener = Listener::tcp("127.0.0.1:0".parse()?, None).await?;
//! println!("listening on {}", listener.url());
//! let server = Server::start(config, vec![listener])?;
//! assert!(server.shutdown(Duration::from_secs(5)).await);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod access;
mod api;
mod attempts;
mod audit;
mod bound;
mod chronicle;
mod dashboard;
mod door;
mod gateway;
mod limits;
mod listen;
mod mask;
mod observe;
mod overview;
mod problem;
mod seats;
mod take;
mod tenants;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::gateway::Config;
pub use crate::limits::Limits;
pub use crate::listen::{Listener, Tls};
pub use crate::tenants::Connect;

use crate::gateway::Gateway;
use crate::listen::Connections;

/// A gateway that serves.
#[derive(Debug)]
pub struct Server {
    gateway: Arc<Gateway>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Starts to serve, in tasks of the present runtime.
    ///
    /// # Errors
    /// When the file of the tokens cannot be read or understood, or the audit log not be written.
    pub fn start(config: Config, listeners: Vec<Listener>) -> io::Result<Self> {
        let limits = config.limits.clone();
        let gateway = Gateway::new(config)?;
        observe::describe();
        let connections = Connections {
            router: api::router(&gateway),
            room: Arc::new(Semaphore::new(limits.connections)),
            limits,
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let (closing, tasks) = (connections.closing.clone(), connections.tasks.clone());
        for listener in listeners {
            tasks.spawn(connections.clone().accept(listener));
        }
        tokio::spawn(gateway.clone().tend());
        Ok(Self {
            gateway,
            closing,
            tasks,
        })
    }

    /// Ends: takes no more connections, tells those who wait to ask elsewhere, lets the others have their answers,
    /// and gives back what those who waited may have been granted. Leases stay.
    ///
    /// Returns whether all that was done within `deadline`.
    ///
    /// # Cancel safety
    /// Dropped, it cuts off what is left.
    pub async fn shutdown(self, deadline: Duration) -> bool {
        self.gateway.closing.cancel();
        self.closing.cancel();
        self.tasks.close();
        let answered = tokio::time::timeout(deadline, self.tasks.wait()).await.is_ok();
        let tenants = self.gateway.tenants.all();
        let clients = tenants.iter().map(|tenant| tenant.client.shutdown(deadline));
        let released = futures_util::future::join_all(clients).await;
        answered && released.into_iter().all(|done| done)
    }
}
