//! Both dialects prove themselves to the suite that all engines share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock_sql::{Dialect, Layout};
use distlock_testkit::conformance::{BoxError, Client, Connected, Deployment, Outcome, cases, prove};
use futures_util::StreamExt;

use crate::both;
use crate::server::Server;

/// One server for all cases of this program; `None` where it is not installed.
pub(crate) fn server(dialect: Dialect) -> Option<&'static Server> {
    static POSTGRES: OnceLock<Option<Server>> = OnceLock::new();
    static MYSQL: OnceLock<Option<Server>> = OnceLock::new();
    let cell = match dialect {
        Dialect::Postgres => &POSTGRES,
        Dialect::Mysql => &MYSQL,
    };
    let start = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(Server::shared(dialect))
    };
    cell.get_or_init(|| std::thread::spawn(start).join().unwrap())
        .as_ref()
}

struct Database(Dialect, Layout);

#[async_trait::async_trait]
impl Deployment for Database {
    async fn client(&self) -> Connected {
        let config = server(self.0)
            .ok_or("the server is not installed")?
            .config()
            .layout(self.1);
        Client::start(async |engine| -> Result<_, BoxError> { Ok(distlock_sql::open(engine, config).await?) })
            .await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(500)
    }
}

mod postgres {
    distlock_testkit::conformance!(super::Database(super::Dialect::Postgres, super::Layout::Row));
}

mod mysql {
    distlock_testkit::conformance!(super::Database(super::Dialect::Mysql, super::Layout::Row));
}

mod postgres_session {
    distlock_testkit::conformance!(super::Database(super::Dialect::Postgres, super::Layout::Session));
}

mod mysql_session {
    distlock_testkit::conformance!(super::Database(super::Dialect::Mysql, super::Layout::Session));
}

both! {
    #[test]
    /// All cases but one: the names of ShedLock's table have 64 characters, and are compared as its collation does.
    async fn shedlocks_table_keeps_the_promises_that_it_has_room_for(dialect) {
        if server(dialect).is_none() {
            return;
        }
        let database: Arc<dyn Deployment> = Arc::new(Database(dialect, Layout::ShedLock));
        let cases = cases().filter(|case| case.name != "unusual_keys_are_distinct");
        let proofs = cases.map(async |case| (case.name, prove(&case, database.clone()).await));
        let proofs: Vec<_> = futures_util::stream::iter(proofs).buffer_unordered(4).collect().await;
        let failed: Vec<_> = proofs.iter().filter(|(_, proof)| matches!(proof, Outcome::Failed(_))).collect();
        assert!(failed.is_empty(), "{failed:?}");
        let proven = proofs.iter().filter(|(_, proof)| matches!(proof, Outcome::Proven)).count();
        assert!(proven >= 30, "{proven} proven");
    }
}
