//! What a client of an etcd cluster needs to know.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use distlock_core::driver::{DriverError, Refusal};

/// The port on which etcd serves clients.
const ETCD_PORT: u16 = 2379;

/// Where an etcd cluster is, and how to sign in to it.
///
/// ```
/// use std::time::Duration;
/// let config = distlock_etcd::Config::new(["10.0.0.1", "10.0.0.2:2379", "10.0.0.3"])
///     .user("locks", "secret")
///     .timeout(Duration::from_secs(2));
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until it is opened"]
pub struct Config {
    pub(crate) endpoints: Vec<String>,
    pub(crate) account: Option<(String, String)>,
    pub(crate) tls: bool,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
}

/// The query parameters that [`Config::set`] knows.
pub fn parameters() -> &'static [&'static str] {
    &["ca", "cert", "key", "server_name", "timeout", "connect_timeout"]
}

fn invalid(why: String) -> DriverError {
    DriverError::refused(Refusal::InvalidConfig(why))
}

impl Config {
    /// The members' addresses, each `host` or `host:port`; without TLS. One is enough, more are used in turn when
    /// one does not answer.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            account: None,
            tls: false,
            ca: None,
            cert: None,
            key: None,
            server_name: None,
            timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(2),
        }
    }

    /// Signs in as this user.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.account = Some((name.into(), password.into()));
        self
    }

    /// Speaks TLS (scheme `etcds`). The servers' certificates are checked against the system's authorities unless
    /// [`ca`](Self::ca) names others.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// The authorities (PEM file) that sign the servers' certificates. Implies TLS.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self.tls()
    }

    /// Our own certificate and its key (PEM files), for servers that ask for one. Implies TLS.
    pub fn identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.cert = Some(cert.into());
        self.key = Some(key.into());
        self.tls()
    }

    /// The name that the servers' certificates must carry, if it is not the host's.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// How long one request may take before another endpoint is asked; default 3 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a connection may take to be made; default 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets a parameter by its name in a URL; see [`parameters`].
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for an unknown name or a bad value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), DriverError> {
        match name {
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "server_name" => self.server_name = Some(value.to_owned()),
            "timeout" => self.timeout = duration(name, value)?,
            "connect_timeout" => self.connect_timeout = duration(name, value)?,
            _ => {
                let known = parameters().join(", ");
                return Err(invalid(format!(
                    "the etcd engine has no parameter {name:?}; it has {known}"
                )));
            }
        }
        self.tls |= matches!(name, "ca" | "cert" | "key");
        Ok(())
    }

    /// Checks what can be checked without the network.
    pub(crate) fn check(&self) -> Result<(), DriverError> {
        if self.endpoints.is_empty() {
            return Err(invalid("etcd needs at least one host".into()));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(invalid(
                "cert= and key= go together; only one of them is set".into(),
            ));
        }
        for (name, value) in [
            ("timeout", self.timeout),
            ("connect_timeout", self.connect_timeout),
        ] {
            if value < Duration::from_millis(50) || value > Duration::from_secs(600) {
                return Err(invalid(format!(
                    "{name}={value:?} is out of its range of 50ms to 10m"
                )));
            }
        }
        Ok(())
    }

    /// The endpoints as `http://` or `https://` addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = String> + '_ {
        let scheme = if self.tls { "https" } else { "http" };
        self.endpoints.iter().map(move |host| {
            let port = match host.rsplit_once(':') {
                // The colons of an IPv6 address stand in brackets.
                Some((_, port)) => port.chars().all(|c| c.is_ascii_digit()) && !port.is_empty(),
                None => false,
            };
            if port {
                format!("{scheme}://{host}")
            } else {
                format!("{scheme}://{host}:{ETCD_PORT}")
            }
        })
    }
}

fn duration(name: &str, value: &str) -> Result<Duration, DriverError> {
    let (number, unit) = value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()));
    let number: u64 = number
        .parse()
        .map_err(|_| invalid(format!("{name}={value} is not a duration")))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err(invalid(format!(
            "{name}={value} is not a duration such as 500ms, 3s or 1m"
        ))),
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("endpoints", &self.endpoints)
            .field("user", &self.account.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_get_the_usual_port() {
        let addresses: Vec<_> = Config::new(["a", "b:1", "[::1]", "[::1]:2"])
            .addresses()
            .collect();
        assert_eq!(
            addresses,
            [
                "http://a:2379",
                "http://b:1",
                "http://[::1]:2379",
                "http://[::1]:2"
            ]
        );
        assert_eq!(
            Config::new(["a"]).tls().addresses().next().unwrap(),
            "https://a:2379"
        );
    }

    #[test]
    fn parameters_are_known_checked_and_secret() {
        let mut config = Config::new(["a"]).user("u", "hunter2");
        for name in parameters() {
            config.set(name, "1s").unwrap();
        }
        assert_eq!(config.timeout, Duration::from_secs(1));
        assert!(config.set("ttl", "1s").is_err());
        assert!(config.set("timeout", "1h").is_err());
        assert!(config.set("timeout", "soon").is_err());
        assert!(!format!("{config:?}").contains("hunter2"));
        let mut half = Config::new(["a"]);
        half.set("cert", "c.pem").unwrap();
        assert!(half.check().is_err());
        assert!(Config::new(Vec::<String>::new()).check().is_err());
    }
}
