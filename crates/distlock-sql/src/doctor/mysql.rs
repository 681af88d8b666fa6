//! MySQL's and MariaDB's settings.

use std::collections::HashMap;

use distlock_core::driver::{Finding, Severity};
use mysql_async::prelude::Queryable;

use crate::fault::Fault;
use crate::mysql;

/// Those that matter, under both servers' names.
const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('version', 'read_only', 'wait_timeout', \
    'innodb_flush_log_at_trx_commit', 'log_bin', 'binlog_format', 'sync_binlog', 'tx_isolation', \
    'transaction_isolation', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled', 'wsrep_on')";
const REPLICAS: &str =
    "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";

pub(super) async fn examine(pool: &mysql::Pool) -> Result<Vec<Finding>, Fault> {
    let mut conn = pool.connect_any().await?;
    let failed = |e| mysql::fault(e, false);
    let rows: Vec<(String, String)> = conn.query(SETTINGS).await.map_err(failed)?;
    let replicas: Option<u64> = conn.query_first(REPLICAS).await.map_err(failed)?;
    let id: Option<u64> = conn.query_first("SELECT CONNECTION_ID()").await.map_err(failed)?;
    let here = conn.id();
    let _ = conn.disconnect().await;
    let settings = Settings(
        rows.into_iter()
            .map(|(name, value)| (name.to_lowercase(), value))
            .collect(),
    );
    let mut found = settings.judge(replicas.unwrap_or(0));
    if id != Some(here.into()) {
        let what = "the server numbers our session differently than the greeting did: a proxy is in between";
        let fix = "for mode=session connect to the server itself; rows work";
        found.push(Finding::new(Severity::Warning, "mysql-proxy", what, fix));
    }
    Ok(found)
}

struct Settings(HashMap<String, String>);

impl Settings {
    /// The value; empty where the server does not know the setting.
    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.text(name), "ON" | "1")
    }

    fn judge(&self, replicas: u64) -> Vec<Finding> {
        let version = Finding::new(Severity::Info, "mysql-version", self.text("version"), "nothing");
        let mut found = vec![version];
        let mut tell = |severity, id, what: String, fix| found.push(Finding::new(severity, id, what, fix));
        if !matches!(self.text("read_only"), "OFF" | "0" | "") {
            let fix = "name the primary, or all hosts of the group, in the URL";
            tell(
                Severity::Error,
                "mysql-read-only",
                "this server is read-only".into(),
                fix,
            );
        }
        if let Some(idle) = self.number("wait_timeout").filter(|idle| *idle < 60) {
            let fix = "nothing for our sessions, which set their own; a transaction of yours that waits for longer ends";
            tell(
                Severity::Info,
                "mysql-wait-timeout",
                format!("wait_timeout = {idle}"),
                fix,
            );
        }
        let isolation = match self.text("transaction_isolation") {
            "" => self.text("tx_isolation"),
            isolation => isolation,
        };
        if isolation == "SERIALIZABLE" {
            let fix = "nothing for our sessions, which use READ COMMITTED; locks inside your transactions (tx) meet \
                more deadlocks";
            tell(
                Severity::Info,
                "mysql-isolation",
                "the isolation level is SERIALIZABLE".into(),
                fix,
            );
        }
        if let Some(flush) = self
            .number("innodb_flush_log_at_trx_commit")
            .filter(|flush| *flush != 1)
        {
            let fix = "set it to 1: a crash of the machine may forget the last second of locks";
            let what = format!("innodb_flush_log_at_trx_commit = {flush}");
            tell(Severity::Warning, "mysql-flush", what, fix);
        }
        if self.is_on("log_bin") {
            if self.text("binlog_format") == "STATEMENT" {
                let fix = "set binlog_format to ROW or MIXED: our sessions use READ COMMITTED, which STATEMENT cannot log";
                tell(
                    Severity::Error,
                    "mysql-binlog-format",
                    "binlog_format = STATEMENT".into(),
                    fix,
                );
            }
            if let Some(sync) = self.number("sync_binlog").filter(|sync| *sync != 1) {
                let fix = "set it to 1, so that a replica cannot lack what the primary promised";
                tell(
                    Severity::Warning,
                    "mysql-sync-binlog",
                    format!("sync_binlog = {sync}"),
                    fix,
                );
            }
        }
        let waits_for_replica = [
            "rpl_semi_sync_master_enabled",
            "rpl_semi_sync_source_enabled",
            "wsrep_on",
        ];
        if replicas > 0 && !waits_for_replica.iter().any(|name| self.is_on(name)) {
            let fix = "turn semi-synchronous replication on, so that a failover cannot forget a lock; or rely on tokens";
            let what = format!("{replicas} replicas, and commits wait for none of them");
            tell(Severity::Warning, "mysql-async-replicas", what, fix);
        }
        found
    }
}
