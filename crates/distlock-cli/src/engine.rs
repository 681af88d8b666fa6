//! The engine that was chosen by URL.

use std::time::Duration;

use distlock::Locks;
use distlock_core::Error;

/// An engine that is not contacted yet.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    /// `None`: the default, this user's directory on this host.
    url: Option<String>,
}

impl Engine {
    pub(crate) fn new(url: Option<String>) -> Self {
        Self { url }
    }

    /// Makes a client of it.
    ///
    /// # Errors
    /// What the library says about the URL or the engine.
    pub(crate) async fn connect(&self, label: Option<&str>) -> Result<Locks, Error> {
        let mut builder = Locks::builder();
        if let Some(label) = label {
            builder = builder.label(label);
        }
        match &self.url {
            Some(url) => builder.connect(url).await,
            // No path: the default directory.
            None => builder.connect("file:").await,
        }
    }

    /// The engine's URL without secrets, the same for all that mean the same engine.
    pub(crate) fn public_url(&self, _: &Locks) -> String {
        match &self.url {
            Some(url) => without_secrets(url),
            None => "file:".into(),
        }
    }
}

/// The URL without user, password and fragment.
fn without_secrets(url: &str) -> String {
    let url = url.split('#').next().unwrap_or(url);
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    // The last `@`: a password may contain one.
    let hosts = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{hosts}{path}")
}

/// How long clean-up may take at the end.
pub(crate) const GOODBYE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_has_no_password() {
        assert_eq!(
            without_secrets("redis://me:p@ss@h:1/2?ttl=5s"),
            "redis://h:1/2?ttl=5s"
        );
        assert_eq!(without_secrets("redis://:pw@a,b?x=y@z"), "redis://a,b?x=y@z");
        assert_eq!(without_secrets("file:///var/lib/x"), "file:///var/lib/x");
        assert_eq!(without_secrets("memory:"), "memory:");
    }
}
