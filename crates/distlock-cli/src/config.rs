//! The configuration file `distlock.toml`: named URLs, and defaults for flags.
//!
//! Where it is looked for depends on the user alone, never on a variable of the session, so that a cron job and a
//! shell read the same one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::sys;
use crate::values::{OnLost, Time, Wait};

/// What the files say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The engine when no other is named: a URL, or a name from `urls`.
    pub(crate) url: Option<String>,
    pub(crate) ttl: Option<Time>,
    pub(crate) wait: Option<Wait>,
    pub(crate) kill_after: Option<Time>,
    pub(crate) max_hold: Option<Time>,
    pub(crate) on_lost: Option<OnLost>,
    pub(crate) label: Option<String>,
    #[serde(default)]
    pub(crate) urls: BTreeMap<String, String>,
}

/// A configuration file that cannot be used; says where and why.
#[derive(Debug)]
pub(crate) struct BadConfig {
    path: PathBuf,
    why: String,
}

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why.trim_end())
    }
}

/// The system's file, then the user's.
fn places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("/etc/distlock.toml")];
    places.extend(sys::passwd_home().map(|home| home.join(".config/distlock.toml")));
    places
}

impl Config {
    /// Reads the named file, or the system's and the user's; what the user's says wins.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, BadConfig> {
        if let Some(path) = named {
            return match read(path)? {
                Some(config) => Ok(config),
                None => Err(BadConfig {
                    path: path.into(),
                    why: "there is no such file".into(),
                }),
            };
        }
        let mut all = Config::default();
        for path in places() {
            if let Some(config) = read(&path)? {
                all = config.over(all);
            }
        }
        Ok(all)
    }

    fn over(self, below: Config) -> Config {
        let mut urls = below.urls;
        urls.extend(self.urls);
        Config {
            url: self.url.or(below.url),
            ttl: self.ttl.or(below.ttl),
            wait: self.wait.or(below.wait),
            kill_after: self.kill_after.or(below.kill_after),
            max_hold: self.max_hold.or(below.max_hold),
            on_lost: self.on_lost.or(below.on_lost),
            label: self.label.or(below.label),
            urls,
        }
    }

    /// The engine's URL: what was asked for, else what the file says, with names from `urls` resolved. `None` is
    /// the default engine.
    ///
    /// # Errors
    /// When a name is unknown; lists those that are known.
    pub(crate) fn url(&self, asked: Option<&str>) -> Result<Option<String>, String> {
        let Some(url) = asked.filter(|url| !url.is_empty()).or(self.url.as_deref()) else {
            return Ok(None);
        };
        if url.contains(':') {
            return Ok(Some(url.to_owned()));
        }
        match self.urls.get(url) {
            Some(named) => Ok(Some(named.clone())),
            None if self.urls.is_empty() => Err(format!(
                "{url:?} is neither a URL (such as redis://127.0.0.1/) nor a name from [urls] in the configuration \
                 file, which has none"
            )),
            None => {
                let known: Vec<&str> = self.urls.keys().map(String::as_str).collect();
                Err(format!(
                    "{url:?} is neither a URL (such as redis://127.0.0.1/) nor one of the names in [urls]: {}",
                    known.join(", ")
                ))
            }
        }
    }
}

fn read(path: &Path) -> Result<Option<Config>, BadConfig> {
    let bad = |why: String| BadConfig {
        path: path.into(),
        why,
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => return Ok(None),
        Err(e) => return Err(bad(e.to_string())),
    };
    toml::from_str(&text).map(Some).map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_upper_file_wins_and_names_add_up() {
        let below = parse("url = 'a'\nttl = '5s'\n[urls]\na = 'redis://a/'\nb = 'redis://b/'");
        let all = parse("url = 'b'\n[urls]\nb = 'redis://B/'").over(below);
        assert_eq!(all.url(None).unwrap().as_deref(), Some("redis://B/"));
        assert_eq!(all.url(Some("a")).unwrap().as_deref(), Some("redis://a/"));
        assert_eq!(all.url(Some("etcd://h")).unwrap().as_deref(), Some("etcd://h"));
        assert_eq!(all.ttl, Some(Time(std::time::Duration::from_secs(5))));
        assert!(all.url(Some("c")).is_err_and(|e| e.contains("a, b")));
    }

    #[test]
    fn unknown_and_bad_settings_are_refused() {
        for bad in [
            "tl = '5s'",
            "ttl = 5",
            "ttl = '5'",
            "wait = 'soon'",
            "on_lost = 'x'",
        ] {
            assert!(toml::from_str::<Config>(bad).is_err(), "{bad}");
        }
    }
}
