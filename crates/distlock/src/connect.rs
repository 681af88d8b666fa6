//! From a URL to a client.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock_core::memory::Memory;
use distlock_core::{Builder, Client, Error, ErrorKind, Namespace, OnDisconnect, Survey};

use crate::location::Location;

/// The schemes, each with the feature that brings it.
const SCHEMES: &[(&str, &str)] = &[
    ("file", "file"),
    ("memory", ""),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis+unix", "redis"),
    ("redis+sentinel", "redis"),
    ("rediss+sentinel", "redis"),
    ("redis+cluster", "redis"),
    ("rediss+cluster", "redis"),
    ("redlock", "redis"),
    ("redlocks", "redis"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("zk", "zookeeper"),
    ("mysql", "sql"),
    ("mariadb", "sql"),
    ("postgres", "sql"),
    ("postgresql", "sql"),
    ("http", "http"),
    ("https", "http"),
];

/// Locks on one engine: the entry to the library. Cheap to clone; dereferences to [`Client`], which has the locks.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let locks = distlock::Locks::connect("memory:").await?;
/// let guard = locks.mutex("order:close:42").acquire().await?;
/// assert!(guard.is_held());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Locks {
    client: Client,
    /// Without secrets.
    url: Option<Arc<str>>,
}

impl Deref for Locks {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl From<Client> for Locks {
    fn from(client: Client) -> Self {
        Self { client, url: None }
    }
}

impl Locks {
    /// The locks of an engine named by its URL: `file:///dir`, `memory:`, `redis://host` …
    ///
    /// Parameters that every engine knows: `namespace=` (default `distlock`; empty for exact names), `ttl=`,
    /// `on_disconnect=hold|stop`. Others are refused unless the engine knows them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for an unknown scheme or parameter, naming the known ones;
    /// [`ErrorKind::Unsupported`] for a scheme whose cargo feature is off; [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// The locks of this host and user: the file engine in its default directory. No server needed.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::InvalidConfig`] with advice when the directory cannot be used.
    #[cfg(feature = "file")]
    pub fn local() -> Result<Self, Error> {
        Self::builder().local()
    }

    /// The engine's URL without password and parameters; `None` if the client was not made from a URL. The default
    /// engine is named with its directory.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// A client with settings.
    pub fn builder() -> LocksBuilder {
        LocksBuilder {
            builder: Client::builder(),
        }
    }
}

/// The settings of a client; see [`Locks::builder`]. What the URL says comes last and wins.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `connect` or `local` is called"]
pub struct LocksBuilder {
    builder: Builder,
}

impl LocksBuilder {
    /// The prefix of this application's records; default `distlock`; empty for exact names.
    pub fn namespace(self, name: impl AsRef<str>) -> Self {
        Self {
            builder: self.builder.namespace(name),
        }
    }

    /// A name for this process or service, shown to people who look who holds a lock.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self {
            builder: self.builder.label(label),
        }
    }

    /// The default TTL of this client's locks; 30 s if not set.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self {
            builder: self.builder.ttl(ttl),
        }
    }

    /// Collects hold times and waits by pattern of keys.
    pub fn survey(self, survey: &Survey) -> Self {
        Self {
            builder: self.builder.survey(survey),
        }
    }

    /// What a hold does when the engine does not answer.
    pub fn on_disconnect(self, what: OnDisconnect) -> Self {
        Self {
            builder: self.builder.on_disconnect(what),
        }
    }

    /// As [`Locks::connect`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn connect(self, url: &str) -> Result<Locks, Error> {
        let mut location = Location::parse(url)?;
        let builder = self.parameters(&mut location)?;
        #[cfg(feature = "file")]
        if location.scheme == "file" && matches!(location.path.as_str(), "" | "/") {
            location.path = file::default_dir()?;
        }
        let public = location.to_string();
        open(builder, location).await.map(|client| named(client, &public))
    }

    /// As [`Locks::local`].
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "file")]
    pub fn local(self) -> Result<Locks, Error> {
        let dir = file::default_dir()?;
        let config = distlock_file::Config::new(&dir);
        let client = self
            .builder
            .build_now(|engine| distlock_file::open(engine, config))?;
        Ok(named(client, &format!("file://{dir}")))
    }

    /// The parameters that every engine knows.
    pub(crate) fn parameters(self, location: &mut Location) -> Result<Builder, Error> {
        let mut builder = self.builder;
        if let Some(namespace) = location.take("namespace") {
            builder = builder.namespace(namespace);
        }
        if let Some(ttl) = location.take_duration("ttl")? {
            builder = builder.ttl(ttl);
        }
        match location.take_choice("on_disconnect", &["hold", "stop"])? {
            Some("stop") => Ok(builder.on_disconnect(OnDisconnect::Stop)),
            Some(_) => Ok(builder.on_disconnect(OnDisconnect::Hold)),
            None => Ok(builder),
        }
    }
}

/// A client and its engine's URL. The namespace is part of it: it tells one set of locks from another.
fn named(client: Client, engine: &str) -> Locks {
    let namespace = client.namespace();
    let url = match *namespace == Namespace::default() {
        true => engine.into(),
        false => format!("{engine}?namespace={namespace}").into(),
    };
    Locks {
        client,
        url: Some(url),
    }
}

async fn open(builder: Builder, location: Location) -> Result<Client, Error> {
    match location.scheme.as_str() {
        "memory" => {
            /// `memory:` is one engine per process, so that two clients in it share their locks.
            static MEMORY: OnceLock<Memory> = OnceLock::new();
            location.nothing_left(&[])?;
            builder.memory(MEMORY.get_or_init(Memory::new))
        }
        #[cfg(feature = "file")]
        "file" => file::open(builder, location),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => redis::open(builder, location).await,
        #[cfg(feature = "redis")]
        "redlock" | "redlocks" => redlock::open(builder, location).await,
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => etcd::open(builder, location).await,
        #[cfg(feature = "zookeeper")]
        "zk" => zookeeper::open(builder, location).await,
        #[cfg(feature = "sql")]
        "mysql" | "mariadb" | "postgres" | "postgresql" => {
            let config = crate::sql::of(location)?;
            builder.build(|engine| distlock_sql::open(engine, config)).await
        }
        #[cfg(feature = "http")]
        "http" | "https" => http::open(builder, location).await,
        scheme => Err(unknown(scheme)),
    }
}

fn unknown(scheme: &str) -> Error {
    let known = SCHEMES.iter().find(|(s, _)| *s == scheme);
    match known {
        Some((_, feature)) => {
            let why =
                format!("the engine {scheme}: needs the cargo feature `{feature}` of distlock, which is off");
            Error::new(ErrorKind::Unsupported, why)
        }
        None => {
            let known = SCHEMES.iter().map(|(s, _)| *s).collect::<Vec<_>>().join(", ");
            let why = format!("the engine {scheme}: is not known; the known ones are {known}");
            Error::new(ErrorKind::InvalidConfig, why)
        }
    }
}

#[cfg(feature = "file")]
mod file {
    use distlock_file::{Config, Share};

    use super::*;

    /// The default directory.
    pub(super) fn default_dir() -> Result<String, Error> {
        let dir = Config::default_dir().map_err(Error::from_driver)?;
        dir.into_os_string().into_string().map_err(|dir| {
            Error::new(
                ErrorKind::InvalidConfig,
                format!("the directory {dir:?} is not UTF-8"),
            )
        })
    }

    pub(super) fn open(builder: Builder, mut location: Location) -> Result<Client, Error> {
        let share = location.take_choice("share", &["user", "group", "all"])?;
        let network_fs = location.take_choice("network_fs", &["allow"])?.is_some();
        location.nothing_left(&["share", "network_fs"])?;
        if !location.hosts.is_empty() {
            let why = format!(
                "file: takes a path, not a host; write file:///{}",
                location.hosts.join(",")
            );
            return Err(Error::new(ErrorKind::InvalidConfig, why));
        }
        let mut config = Config::new(&location.path);
        config.share = match share {
            Some("group") => Share::Group,
            Some("all") => Share::All,
            _ => Share::User,
        };
        config.network_fs = network_fs;
        builder.build_now(|engine| distlock_file::open(engine, config))
    }
}

#[cfg(feature = "redis")]
mod redis {
    use distlock_core::driver::DriverError;
    use distlock_redis::{Config, UrlParts, parameters};

    use super::*;

    /// Reads the parts of a URL of one server or of several.
    pub(super) fn parsed<T>(
        location: &Location,
        from_url: impl FnOnce(&UrlParts<'_>) -> Result<T, DriverError>,
    ) -> Result<T, Error> {
        let hosts = location.host_ports()?;
        let hosts: Vec<_> = hosts.iter().map(|(host, port)| (host.as_str(), *port)).collect();
        let parts = UrlParts {
            scheme: &location.scheme,
            user: location.user.as_deref(),
            password: location.password.as_deref(),
            hosts: &hosts,
            path: &location.path,
        };
        from_url(&parts).map_err(Error::from_driver)
    }

    pub(super) async fn open(builder: Builder, location: Location) -> Result<Client, Error> {
        let mut config = parsed(&location, Config::from_url)?;
        location.set_all(parameters(), |name, value| {
            config.set(name, value).map_err(Error::from_driver)
        })?;
        builder.build(|engine| distlock_redis::open(engine, config)).await
    }
}

#[cfg(feature = "redis")]
mod redlock {
    use distlock_core::clock::Clock;
    use distlock_core::engine::Engine;
    use distlock_redis::{Redlock, redlock_parameters};

    use super::*;

    fn read(location: Location) -> Result<Redlock, Error> {
        let mut redlock = super::redis::parsed(&location, Redlock::from_url)?;
        location.set_all(redlock_parameters(), |name, value| {
            redlock.set(name, value).map_err(Error::from_driver)
        })?;
        Ok(redlock)
    }

    pub(super) async fn open(builder: Builder, location: Location) -> Result<Client, Error> {
        let redlock = read(location)?;
        builder
            .build(|engine| distlock_redis::open_redlock(engine, redlock))
            .await
    }

    /// Vouches for the nodes of a new Redlock deployment: none of them has forgotten a lock that is held, so they need
    /// not wait for the longest lease (`max_ttl`) before they vote. Gives their addresses.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a URL that is no `redlock://` one; [`ErrorKind::Unavailable`] when a node cannot
    /// be reached. It can be done again.
    ///
    /// # Cancel safety
    /// Safe: it can be done again.
    pub async fn vouch(url: &str) -> Result<Vec<String>, Error> {
        let mut location = Location::parse(url)?;
        if !matches!(location.scheme.as_str(), "redlock" | "redlocks") {
            let why = format!("{}: is not a quorum; write redlock://h1,h2,h3", location.scheme);
            return Err(Error::new(ErrorKind::InvalidConfig, why));
        }
        for common in ["namespace", "ttl", "on_disconnect"] {
            location.take(common);
        }
        let redlock = read(location)?;
        let started = Engine::start(Clock::boot(), Namespace::default(), None);
        let (engine, thread) = started.map_err(|e| {
            Error::new(ErrorKind::Unavailable, "the engine thread could not be started").with_source(e)
        })?;
        let told = distlock_redis::vouch(engine, &redlock).await;
        drop(thread);
        told.map_err(Error::from_driver)
    }
}

#[cfg(feature = "redis")]
pub use self::redlock::vouch;

#[cfg(feature = "etcd")]
mod etcd {
    use distlock_etcd::{Config, parameters};

    use super::*;

    pub(super) async fn open(builder: Builder, location: Location) -> Result<Client, Error> {
        if !location.path.trim_matches('/').is_empty() {
            let why = format!(
                "etcd: takes no path ({}); namespace= is the prefix of the keys",
                location.path
            );
            return Err(Error::new(ErrorKind::InvalidConfig, why));
        }
        let mut config = Config::new(location.hosts.iter().map(String::as_str));
        if let Some(user) = &location.user {
            config = config.user(user, location.password.clone().unwrap_or_default());
        }
        if location.scheme == "etcds" {
            config = config.tls();
        }
        location.set_all(parameters(), |name, value| {
            config.set(name, value).map_err(Error::from_driver)
        })?;
        builder.build(|engine| distlock_etcd::open(engine, config)).await
    }
}

#[cfg(feature = "zookeeper")]
mod zookeeper {
    use distlock_zookeeper::{Config, Secret, parameters};

    use super::*;

    pub(super) async fn open(builder: Builder, location: Location) -> Result<Client, Error> {
        let mut config = Config::new(location.hosts.iter().map(String::as_str));
        config.chroot.clone_from(&location.path);
        if let Some(user) = &location.user {
            let password = location.password.as_deref().unwrap_or_default();
            config.auth = Some(Secret::new(format!("{user}:{password}")));
        }
        location.set_all(parameters(), |name, value| {
            config.set(name, value).map_err(Error::from_driver)
        })?;
        builder
            .build(|engine| distlock_zookeeper::open(engine, config))
            .await
    }
}

#[cfg(feature = "http")]
mod http {
    use distlock_http::{Config, parameters};

    use super::*;

    pub(super) async fn open(builder: Builder, location: Location) -> Result<Client, Error> {
        let mut config = Config::new(location.hosts.iter().map(String::as_str)).path(&location.path);
        if location.scheme == "https" {
            config = config.tls();
        }
        // A token alone, or one in the place of a password.
        if let Some(token) = location.password.as_ref().or(location.user.as_ref()) {
            config = config.token(token);
        }
        location.set_all(parameters(), |name, value| {
            config.set(name, value).map_err(Error::from_driver)
        })?;
        builder.build(|engine| distlock_http::open(engine, config)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_engine_or_parameter_names_the_known_ones() {
        let refused = async |url| Locks::connect(url).await.unwrap_err();
        let e = refused("bogus://h").await;
        assert_eq!(e.kind(), ErrorKind::InvalidConfig);
        let text = e.to_string();
        assert!(
            text.contains("bogus") && text.contains("redis+sentinel"),
            "{text}"
        );
        let text = refused("memory:?colour=red").await.to_string();
        assert!(text.contains("colour") && text.contains("namespace"), "{text}");
        if cfg!(not(feature = "redis")) {
            let e = refused("redis://h").await;
            assert_eq!(e.kind(), ErrorKind::Unsupported);
            assert!(e.to_string().contains("feature `redis`"), "{e}");
        }
    }
}
