//! The URL of an engine, taken apart.

use std::fmt;
use std::time::Duration;

use distlock_core::{Error, ErrorKind};
use percent_encoding::percent_decode_str;

/// `scheme://[user[:password]@]host[:port][,host…][/path][?name=value&…]`, with `%` escapes decoded.
///
/// Not a general URL: several hosts may stand in one (as in MongoDB's and PostgreSQL's), and the password is
/// never shown.
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) path: String,
    pub(crate) parameters: Vec<(String, String)>,
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Without secrets: neither password nor parameters.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if self.scheme != "memory" {
            f.write_str("//")?;
        }
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        write!(f, "{}{}", self.hosts.join(","), self.path)
    }
}

fn bad(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, why)
}

fn decode(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(Into::into)
        .map_err(|_| bad("a part of the URL is not UTF-8 after its % escapes are decoded"))
}

impl Location {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url
            .split_once(':')
            .filter(|(s, _)| {
                !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
            })
            .ok_or_else(|| {
                bad("the engine's URL has no scheme (write, for instance, file:///var/lib/locks)")
            })?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            None => ("", rest),
            Some(rest) => rest.find('/').map_or((rest, ""), |at| rest.split_at(at)),
        };
        let (account, hosts) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(a, h)| (Some(a), h));
        let (user, password) = match account {
            None => (None, None),
            Some(account) => match account.split_once(':') {
                None => (Some(decode(account)?), None),
                Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
            },
        };
        let parameters = query.split('&').filter(|p| !p.is_empty()).map(|p| {
            let (name, value) = p.split_once('=').unwrap_or((p, ""));
            Ok((decode(name)?, decode(value)?))
        });
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user: user.filter(|u| !u.is_empty()),
            password,
            hosts: hosts
                .split(',')
                .filter(|h| !h.is_empty())
                .map(decode)
                .collect::<Result<_, _>>()?,
            path: decode(path)?,
            parameters: parameters.collect::<Result<_, Error>>()?,
        })
    }

    /// Takes a parameter out; the last one of a name counts.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let found = self
            .parameters
            .iter()
            .rfind(|(n, _)| n == name)
            .map(|(_, v)| v.clone());
        self.parameters.retain(|(n, _)| n != name);
        found
    }

    pub(crate) fn take_duration(&mut self, name: &str) -> Result<Option<Duration>, Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let d = humantime::parse_duration(&value);
        d.map(Some).map_err(|e| {
            bad(format!(
                "the URL parameter {name}={value} is not a duration such as 30s: {e}"
            ))
        })
    }

    /// Takes a parameter with one of these values.
    pub(crate) fn take_choice(
        &mut self,
        name: &str,
        choices: &[&'static str],
    ) -> Result<Option<&'static str>, Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let found = choices.iter().find(|c| **c == value).copied();
        found.map(Some).ok_or_else(|| {
            bad(format!(
                "the URL parameter {name}={value} is not known; it may be {}",
                choices.join(", ")
            ))
        })
    }

    /// The hosts, each with its port if it has one. IPv6 addresses stand in brackets.
    pub(crate) fn host_ports(&self) -> Result<Vec<(String, Option<u16>)>, Error> {
        let split = |host: &String| {
            let (name, port) = match host.rsplit_once(':') {
                Some((name, port)) if !port.contains(']') => (name, Some(port)),
                _ => (host.as_str(), None),
            };
            let port = port.map(|p| {
                p.parse()
                    .map_err(|_| bad(format!("{p:?} is not a port (1 to 65535) in {host}")))
            });
            Ok((name.trim_matches(['[', ']']).to_owned(), port.transpose()?))
        };
        self.hosts.iter().map(split).collect()
    }

    /// Hands each parameter to its engine, in the order of `known`; refuses the others.
    pub(crate) fn set_all(
        mut self,
        known: &[&str],
        mut set: impl FnMut(&str, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for name in known {
            if let Some(value) = self.take(name) {
                set(name, &value)?;
            }
        }
        self.nothing_left(known)
    }

    /// Refuses what was not taken.
    pub(crate) fn nothing_left(&self, known: &[&str]) -> Result<(), Error> {
        let Some((name, _)) = self.parameters.first() else {
            return Ok(());
        };
        let known = ["namespace", "ttl", "on_disconnect"]
            .iter()
            .chain(known)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        Err(bad(format!(
            "the URL parameter {name} is not known to {}: the known ones are {known}",
            self.scheme
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_shown_without_secrets() {
        let mut l =
            Location::parse("redis+sentinel://me:p%40ss@h1:1,h2/master?namespace=shop&ttl=5s").unwrap();
        assert_eq!(l.user.as_deref(), Some("me"));
        assert_eq!(l.password.as_deref(), Some("p@ss"));
        assert_eq!(l.hosts, ["h1:1", "h2"]);
        assert_eq!(l.path, "/master");
        assert_eq!(l.to_string(), "redis+sentinel://me@h1:1,h2/master");
        assert_eq!(l.take("namespace").as_deref(), Some("shop"));
        assert_eq!(l.take_duration("ttl").unwrap(), Some(Duration::from_secs(5)));
        l.nothing_left(&[]).unwrap();
    }

    #[test]
    fn odd_urls_say_what_is_wrong() {
        assert!(
            Location::parse("/var/lib")
                .unwrap_err()
                .to_string()
                .contains("no scheme")
        );
        let l = Location::parse("file:///a?colour=red").unwrap();
        let e = l.nothing_left(&["share"]).unwrap_err().to_string();
        assert!(e.contains("colour") && e.contains("share"), "{e}");
        let mut l = Location::parse("memory:?ttl=soon").unwrap();
        assert!(
            l.take_duration("ttl")
                .unwrap_err()
                .to_string()
                .contains("ttl=soon")
        );
    }
}
