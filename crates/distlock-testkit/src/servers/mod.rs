//! Real servers for tests: each is a child process on free loopback ports with temporary data, killed when dropped.
//!
//! ```no_run
//! # async fn example() -> Result<(), distlock_testkit::servers::StartError> {
//! use distlock_testkit::servers::{Data, Redis};
//! let mut redis = Redis::start().await?;
//! println!("{}", redis.url());
//! redis.pause()?; // SIGSTOP
//! redis.resume()?;
//! redis.kill9()?;
//! redis.restart(Data::Keep).await?;
//! # Ok(()) }
//! ```
//!
//! A machine without the server: [`or_skip`] prints a line with a count and gives `None`, and fails instead when
//! `DISTLOCK_REQUIRE=all` is set.

mod disk;
mod etcd;
mod faketime;
mod find;
mod mariadb;
mod netns;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod program;
mod redis;
mod setup;
mod skip;
mod spawn;
mod tls;
mod tree;
mod zookeeper;

pub use self::disk::SmallDisk;
pub use self::etcd::Etcd;
pub use self::faketime::FakeClock;
pub use self::find::find;
pub use self::mariadb::MariaDb;
pub use self::netns::{Cut, Net};
pub use self::pgbouncer::PgBouncer;
pub use self::port::Port;
pub use self::postgres::Postgres;
pub use self::process::Process;
pub use self::program::{Data, Program, StartError, eventually};
pub use self::redis::{Redis, RedisCluster, RedisOptions, RedisSentinel, Resp, RespClient};
pub use self::setup::Setup;
pub use self::skip::{or_skip, skip, skipped};
pub(crate) use self::spawn::spawn;
pub use self::tls::Certificates;
pub use self::zookeeper::ZooKeeper;
