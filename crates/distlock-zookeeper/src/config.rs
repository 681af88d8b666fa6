//! What the engine needs to know to open.

use std::time::Duration;

use distlock_core::Secret;
use distlock_core::driver::{DriverError, Refusal};

/// The port of a host that names none.
const PORT: u16 = 2181;

/// How to reach an ensemble.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The servers, each `host:port`.
    pub hosts: Vec<String>,
    /// The path under which everything is kept, such as `/apps/shop`; the root if empty. Missing parts are created.
    pub chroot: String,
    /// `user:password`.
    pub auth: Option<Secret>,
    /// How user and password are shown.
    pub scheme: Scheme,
    /// Who may read and write the nodes that we create.
    pub acl: Acl,
    /// Whether locks are shared with clients that use other names than Curator's.
    pub bridge: Bridge,
    /// The session timeout to ask for. The servers have the last word (by default 2 to 20 of their ticks).
    pub session_timeout: Duration,
    /// How long the first connection may take.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// How a client tells the servers who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// The servers' own scheme `digest`. They know no accounts: whoever names the same user and password is the same.
    /// Both travel in clear text.
    #[default]
    Digest,
    /// SASL with DIGEST-MD5, for accounts that the servers know (their JAAS configuration); the password does not
    /// travel. Needs the cargo feature `sasl`.
    Sasl,
}

/// The access rights of the nodes that we create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acl {
    /// Everybody, as Curator creates them by default.
    #[default]
    Open,
    /// Only those who authenticate as we do ([`Config::auth`]). Contenders without those rights cannot wait.
    Creator,
}

/// Which other names for the nodes of a mutex count as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bridge {
    /// Curator's names alone.
    #[default]
    None,
    /// kazoo's `Lock` as well: a mutex is held by a node in either line, so it excludes Curator and kazoo (but these two do
    /// not exclude each other). A second node for each contender, and no other kinds of locks.
    Kazoo,
}

/// The names that [`Config::set`] knows.
pub fn parameters() -> &'static [&'static str] {
    &[
        "session_timeout",
        "connect_timeout",
        "timeout",
        "acl",
        "auth",
        "bridge",
    ]
}

impl Config {
    /// The defaults for these servers (`host` or `host:port`).
    pub fn new(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let with_port = |host: String| match host.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => host,
            _ => format!("{host}:{PORT}"),
        };
        Self {
            hosts: hosts.into_iter().map(|host| with_port(host.into())).collect(),
            chroot: String::new(),
            auth: None,
            scheme: Scheme::default(),
            acl: Acl::default(),
            bridge: Bridge::default(),
            session_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
        }
    }

    /// Sets one of the [`parameters`] from text.
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for an unknown name or a value that is not allowed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), DriverError> {
        let span = || {
            duration(value).ok_or_else(|| {
                invalid(format!(
                    "{name}={value}: write 10ms to 3600s, such as 250ms or 30s"
                ))
            })
        };
        match name {
            "session_timeout" => self.session_timeout = span()?,
            "connect_timeout" => self.connect_timeout = span()?,
            "timeout" => self.timeout = span()?,
            "acl" => {
                self.acl = match value {
                    "open" => Acl::Open,
                    "creator" => Acl::Creator,
                    _ => return Err(invalid(format!("acl={value}: write open or creator"))),
                }
            }
            "bridge" => {
                self.bridge = match value {
                    "none" => Bridge::None,
                    "kazoo" => Bridge::Kazoo,
                    _ => return Err(invalid(format!("bridge={value}: write none or kazoo"))),
                }
            }
            "auth" => {
                self.scheme = match value {
                    "digest" => Scheme::Digest,
                    "sasl" => Scheme::Sasl,
                    _ => return Err(invalid(format!("auth={value}: write digest or sasl"))),
                }
            }
            _ => {
                let known = parameters().join(", ");
                return Err(invalid(format!("unknown parameter {name}; known are {known}")));
            }
        }
        Ok(())
    }

    /// The servers, for people: no secrets.
    pub fn address(&self) -> String {
        format!("{}{}", self.hosts.join(","), self.chroot)
    }

    /// Refuses what cannot work, and gives the chroot its one form (empty, or `/a/b`).
    pub(crate) fn checked(mut self) -> Result<Self, DriverError> {
        if self.hosts.is_empty() {
            return Err(invalid("no servers: write zk://host1,host2,host3/chroot".into()));
        }
        if self.acl == Acl::Creator && self.auth.is_none() {
            return Err(invalid("acl=creator needs a user and a password".into()));
        }
        if self.scheme == Scheme::Sasl {
            if self.auth.is_none() {
                return Err(invalid("auth=sasl needs a user and a password".into()));
            }
            if cfg!(not(feature = "sasl")) {
                let why = "auth=sasl needs the cargo feature `sasl` of distlock-zookeeper, which is off";
                return Err(DriverError::refused(Refusal::Unsupported(why.into())));
            }
        }
        let chroot = self.chroot.trim_matches('/');
        if chroot.is_empty() {
            self.chroot.clear();
            return Ok(self);
        }
        if let Some(part) = chroot.split('/').find(|part| !crate::path::storable(part)) {
            return Err(invalid(format!(
                "the chroot {:?} has a part {part:?} that ZooKeeper cannot store",
                self.chroot
            )));
        }
        self.chroot = format!("/{chroot}");
        Ok(self)
    }
}

fn invalid(why: String) -> DriverError {
    DriverError::refused(Refusal::InvalidConfig(why))
}

/// `250ms` or `2s`, from 10 ms to an hour.
fn duration(text: &str) -> Option<Duration> {
    let d = match text.strip_suffix("ms") {
        Some(n) => Duration::from_millis(n.parse().ok()?),
        None => Duration::from_secs(text.strip_suffix('s')?.parse().ok()?),
    };
    (Duration::from_millis(10)..=Duration::from_secs(3600))
        .contains(&d)
        .then_some(d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_never_shows() {
        let mut config = Config::new(["a", "b:1"]);
        config.auth = Some(Secret::new("app:hunter2"));
        assert_eq!(config.hosts, ["a:2181", "b:1"]);
        assert!(!format!("{config:?} {}", config.address()).contains("hunter2"));
    }

    #[test]
    fn every_listed_parameter_is_known_and_others_are_refused() {
        for name in parameters() {
            let said = Config::new(["h"]).set(name, "\u{1}").map_err(|e| e.to_string());
            assert!(said.is_err_and(|e| !e.contains("unknown")), "{name}");
        }
        let said = Config::new(["h"]).set("sesion_timeout", "1s");
        assert!(said.is_err_and(|e| e.to_string().contains("sesion_timeout")));
    }

    #[test]
    fn sasl_is_refused_without_an_account() {
        let mut config = Config::new(["h"]);
        config.set("auth", "sasl").unwrap();
        assert!(config.checked().is_err_and(|e| e.to_string().contains("user")));
    }

    #[test]
    fn a_chroot_has_one_form() {
        let mut config = Config::new(["h"]);
        config.chroot = "/apps/shop/".into();
        assert_eq!(config.clone().checked().unwrap().chroot, "/apps/shop");
        config.chroot = "/".into();
        assert_eq!(config.clone().checked().unwrap().chroot, "");
        config.chroot = "/a/../b".into();
        assert!(config.checked().is_err());
        assert!(Config::new(Vec::<String>::new()).checked().is_err());
    }
}
