//! Servers and drivers for the tests.

use std::time::Duration;

use distlock_sql::{Config, Dialect};
use distlock_testkit::servers::{MariaDb, Postgres, Process, Setup, eventually, or_skip};

/// A server of either dialect, of one's own.
pub(crate) enum Server {
    Postgres(Postgres),
    Mysql(MariaDb),
    /// The database that `DISTLOCK_TEST_MYSQL_URL` names.
    External,
}

impl Server {
    pub(crate) async fn start(dialect: Dialect) -> Option<Self> {
        Self::start_with(dialect, Setup::default()).await
    }

    /// The one that many tests share.
    pub(crate) async fn shared(dialect: Dialect) -> Option<Self> {
        match (dialect, external()) {
            (Dialect::Mysql, Some(_)) => Some(Self::External),
            _ => Self::start(dialect).await,
        }
    }

    /// With its own settings, variables or place.
    pub(crate) async fn start_with(dialect: Dialect, setup: Setup) -> Option<Self> {
        Some(match dialect {
            Dialect::Postgres => Self::Postgres(or_skip(Postgres::start_with(setup).await)?),
            Dialect::Mysql => Self::Mysql(or_skip(MariaDb::start_with(setup).await)?),
        })
    }

    /// Makes PostgreSQL sleep for a minute in each commit of an insertion into this table.
    pub(crate) async fn commits_slowly(&self, table: &str) {
        let slow = format!(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END'; \
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION slow()"
        );
        self.sql(&slow).await;
    }

    /// Polls until an administrator sees a row.
    pub(crate) async fn sees(&self, query: &str) {
        let seen = eventually(Duration::from_secs(20), async || {
            // What is asked for may have to be made first.
            let rows = self.try_sql(query).await.unwrap_or_default();
            (!rows.is_empty()).then_some(())
        });
        seen.await.unwrap_or_else(|| panic!("never seen: {query}"));
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Self::Postgres(server) => server.address(),
            Self::Mysql(server) => server.address(),
            Self::External => {
                let opts = external().unwrap();
                format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port())
            }
        }
    }

    pub(crate) fn config(&self) -> Config {
        match self {
            Self::Postgres(_) => config(Dialect::Postgres, &self.address()),
            Self::Mysql(_) | Self::External => config(Dialect::Mysql, &self.address()),
        }
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        match self {
            Self::Postgres(server) => server.process(),
            Self::Mysql(server) => server.process(),
            Self::External => panic!("not ours to touch"),
        }
    }

    pub(crate) async fn restart(&mut self) {
        use distlock_testkit::servers::Data;
        match self {
            Self::Postgres(server) => server.restart(Data::Keep).await.unwrap(),
            Self::Mysql(server) => server.restart(Data::Keep).await.unwrap(),
            Self::External => panic!("not ours to touch"),
        }
    }

    /// Runs a statement as an administrator; the first column of its rows.
    pub(crate) async fn sql(&self, text: &str) -> Vec<String> {
        self.try_sql(text).await.unwrap()
    }

    pub(crate) async fn try_sql(&self, text: &str) -> Result<Vec<String>, Box<dyn std::error::Error>> {
        use mysql_async::prelude::Queryable;
        match self {
            Self::Postgres(server) => {
                let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
                    .await
                    .unwrap();
                let driven = tokio::spawn(connection);
                let messages = client.simple_query(text).await?;
                drop(client);
                let _ = driven.await;
                let rows = messages.into_iter().filter_map(|m| match m {
                    tokio_postgres::SimpleQueryMessage::Row(row) => {
                        Some(row.get(0).unwrap_or_default().to_owned())
                    }
                    _ => None,
                });
                Ok(rows.collect())
            }
            Self::Mysql(_) | Self::External => {
                let mut conn = mysql_async::Conn::new(mysql_opts(&self.address())).await.unwrap();
                let rows: Vec<mysql_async::Row> = conn.query(text).await?;
                conn.disconnect().await?;
                let first = rows
                    .into_iter()
                    .map(|mut row| row.take::<String, _>(0).unwrap_or_default());
                Ok(first.collect())
            }
        }
    }
}

pub(crate) fn config(dialect: Dialect, address: &str) -> Config {
    let (host, port) = address.rsplit_once(':').unwrap();
    let config = Config::tcp(dialect, host, port.parse().unwrap());
    match dialect {
        Dialect::Postgres => config.user("postgres"),
        Dialect::Mysql => {
            let opts = mysql_opts(address);
            let config = config
                .user(opts.user().unwrap())
                .database(opts.db_name().unwrap());
            match opts.pass() {
                Some(password) => config.password(password),
                None => config,
            }
        }
    }
}

/// `DISTLOCK_TEST_MYSQL_URL`: a server that somebody else has started, such as a MySQL 8, with an empty database.
fn external() -> Option<mysql_async::Opts> {
    let url = std::env::var("DISTLOCK_TEST_MYSQL_URL").ok()?;
    Some(mysql_async::Opts::from_url(&url).unwrap())
}

/// A user's own way to a MySQL server.
pub(crate) fn mysql_opts(address: &str) -> mysql_async::Opts {
    let (host, port) = address.rsplit_once(':').unwrap();
    let opts = match external() {
        Some(opts) => mysql_async::OptsBuilder::from_opts(opts),
        None => mysql_async::OptsBuilder::default()
            .user(Some("root"))
            .db_name(Some("distlock")),
    };
    let opts = opts.ip_or_hostname(host).tcp_port(port.parse().unwrap());
    opts.prefer_socket(false).into()
}

/// A client of the locks, as a program would have.
pub(crate) async fn locks(config: Config) -> distlock_core::Client {
    distlock_core::Client::builder()
        .build(|engine| async move { distlock_sql::open(engine, config).await })
        .await
        .unwrap()
}
