//! The configuration as a URL says it.

use std::time::Duration;

use distlock_core::Secret;
use distlock_core::driver::DriverError;

use super::{Config, Dialect, Host, Layout, invalid};

const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// The query parameters that [`Config::set`] knows.
pub fn parameters() -> &'static [&'static str] {
    &[
        "mode",
        "layout",
        "table",
        "create",
        "tls",
        "ca",
        "cert",
        "key",
        "connections",
        "connect_timeout",
        "timeout",
        "purge_after",
    ]
}

impl Config {
    /// From the parts of a URL, percent-decoded already: `mysql://` or `postgres://`, user information, hosts with
    /// ports (none: the host `127.0.0.1`; a host that starts with `/` is a unix socket) and the path, which names
    /// the database. Query parameters follow with [`set`](Self::set).
    ///
    /// # Errors
    /// [`InvalidConfig`](distlock_core::driver::Refusal::InvalidConfig) for another scheme.
    pub fn from_url(
        scheme: &str,
        user: Option<&str>,
        password: Option<&str>,
        hosts: &[(&str, Option<u16>)],
        path: &str,
    ) -> Result<Self, DriverError> {
        let dialect = match scheme {
            "postgres" | "postgresql" => Dialect::Postgres,
            "mysql" | "mariadb" => Dialect::Mysql,
            other => {
                return Err(invalid(format!(
                    "{other}:// is not a database; use mysql:// or postgres://"
                )));
            }
        };
        let mut config = Self::new(dialect);
        config.user = user.filter(|u| !u.is_empty()).map(Into::into);
        config.password = password.map(Secret::new);
        config.database = Some(path.trim_matches('/'))
            .filter(|d| !d.is_empty())
            .map(Into::into);
        let named: Vec<Host> = hosts
            .iter()
            .filter(|(host, _)| !host.is_empty())
            .map(|&(host, port)| match host.starts_with('/') {
                true => Host::Unix(host.into()),
                false => Host::Tcp(host.into(), port.unwrap_or(dialect.port())),
            })
            .collect();
        if !named.is_empty() {
            config.hosts = named;
        }
        Ok(config)
    }

    /// Sets one query parameter of a URL; see [`parameters`].
    ///
    /// # Errors
    /// [`InvalidConfig`](distlock_core::driver::Refusal::InvalidConfig) for an unknown name or a value out of range; it says what is allowed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), DriverError> {
        match name {
            "mode" => match (value, self.layout) {
                ("row", Layout::Session) => self.layout = Layout::Row,
                ("row", _) => {}
                ("session", Layout::ShedLock) => return Err(shedlock_has_rows()),
                ("session", _) => self.layout = Layout::Session,
                _ => return Err(invalid(format!("mode={value}: it may be row or session"))),
            },
            "layout" => match (value, self.layout) {
                ("distlock", Layout::ShedLock) => self.layout = Layout::Row,
                ("distlock", _) => {}
                ("shedlock", Layout::Session) => return Err(shedlock_has_rows()),
                ("shedlock", _) => *self = self.clone().layout(Layout::ShedLock),
                _ => return Err(invalid(format!("layout={value}: it may be distlock or shedlock"))),
            },
            "table" => {
                self.table = value.into();
                self.quoted_table()?;
            }
            "create" => self.create = boolean(name, value)?,
            "tls" => {
                self.tls = match boolean(name, value)? {
                    true => Some(self.tls.take().unwrap_or_default()),
                    false => None,
                }
            }
            "ca" => self.tls.get_or_insert_default().ca = Some(value.into()),
            "cert" => self.tls.get_or_insert_default().cert = Some(value.into()),
            "key" => self.tls.get_or_insert_default().key = Some(value.into()),
            "connections" => {
                self.connections = value
                    .parse()
                    .ok()
                    .filter(|n| (1..=1000).contains(n))
                    .ok_or_else(|| invalid(format!("connections={value}: it may be 1 to 1000")))?;
            }
            "connect_timeout" => self.connect_timeout = duration(name, value, MAX_TIMEOUT)?,
            "timeout" => self.timeout = duration(name, value, MAX_TIMEOUT)?,
            "purge_after" => self.purge_after = duration(name, value, distlock_core::driver::MAX_TTL)?,
            _ => {
                let known = parameters().join(", ");
                return Err(invalid(format!("unknown parameter {name}; known are {known}")));
            }
        }
        Ok(())
    }
}

fn shedlock_has_rows() -> DriverError {
    invalid("layout=shedlock keeps locks as rows; it cannot be combined with mode=session".into())
}

fn boolean(name: &str, value: &str) -> Result<bool, DriverError> {
    match value {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(invalid(format!("{name}={value}: it may be true or false"))),
    }
}

/// `500ms`, `5s`, `10m`, `24h`, `7d`.
fn duration(name: &str, value: &str, max: Duration) -> Result<Duration, DriverError> {
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let unit = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60 * 1000),
        "h" => Some(3600 * 1000),
        "d" => Some(24 * 3600 * 1000),
        _ => None,
    };
    let millis = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
    millis
        .map(Duration::from_millis)
        .filter(|d| *d >= Duration::from_millis(1) && *d <= max)
        .ok_or_else(|| {
            invalid(format!(
                "{name}={value}: it may be 1ms to {max:?}, written like 500ms, 5s or 10m"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_hosts_sockets_and_parameters() {
        let hosts = [("db1", None), ("db2", Some(6000))];
        let mut config = Config::from_url("postgres", Some("app"), Some("s3cret"), &hosts, "/shop").unwrap();
        config.set("table", "ops.locks").unwrap();
        config.set("timeout", "750ms").unwrap();
        assert_eq!(
            config.hosts,
            [Host::Tcp("db1".into(), 5432), Host::Tcp("db2".into(), 6000)]
        );
        assert_eq!(config.quoted_table().unwrap(), "\"ops\".\"locks\"");
        assert_eq!(config.timeout, Duration::from_millis(750));
        assert!(!format!("{config:?}").contains("s3cret"));
        let socket =
            Config::from_url("mysql", None, None, &[("/run/mysqld/mysqld.sock", None)], "/d").unwrap();
        assert_eq!(socket.hosts, [Host::Unix("/run/mysqld/mysqld.sock".into())]);
    }

    #[test]
    fn bad_values_say_what_is_allowed() {
        let mut config = Config::new(Dialect::Mysql);
        for (name, value, says) in [
            ("mode", "x", "row or session"),
            ("table", "a b", "ASCII letters"),
            ("table", "a`; DROP", "ASCII letters"),
            ("timeout", "0s", "1ms to"),
            ("timeout", "5", "1ms to"),
            ("connections", "0", "1 to 1000"),
            ("colour", "red", "known are mode"),
        ] {
            let e = config.set(name, value).unwrap_err();
            assert!(e.to_string().contains(says), "{name}={value}: {e}");
        }
    }
}
