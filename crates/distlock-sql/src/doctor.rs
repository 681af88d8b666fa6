//! Examines the deployment for settings that endanger locks.

use distlock_core::driver::{DriverError, Finding, Severity};
use mysql_async::prelude::Queryable;

use crate::fault::Fault;
use crate::store::{Backend, Store};
use crate::{mysql, postgres};

/// What is wrong with this server, for locks.
pub(crate) async fn examine(store: &Store) -> Result<Vec<Finding>, DriverError> {
    let mut found = match &store.backend {
        Backend::Postgres { pool, .. } => examine_postgres(store, pool).await,
        Backend::Mysql(pool) => examine_mysql(pool).await,
    }
    .map_err(Fault::into_error)?;
    found.sort_by_key(|f| std::cmp::Reverse(f.severity));
    Ok(found)
}

fn finding(severity: Severity, id: &'static str, what: impl Into<String>, fix: &str) -> Finding {
    Finding {
        severity,
        id,
        what: what.into(),
        fix: fix.into(),
    }
}

async fn examine_postgres(store: &Store, pool: &postgres::Pool) -> Result<Vec<Finding>, Fault> {
    let sql = "SELECT current_setting('server_version'), current_setting('server_version_num')::bigint, \
        pg_is_in_recovery(), current_setting('fsync'), \
        (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), \
        (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'), \
        (SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_isolation')";
    let client = pool.connector().connect(&store.engine).await?;
    let row = client
        .query_one(sql, &[])
        .await
        .map_err(|e| postgres::fault(e, false))?;
    let version: String = row.get(0);
    let mut found = vec![finding(
        Severity::Info,
        "postgres-version",
        format!("PostgreSQL {version}"),
        "nothing",
    )];
    if row.get::<_, i64>(1) < 120_000 {
        let fix = "use PostgreSQL 12 or newer";
        found.push(finding(
            Severity::Error,
            "postgres-version-old",
            format!("PostgreSQL {version}"),
            fix,
        ));
    }
    if row.get::<_, bool>(2) {
        let fix = "name the primary, or all hosts of the group, in the URL";
        found.push(finding(
            Severity::Error,
            "postgres-replica",
            "this server is a read-only replica",
            fix,
        ));
    }
    if row.get::<_, &str>(3) == "off" {
        let fix = "set fsync = on: after a crash of the machine the table may be damaged";
        found.push(finding(Severity::Warning, "postgres-fsync", "fsync = off", fix));
    }
    if row.get::<_, &str>(4) == "off" {
        let fix =
            "nothing for locks (our sessions set it to on); data that the locks guard may need it as well";
        found.push(finding(
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
        found.push(finding(Severity::Warning, "postgres-async-replicas", what, fix));
    }
    if row.get::<_, &str>(7) != "read committed" {
        let what = format!("default_transaction_isolation = {}", row.get::<_, &str>(7));
        let fix = "nothing for locks: our sessions use read committed";
        found.push(finding(Severity::Info, "postgres-isolation", what, fix));
    }
    if postgres::is_pooled(pool.connector(), &store.engine, &client).await? {
        let fix = "connect to PostgreSQL itself, or set pool_mode = session for this database: notices and session \
            locks do not work behind it";
        let what = "two of our sessions share one server process: a pooler in transaction or statement mode";
        found.push(finding(
            Severity::Error,
            "postgres-transaction-pooling",
            what,
            fix,
        ));
    }
    Ok(found)
}

async fn examine_mysql(pool: &mysql::Pool) -> Result<Vec<Finding>, Fault> {
    let sql = "SELECT VERSION(), @@global.read_only, @@global.wait_timeout, @@global.innodb_flush_log_at_trx_commit, \
        @@global.log_bin, @@global.binlog_format, @@global.sync_binlog, CONNECTION_ID()";
    type Row = (String, i64, i64, i64, i64, String, i64, u64);
    let mut conn = pool.connect_any().await?;
    let row = conn
        .query_first::<Row, _>(sql)
        .await
        .map_err(|e| mysql::fault(e, false))?;
    let here = conn.id();
    let _ = conn.disconnect().await;
    let Some((version, read_only, idle, flush, log_bin, format, sync_binlog, id)) = row else {
        return Err(Fault::Unable("no answer".into()));
    };
    let mut found = vec![finding(Severity::Info, "mysql-version", version, "nothing")];
    if read_only != 0 {
        let fix = "name the primary, or all hosts of the group, in the URL";
        found.push(finding(
            Severity::Error,
            "mysql-read-only",
            "this server is read-only",
            fix,
        ));
    }
    if idle < 60 {
        let fix =
            "nothing for rows (our sessions set their own); for mode=session set wait_timeout to 60 or more";
        found.push(finding(
            Severity::Info,
            "mysql-wait-timeout",
            format!("wait_timeout = {idle}"),
            fix,
        ));
    }
    if flush != 1 {
        let what = format!("innodb_flush_log_at_trx_commit = {flush}");
        let fix = "set it to 1: a crash of the machine may forget the last second of locks";
        found.push(finding(Severity::Warning, "mysql-flush", what, fix));
    }
    if log_bin != 0 && format == "STATEMENT" {
        let fix =
            "set binlog_format to ROW or MIXED: our sessions use READ COMMITTED, which STATEMENT cannot log";
        found.push(finding(
            Severity::Error,
            "mysql-binlog-format",
            "binlog_format = STATEMENT",
            fix,
        ));
    }
    if log_bin != 0 && sync_binlog != 1 {
        let fix = "set it to 1, so that a replica cannot lack what the primary promised";
        found.push(finding(
            Severity::Warning,
            "mysql-sync-binlog",
            format!("sync_binlog = {sync_binlog}"),
            fix,
        ));
    }
    if id != u64::from(here) {
        let what = "the server numbers our session differently than the greeting did: a proxy is in between";
        let fix = "for mode=session connect to the server itself; rows work";
        found.push(finding(Severity::Warning, "mysql-proxy", what, fix));
    }
    Ok(found)
}
