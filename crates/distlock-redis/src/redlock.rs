//! Redlock: locks on a majority of independent servers, in the plain format that other Redlock clients share.
//!
//! The rule is [`distlock_core::quorum`]'s; this makes its nodes.

mod doctor;

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{
    Claim, Driver, DriverError, DriverErrorKind, Finding, Hold, Inspect, Promises, Reached, Refusal, Renewal,
    Want,
};
use distlock_core::engine::Engine;
use distlock_core::quorum::{self, Node, RestartGuard, Rules};
use futures_util::future::{BoxFuture, join_all};
use redis::Cmd;

use crate::config::{Config, Endpoint, Layout, ValueFormat};
use crate::driver::RedisDriver;
use crate::names::STAMP;
use crate::rights;
use crate::url::{REDIS_PORT, UrlParts, duration, invalid};

/// Several independent servers, and the rules of their quorum.
#[derive(Debug, Clone)]
pub struct Redlock {
    /// The servers; they differ in their endpoints only.
    nodes: Vec<Config>,
    /// How votes are counted.
    pub rules: Rules,
}

/// The query parameters that [`Redlock::set`] knows.
pub fn redlock_parameters() -> &'static [&'static str] {
    &[
        "max_ttl",
        "restart_guard",
        "node_timeout",
        "prefix",
        "value",
        "db",
        "ca",
        "cert",
        "key",
        "connect_timeout",
        "timeout",
    ]
}

impl Redlock {
    /// From the parts of a URL, `redlock://h1,h2,h3` or, with TLS, `redlocks://h1,h2,h3`. Query parameters follow with
    /// [`set`](Self::set).
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for fewer than three hosts, a host that is named twice, or a part that does not
    /// parse.
    pub fn from_url(url: &UrlParts<'_>) -> Result<Self, DriverError> {
        if url.hosts.len() < 3 {
            let why = format!(
                "{}:// with {} hosts: a quorum needs at least 3",
                url.scheme,
                url.hosts.len()
            );
            return Err(invalid(why));
        }
        let scheme = match url.scheme {
            "redlocks" => "rediss",
            _ => "redis",
        };
        let mut nodes: Vec<Config> = Vec::new();
        for host in url.hosts {
            let hosts = [*host];
            let mut config = Config::from_url(&UrlParts {
                scheme,
                hosts: &hosts,
                ..*url
            })?;
            config.layout = Layout::String {
                prefix: String::new(),
                value: ValueFormat::default(),
            };
            config.aged = true;
            if nodes.iter().any(|known| known.endpoint == config.endpoint) {
                let (name, port) = (host.0, host.1.unwrap_or(REDIS_PORT));
                return Err(invalid(format!(
                    "{name}:{port} is named twice; one server has one vote"
                )));
            }
            nodes.push(config);
        }
        Ok(Self {
            nodes,
            rules: Rules::default(),
        })
    }

    /// Sets one of the [`redlock_parameters`].
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for an unknown name, or a value out of its range; the message names both.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), DriverError> {
        let bad = |allowed: &str| invalid(format!("{name}={value}: it must be {allowed}"));
        match name {
            "max_ttl" => {
                self.rules.max_ttl = duration(value, LONGEST_TTL).ok_or_else(|| bad("10ms to 24h"))?
            }
            "node_timeout" => {
                self.rules.node_timeout =
                    duration(value, Duration::from_secs(10)).ok_or_else(|| bad("10ms to 10s"))?;
            }
            "restart_guard" => {
                self.rules.restart_guard = match value {
                    "warn" => RestartGuard::Warn,
                    "strict" => RestartGuard::Strict,
                    _ => return Err(bad("warn or strict")),
                }
            }
            name if redlock_parameters().contains(&name) => {
                for node in &mut self.nodes {
                    node.set(name, value)?;
                }
            }
            _ => {
                let known = redlock_parameters().join(", ");
                return Err(invalid(format!("unknown parameter {name}; known are {known}")));
            }
        }
        Ok(())
    }

    fn drivers(&self, engine: &Engine) -> Result<Vec<Arc<RedisDriver>>, DriverError> {
        let driver = |config: &Config| RedisDriver::new(engine.clone(), config.clone()).map(Arc::new);
        self.nodes.iter().map(driver).collect()
    }
}

/// A server that lost its data keeps its vote back for as long as this.
const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);

/// Opens the engine, and asks every node once, so that a wrong password or too few nodes are told at once. Nodes that
/// cannot be reached now are used as soon as they can be.
///
/// # Errors
/// [`Refusal::InvalidConfig`] for a setting or a node that does not work, [`Refusal::NoQuorum`] when fewer than a
/// majority can be reached.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn open_redlock(engine: Engine, redlock: Redlock) -> Result<Arc<dyn Driver>, DriverError> {
    let drivers = redlock.drivers(&engine)?;
    let node = |driver: &Arc<RedisDriver>| Node {
        name: driver.0.config.address(),
        driver: driver.clone(),
    };
    let nodes: Vec<Node> = drivers.iter().map(node).collect();
    let quorum = quorum::over(engine, "redlock", nodes, redlock.rules)?;
    let mut missing = Vec::new();
    for (driver, checked) in drivers
        .iter()
        .zip(join_all(drivers.iter().map(|driver| rights::check(&driver.0))).await)
    {
        let Err(e) = checked else { continue };
        let said = format!("{}: {e}", driver.0.config.address());
        match e.kind {
            DriverErrorKind::Refused(_) => return Err(invalid(said)),
            _ => missing.push(said),
        }
    }
    if missing.len() * 2 >= drivers.len() {
        return Err(DriverError {
            retry: true,
            ..DriverError::refused(Refusal::NoQuorum(missing))
        });
    }
    for said in &missing {
        tracing::warn!(target: "distlock", node = said, "a node of the quorum cannot be reached");
    }
    Ok(Arc::new(RedlockDriver {
        quorum,
        nodes: drivers,
    }))
}

/// Vouches for a deployment: none of its nodes has forgotten a lock that is held. Gives the addresses of the nodes.
///
/// # Errors
/// When a node cannot be reached; the others may have been told already, and it can be done again.
///
/// # Cancel safety
/// Safe: it can be done again.
pub async fn vouch(engine: Engine, redlock: &Redlock) -> Result<Vec<String>, DriverError> {
    let drivers = redlock.drivers(&engine)?;
    let one = async |driver: &Arc<RedisDriver>| {
        let address = driver.0.config.address();
        let mut set = Cmd::new();
        set.arg("SET").arg(STAMP).arg(0);
        let told = async {
            let link = driver.0.links.get().await?;
            link.ask(&set, driver.0.links.patience())
                .await
                .map_err(|fault| fault.error)
        };
        match told.await {
            Ok(_) => Ok(address),
            Err(e) => Err(DriverError::unavailable(
                Reached::Maybe,
                format!("{address}: {e}"),
            )),
        }
    };
    let told = join_all(drivers.iter().map(one)).await;
    join_all(drivers.iter().map(|driver| driver.close())).await;
    told.into_iter().collect()
}

/// The quorum, and its nodes for the doctor.
#[derive(Debug)]
struct RedlockDriver {
    quorum: Arc<dyn Driver>,
    nodes: Vec<Arc<RedisDriver>>,
}

impl Driver for RedlockDriver {
    fn promises(&self) -> Promises {
        self.quorum.promises()
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        self.quorum.claim(want)
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        self.quorum.renew(holds, answer)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.quorum.close()
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.quorum.inspect().map(|_| self as &dyn Inspect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(hosts: &'a [(&'a str, Option<u16>)]) -> UrlParts<'a> {
        UrlParts {
            scheme: "redlock",
            hosts,
            ..UrlParts::default()
        }
    }

    #[test]
    fn fewer_than_three_hosts_and_one_named_twice_are_refused() {
        let two = [("a", None), ("b", None)];
        let e = Redlock::from_url(&parts(&two)).unwrap_err().to_string();
        assert!(e.contains("2 hosts") && e.contains("at least 3"), "{e}");
        let twice = [("a", None), ("b", None), ("a", Some(6379))];
        let e = Redlock::from_url(&parts(&twice)).unwrap_err().to_string();
        assert!(e.contains("a:6379 is named twice"), "{e}");
    }

    #[test]
    fn parameters_are_checked_and_reach_every_node() {
        let hosts = [("a", None), ("b", None), ("c", None)];
        let mut redlock = Redlock::from_url(&parts(&hosts)).unwrap();
        redlock.set("max_ttl", "90s").unwrap();
        redlock.set("restart_guard", "strict").unwrap();
        redlock.set("db", "3").unwrap();
        assert_eq!(redlock.rules.max_ttl, Duration::from_secs(90));
        assert!(redlock.nodes.iter().all(|node| node.db == 3 && node.aged));
        for (name, value) in [
            ("max_ttl", "1ms"),
            ("restart_guard", "no"),
            ("layout", "redisson"),
        ] {
            let e = redlock.set(name, value).unwrap_err().to_string();
            assert!(e.contains(name), "{e}");
        }
    }

    #[test]
    fn every_listed_parameter_is_known() {
        let hosts = [("a", None), ("b", None), ("c", None)];
        for name in redlock_parameters() {
            let mut redlock = Redlock::from_url(&parts(&hosts)).unwrap();
            let said = redlock.set(name, "\u{1}").map_err(|e| e.to_string());
            assert!(!said.is_err_and(|e| e.contains("unknown")), "{name}");
        }
    }
}
