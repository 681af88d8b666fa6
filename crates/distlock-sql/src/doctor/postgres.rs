//! PostgreSQL's settings.

use distlock_core::driver::{Finding, Severity};

use crate::fault::Fault;
use crate::postgres;
use crate::store::Store;

pub(super) async fn examine(store: &Store, pool: &postgres::Pool) -> Result<Vec<Finding>, Fault> {
    let sql = "SELECT current_setting('server_version'), current_setting('server_version_num')::bigint, \
        pg_is_in_recovery(), current_setting('fsync'), \
        (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), \
        (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'), \
        (SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_isolation')";
    let client = pool.connector().connect(&store.engine).await?;
    // Not prepared: a pooler, which is to be told of, may lose what is prepared.
    let rows = client
        .query_typed(sql, &[])
        .await
        .map_err(|e| postgres::fault(e, false))?;
    let row = rows.first().ok_or_else(|| Fault::Unable("no answer".into()))?;
    let version: String = row.get(0);
    let mut found = vec![Finding::new(
        Severity::Info,
        "postgres-version",
        format!("PostgreSQL {version}"),
        "nothing",
    )];
    if row.get::<_, i64>(1) < 120_000 {
        let fix = "use PostgreSQL 12 or newer";
        found.push(Finding::new(
            Severity::Error,
            "postgres-version-old",
            format!("PostgreSQL {version}"),
            fix,
        ));
    }
    if row.get::<_, bool>(2) {
        let fix = "name the primary, or all hosts of the group, in the URL";
        found.push(Finding::new(
            Severity::Error,
            "postgres-replica",
            "this server is a read-only replica",
            fix,
        ));
    }
    if row.get::<_, &str>(3) == "off" {
        let fix = "set fsync = on: after a crash of the machine the table may be damaged";
        found.push(Finding::new(
            Severity::Warning,
            "postgres-fsync",
            "fsync = off",
            fix,
        ));
    }
    if row.get::<_, &str>(4) == "off" {
        let fix =
            "nothing for locks (our sessions set it to on); data that the locks guard may need it as well";
        found.push(Finding::new(
            Severity::Info,
            "postgres-synchronous-commit",
            "synchronous_commit = off",
            fix,
        ));
    }
    let (replicas, names) = (row.get::<_, i64>(5), row.get::<_, &str>(6));
    if replicas > 0 && names.is_empty() {
        let fix = "set synchronous_standby_names, so that a failover cannot forget a lock; or rely on tokens";
        let what = format!("{replicas} replicas, none of them synchronous");
        found.push(Finding::new(
            Severity::Warning,
            "postgres-async-replicas",
            what,
            fix,
        ));
    }
    if row.get::<_, &str>(7) != "read committed" {
        let what = format!("default_transaction_isolation = {}", row.get::<_, &str>(7));
        let fix = "nothing for locks: our sessions use read committed";
        found.push(Finding::new(Severity::Info, "postgres-isolation", what, fix));
    }
    if postgres::is_pooled(pool.connector(), &store.engine, &client).await? {
        let fix = "connect to PostgreSQL itself, or set pool_mode = session for this database: notices and session \
            locks do not work behind it";
        let what = "two of our sessions share one server process: a pooler in transaction or statement mode";
        found.push(Finding::new(
            Severity::Error,
            "postgres-transaction-pooling",
            what,
            fix,
        ));
    }
    Ok(found)
}
