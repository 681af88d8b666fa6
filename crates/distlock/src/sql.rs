//! What the SQL engines have besides locks: their configuration and table, locks and fencing gates inside a transaction
//! of one's own ([`tx`]), optimistic work ([`versioned`]).

use distlock_core::Error;
pub use distlock_sql::{Config, Dialect, Host, Layout, Migration, Secret, Tls, migrate, tx, versioned};

use crate::connect::Locks;
use crate::location::Location;

/// The configuration that a `mysql://` or `postgres://` URL means, for [`migrate`] and [`Config::schema`]. Contacts
/// nothing.
///
/// ```
/// let config = distlock::sql::config("postgres://app@db1/shop?table=ops.locks")?;
/// assert!(config.schema().is_ok_and(|ddl| ddl.contains("CREATE TABLE")));
/// # Ok::<(), distlock::Error>(())
/// ```
///
/// # Errors
/// [`InvalidConfig`](distlock_core::ErrorKind::InvalidConfig) as [`Locks::connect`].
pub fn config(url: &str) -> Result<Config, Error> {
    let mut location = Location::parse(url)?;
    // What every engine knows is checked, and says nothing about the table.
    let _ = Locks::builder().parameters(&mut location)?;
    of(location)
}

pub(crate) fn of(location: Location) -> Result<Config, Error> {
    let hosts = location.host_ports()?;
    let hosts: Vec<_> = hosts.iter().map(|(host, port)| (host.as_str(), *port)).collect();
    let (user, password) = (location.user.as_deref(), location.password.as_deref());
    let mut config = Config::from_url(&location.scheme, user, password, &hosts, &location.path)
        .map_err(Error::from_driver)?;
    location.set_all(distlock_sql::parameters(), |name, value| {
        config.set(name, value).map_err(Error::from_driver)
    })?;
    Ok(config)
}
