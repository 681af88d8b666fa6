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

    /// Its URL; `None` is the default engine.
    #[cfg(feature = "sql")]
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
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

    /// Makes a client of another namespace of it.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub(crate) async fn connect_to(&self, namespace: &str) -> Result<Locks, Error> {
        let url = self.url.as_deref().unwrap_or("file:");
        // What the URL says comes last and wins: so it must not say another one.
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let rest: Vec<&str> = query
            .split('&')
            .filter(|p| !p.is_empty() && !p.starts_with("namespace="))
            .collect();
        let url = if rest.is_empty() {
            url.to_owned()
        } else {
            format!("{url}?{}", rest.join("&"))
        };
        Locks::builder()
            .label("gateway")
            .namespace(namespace)
            .connect(&url)
            .await
    }

    /// The engine's URL without secrets, the same for all that mean the same engine.
    pub(crate) fn public_url(&self, locks: &Locks) -> String {
        locks.url().unwrap_or("file:").to_owned()
    }
}

/// How long clean-up may take at the end.
pub(crate) const GOODBYE: Duration = Duration::from_secs(2);
