//! Where the gateways are, and how to speak to them.

use std::path::PathBuf;
use std::time::Duration;

use distlock_core::Secret;
use distlock_core::driver::{DriverError, Refusal};

/// How to reach a lock service.
#[derive(Debug, Clone)]
pub struct Config {
    /// The gateways, each `host` or `host:port`: the next one is asked when one cannot be reached.
    pub(crate) hosts: Vec<String>,
    pub(crate) tls: bool,
    /// Before `/v1`, behind a proxy.
    pub(crate) path: String,
    pub(crate) token: Option<Secret>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
}

/// The query parameters that [`Config::set`] knows.
pub fn parameters() -> &'static [&'static str] {
    &["token_file", "ca", "cert", "key", "timeout", "connect_timeout"]
}

pub(crate) fn invalid(why: impl Into<String>) -> DriverError {
    DriverError::refused(Refusal::InvalidConfig(why.into()))
}

impl Config {
    /// Gateways on one engine, each `host` or `host:port` (default 7466, with TLS 443).
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            tls: false,
            path: String::new(),
            token: None,
            token_file: None,
            ca: None,
            cert: None,
            key: None,
            timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(3),
        }
    }

    /// Speaks TLS.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// The path before `/v1`, for a gateway behind a proxy.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = path.trim_end_matches('/').to_owned();
        self
    }

    /// Shows this token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Secret::new(token));
        self
    }

    /// Sets what a query parameter says.
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for an unknown parameter or a value that does not parse.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), DriverError> {
        let time = || {
            humantime::parse_duration(value)
                .ok()
                .filter(|d| !d.is_zero())
                .ok_or_else(|| invalid(format!("{name}={value} is not a time such as 5s or 500ms")))
        };
        match name {
            "token_file" => self.token_file = Some(value.into()),
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "timeout" => self.timeout = time()?,
            "connect_timeout" => self.connect_timeout = time()?,
            _ => {
                let known = parameters().join(", ");
                return Err(invalid(format!(
                    "{name}= is not known; the known ones are {known}"
                )));
            }
        }
        Ok(())
    }
}
