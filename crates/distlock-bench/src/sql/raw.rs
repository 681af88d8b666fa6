//! What the engines send, prepared and sent by the drivers themselves.

use std::sync::Mutex;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Value};
use tokio::sync::Semaphore;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::Dialect;
use crate::report::good;

const TTL: i64 = 30_000_000;
const OWNER: &str = "018f0000-0000-7000-8000-000000000001:1";
/// As long as the engine's description of a holder.
const ABOUT: &str = r#"{"host":"machine","pid":12345}"#;

macro_rules! sql {
    ($dialect:literal, $name:literal) => {
        include_str!(concat!(
            "../../../distlock-sql/src/sql/",
            $dialect,
            "/",
            $name,
            ".sql"
        ))
    };
}

/// Raw sessions, as many as the engine opens.
pub(crate) enum Raw {
    Postgres(Vec<(Client, [Statement; 2])>),
    Mysql(MysqlRaw),
}

pub(crate) struct MysqlRaw {
    room: Semaphore,
    idle: Mutex<Vec<Conn>>,
    acquire: (String, Vec<usize>),
    release: (String, Vec<usize>),
}

fn fill(source: &str, now: &str, table: &str) -> String {
    let lines: Vec<&str> = source.lines().filter(|line| !line.starts_with("--")).collect();
    lines.join("\n").replace("{now}", now).replace("{table}", table)
}

/// `?` for `$n`, and the order of the arguments.
fn placed(text: &str) -> (String, Vec<usize>) {
    let mut pieces = text.split('$');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    let mut order = Vec::new();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        order.push(good(piece[..end].parse::<usize>()) - 1);
        out.push('?');
        out.push_str(&piece[end..]);
    }
    (out, order)
}

impl Raw {
    pub(crate) async fn new(dialect: Dialect, address: &str) -> Self {
        match dialect {
            Dialect::Postgres => {
                let mut sessions = Vec::new();
                for _ in 0..2 {
                    let url = dialect.url(address);
                    let (client, connection) =
                        good(tokio_postgres::connect(&url, tokio_postgres::NoTls).await);
                    tokio::spawn(connection);
                    let text = |source| {
                        let now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
                        fill(source, now, "distlock_locks")
                    };
                    let acquire = good(client.prepare(&text(sql!("postgres", "acquire"))).await);
                    let release = good(client.prepare(&text(sql!("postgres", "release"))).await);
                    sessions.push((client, [acquire, release]));
                }
                Self::Postgres(sessions)
            }
            Dialect::Mysql => {
                let url = format!("{}?prefer_socket=false", dialect.url(address));
                let mut idle = Vec::new();
                for _ in 0..16 {
                    let mut conn = good(Conn::from_url(&url).await);
                    let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
                    good(conn.query_drop(isolation).await);
                    idle.push(conn);
                }
                let text = |source| {
                    let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
                    placed(&fill(source, now, "distlock_locks"))
                };
                Self::Mysql(MysqlRaw {
                    room: Semaphore::new(16),
                    idle: Mutex::new(idle),
                    acquire: text(sql!("mysql", "acquire")),
                    release: text(sql!("mysql", "release")),
                })
            }
        }
    }

    /// Takes and gives back a key of its own.
    pub(crate) async fn cycle(&self, i: usize) {
        let name = format!("raw:order:close:{i}");
        match self {
            Self::Postgres(sessions) => {
                let (client, [acquire, release]) = &sessions[i % sessions.len()];
                let args: [&(dyn ToSql + Sync); 5] = [&name, &"mutex", &OWNER, &TTL, &ABOUT];
                assert_eq!(good(client.query(acquire, &args).await).len(), 1, "not obtained");
                let args: [&(dyn ToSql + Sync); 4] = [&name, &OWNER, &0_i64, &"distlock"];
                assert_eq!(good(client.query(release, &args).await).len(), 1, "not released");
            }
            Self::Mysql(raw) => {
                let args = [
                    name.as_str().into(),
                    "mutex".into(),
                    OWNER.into(),
                    TTL.into(),
                    ABOUT.into(),
                ];
                raw.exec(&raw.acquire, &args).await;
                raw.exec(&raw.release, &[name.as_str().into(), OWNER.into(), 0_i64.into()])
                    .await;
            }
        }
    }

    /// How many statements the server has executed.
    pub(crate) async fn statements(&self) -> u64 {
        match self {
            Self::Postgres(sessions) => {
                // Each statement of ours is a transaction.
                let sql = "SELECT sum(xact_commit + xact_rollback)::int8 FROM pg_stat_database";
                let n: i64 = good(sessions[0].0.query_one(sql, &[]).await).get(0);
                n.unsigned_abs()
            }
            Self::Mysql(raw) => {
                let _room = good(raw.room.acquire().await);
                let Some(mut conn) = raw.pop() else {
                    panic!("no connection")
                };
                let row: Option<(String, u64)> = good(
                    conn.query_first("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'")
                        .await,
                );
                raw.push(conn);
                row.map_or(0, |(_, n)| n)
            }
        }
    }
}

impl MysqlRaw {
    fn pop(&self) -> Option<Conn> {
        self.idle.lock().ok()?.pop()
    }

    fn push(&self, conn: Conn) {
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(conn);
        }
    }

    async fn exec(&self, (text, order): &(String, Vec<usize>), args: &[Value]) {
        let _room = good(self.room.acquire().await);
        let Some(mut conn) = self.pop() else {
            panic!("no connection")
        };
        let statement = good(conn.prep(text).await);
        let values: Vec<Value> = order.iter().map(|i| args[*i].clone()).collect();
        good(conn.exec_drop(statement, values).await);
        assert!(conn.affected_rows() > 0, "not obtained");
        self.push(conn);
    }
}
