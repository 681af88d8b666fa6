//! Configuration from URLs: parts and query parameters.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use distlock_core::Secret;
use distlock_core::driver::{DriverError, Refusal};

use crate::config::{Config, Endpoint, Layout, Tls, ValueFormat};
use crate::replicas::MinReplicas;

/// A URL that was taken apart already; everything is percent-decoded.
#[derive(Clone, Copy, Default)]
pub struct UrlParts<'a> {
    /// `redis`, `redis+unix`, `redis+sentinel`, `redis+cluster`, or one of them with `rediss`.
    pub scheme: &'a str,
    /// The part before `:` of the user information.
    pub user: Option<&'a str>,
    /// The part after it.
    pub password: Option<&'a str>,
    /// Hosts with ports, in order; empty for a unix socket.
    pub hosts: &'a [(&'a str, Option<u16>)],
    /// The path with its leading `/`: `/<db>`, the socket, or `/<master>[/<db>]`.
    pub path: &'a str,
}

impl fmt::Debug for UrlParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlParts")
            .field("scheme", &self.scheme)
            .field("user", &self.user)
            .field("password", &self.password.map(|_| "<redacted>"))
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .finish()
    }
}

/// The query parameters that [`Config::set`] knows.
pub fn parameters() -> &'static [&'static str] {
    &[
        "layout",
        "prefix",
        "value",
        "fenced",
        "db",
        "ca",
        "cert",
        "key",
        "connect_timeout",
        "timeout",
        "sentinel_user",
        "sentinel_password",
        "min_replicas",
        "pubsub",
    ]
}

const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

impl Config {
    /// From the parts of a URL. Query parameters follow with [`set`](Self::set).
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] when a part is missing or does not parse.
    pub fn from_url(url: &UrlParts<'_>) -> Result<Self, DriverError> {
        let mut words = url.path.split('/').filter(|w| !w.is_empty());
        let mut db = None;
        let (scheme, tls) = match url.scheme.strip_prefix("rediss") {
            Some(rest) => (format!("redis{rest}"), true),
            None => (url.scheme.to_owned(), false),
        };
        let endpoint = match scheme.as_str() {
            "redis" => {
                let [(host, port)] = url.hosts else {
                    return Err(invalid(
                        "redis:// takes one host; for sentinels write redis+sentinel://".into(),
                    ));
                };
                db = words.next();
                Endpoint::Tcp {
                    host: (*host).to_owned(),
                    port: port.unwrap_or(REDIS_PORT),
                }
            }
            "redis+cluster" => {
                let nodes = url
                    .hosts
                    .iter()
                    .map(|(h, p)| ((*h).to_owned(), p.unwrap_or(REDIS_PORT)));
                let nodes: Vec<_> = nodes.collect();
                if nodes.is_empty() || words.next().is_some() {
                    return Err(invalid(
                        "redis+cluster://h1,h2 takes one host or more, and no database: a cluster has only 0"
                            .into(),
                    ));
                }
                Endpoint::Cluster { nodes }
            }
            "redis+unix" if url.path.len() > 1 => Endpoint::Unix(PathBuf::from(url.path)),
            "redis+sentinel" => {
                let Some(master) = words.next() else {
                    return Err(invalid(
                        "redis+sentinel://host,host/<master> needs the master's name".into(),
                    ));
                };
                db = words.next();
                let sentinels = url
                    .hosts
                    .iter()
                    .map(|(h, p)| ((*h).to_owned(), p.unwrap_or(SENTINEL_PORT)));
                Endpoint::Sentinel {
                    sentinels: sentinels.collect(),
                    master: master.to_owned(),
                }
            }
            _ => {
                return Err(invalid(format!(
                    "{}:// is not a Redis address that is understood here",
                    url.scheme
                )));
            }
        };
        let mut config = Self::new(endpoint);
        if tls {
            config.tls = Some(Tls::default());
        }
        config.user = url.user.filter(|u| !u.is_empty()).map(str::to_owned);
        config.password = url.password.map(Secret::new);
        if let Some(db) = db {
            config.set("db", db)?;
        }
        Ok(config)
    }

    /// Sets one of the [`parameters`].
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for an unknown name, or a value out of its range; the message names both.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), DriverError> {
        let bad = |allowed: &str| invalid(format!("{name}={value}: it must be {allowed}"));
        match name {
            "layout" => {
                self.layout = match value {
                    "redisson" => Layout::Redisson,
                    "string" => Layout::String {
                        prefix: String::new(),
                        value: ValueFormat::default(),
                    },
                    _ => return Err(bad("redisson or string")),
                }
            }
            "prefix" => match &mut self.layout {
                Layout::String { prefix, .. } => value.clone_into(prefix),
                Layout::Redisson => return Err(bad("used with layout=string, given before it")),
            },
            "value" => {
                let format = match value {
                    "owner" => ValueFormat::Owner,
                    "hex" => ValueFormat::Hex,
                    _ => return Err(bad("owner or hex")),
                };
                match &mut self.layout {
                    Layout::String { value, .. } => *value = format,
                    Layout::Redisson => return Err(bad("used with layout=string, given before it")),
                }
            }
            "fenced" => match value {
                "redisson" => self.fenced = true,
                _ => return Err(bad("redisson")),
            },
            "db" if self.clustered => return Err(bad("left out: a cluster has only database 0")),
            "pubsub" if self.clustered => {
                self.sharded = match value {
                    "auto" => None,
                    "classic" => Some(false),
                    "sharded" => Some(true),
                    _ => return Err(bad("auto, classic or sharded")),
                }
            }
            "pubsub" => return Err(bad("used with redis+cluster://")),
            "db" => {
                self.db = value
                    .parse()
                    .ok()
                    .filter(|n| *n >= 0)
                    .ok_or_else(|| bad("a number from 0"))?
            }
            "ca" => self.tls.get_or_insert_default().ca = Some(value.into()),
            "cert" => self.tls.get_or_insert_default().cert = Some(value.into()),
            "key" => self.tls.get_or_insert_default().key = Some(value.into()),
            "connect_timeout" => {
                self.connect_timeout = duration(value, MINUTE).ok_or_else(|| bad("10ms to 60s"))?
            }
            "timeout" => self.timeout = duration(value, MINUTE).ok_or_else(|| bad("10ms to 60s"))?,
            "sentinel_user" => self.sentinel_user = Some(value.to_owned()),
            "sentinel_password" => self.sentinel_password = Some(Secret::new(value)),
            "min_replicas" => {
                self.min_replicas = match value {
                    "majority" => MinReplicas::Majority,
                    "all" => MinReplicas::All,
                    _ => {
                        let count = value.parse().ok().filter(|n| *n <= 64);
                        MinReplicas::Count(count.ok_or_else(|| bad("0 to 64, majority or all"))?)
                    }
                }
            }
            _ => {
                return Err(invalid(format!(
                    "unknown parameter {name}; known are {}",
                    parameters().join(", ")
                )));
            }
        }
        Ok(())
    }
}

pub(crate) fn invalid(why: String) -> DriverError {
    DriverError::refused(Refusal::InvalidConfig(why))
}

/// `250ms`, `2s`, `5m` or `1h`, from 10 ms to `most`.
pub(crate) fn duration(text: &str, most: Duration) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let number: u64 = text[..text.len() - unit.len()].parse().ok()?;
    let d = Duration::from_millis(number.checked_mul(millis)?);
    (Duration::from_millis(10)..=most).contains(&d).then_some(d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_never_shows() {
        let url = UrlParts {
            scheme: "rediss",
            user: Some("app"),
            password: Some("hunter2"),
            hosts: &[("db", None)],
            path: "/3",
        };
        let config = Config::from_url(&url).unwrap();
        assert_eq!(config.db, 3);
        assert!(config.tls.is_some());
        assert!(!format!("{config:?} {url:?} {}", config.address()).contains("hunter2"));
    }

    #[test]
    fn every_listed_parameter_is_known_and_others_are_refused() {
        for name in parameters() {
            let mut config = Config::tcp("h", 1);
            config.set("layout", "string").unwrap();
            let said = config.set(name, "\u{1}").map_err(|e| e.to_string());
            assert!(!said.is_err_and(|e| e.contains("unknown")), "{name}");
        }
        assert!(
            Config::tcp("h", 1)
                .set("layuot", "string")
                .unwrap_err()
                .to_string()
                .contains("layuot")
        );
    }

    #[test]
    fn a_sentinel_address_names_its_group() {
        let url = UrlParts {
            scheme: "redis+sentinel",
            hosts: &[("a", Some(1)), ("b", None)],
            path: "/main/2",
            ..UrlParts::default()
        };
        let config = Config::from_url(&url).unwrap();
        let sentinels = vec![("a".into(), 1), ("b".into(), 26379)];
        assert_eq!(
            config.endpoint,
            Endpoint::Sentinel {
                sentinels,
                master: "main".into()
            }
        );
        assert_eq!(config.db, 2);
        assert!(Config::from_url(&UrlParts { path: "/", ..url }).is_err());
    }
}
