//! MySQL and MariaDB: a connection per statement under way, kept for the next one.

mod connect;
pub(crate) mod text;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::clock::Clock;
use distlock_core::driver::DriverError;
use distlock_core::engine::Engine;
use distlock_core::per_runtime::PerRuntime;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use tokio::sync::{OwnedMutexGuard, Semaphore};

pub(crate) use self::connect::Connector;
use crate::config::Config;
use crate::fault::Fault;
use crate::mysql::text::Placed;
use crate::statement::{Answer, Arg, Cell, Statements, Verb};

/// Held while a statement of a claim is under way, also when nobody waits for it any more: MySQL does not execute
/// the statements of two connections in order, so a release has to let an acquisition end first.
pub(crate) type Gate = Arc<tokio::sync::Mutex<()>>;

/// The idle connections of one runtime, the last used first.
#[derive(Debug, Clone)]
struct Idle {
    room: Arc<Semaphore>,
    conns: Arc<Mutex<Vec<Conn>>>,
}

/// The connections of all runtimes that use the driver.
#[derive(Debug)]
pub(crate) struct Pool {
    engine: Engine,
    connector: Connector,
    config: Config,
    placed: Vec<Placed>,
    idle: PerRuntime<Idle>,
}

impl Pool {
    pub(crate) fn new(engine: Engine, config: &Config, statements: &Statements) -> Result<Self, DriverError> {
        Ok(Self {
            connector: Connector::new(config)?,
            config: config.clone(),
            placed: Verb::ALL
                .iter()
                .map(|verb| Placed::new(statements.text(*verb)))
                .collect(),
            idle: PerRuntime::new(),
            engine,
        })
    }

    /// Runs a statement on a connection of its own, to its end or its deadline, whether or not the caller still
    /// waits.
    pub(crate) async fn ask(&self, gate: &Gate, verb: Verb, args: &[Arg<'_>]) -> Result<Answer, Fault> {
        let unsent = |why: String| Fault::Unsent(why.into());
        let clock = self.engine.clock().clone();
        let limit = self.config.timeout;
        let gate = clock
            .timeout(limit + self.config.connect_timeout, gate.clone().lock_owned())
            .await;
        let gate = gate.ok_or_else(|| unsent("an earlier statement is still under way".into()))?;
        let (text, values) = self.placed[verb as usize].fill(args);
        let made = self.idle.get(|| async {
            Ok::<_, std::convert::Infallible>(Idle {
                room: Arc::new(Semaphore::new(self.config.connections.max(1) as usize)),
                conns: Arc::default(),
            })
        });
        let Ok((_, idle)) = made.await;
        let connector = self.connector.clone();
        let work = Work {
            clock,
            limit,
            idle,
            connector,
            text,
            values,
            repeats: verb.repeats(),
            _gate: gate,
        };
        let done = tokio::spawn(work.run());
        done.await
            .unwrap_or_else(|_| Err(Fault::Unanswered("the runtime ended".into())))
    }

    /// A connection to look at the server, whether or not it takes writes.
    pub(crate) async fn connect_any(&self) -> Result<Conn, Fault> {
        self.connector.connect_any(self.engine.clock()).await
    }

    /// A connection of one's own, outside of the pool.
    pub(crate) async fn connect(&self) -> Result<Conn, Fault> {
        self.connector.connect(self.engine.clock()).await
    }
}

/// One statement under way.
struct Work {
    clock: Clock,
    limit: std::time::Duration,
    idle: Idle,
    connector: Connector,
    text: String,
    values: Vec<Value>,
    /// Whether it may be sent a second time.
    repeats: bool,
    _gate: OwnedMutexGuard<()>,
}

impl Work {
    async fn run(self) -> Result<Answer, Fault> {
        let room = self
            .clock
            .timeout(self.limit, self.idle.room.clone().acquire_owned())
            .await;
        let Some(Ok(_room)) = room else {
            return Err(Fault::Unsent(
                format!("no free connection within {:?}", self.limit).into(),
            ));
        };
        let idle = self.idle().pop();
        if let Some(conn) = idle {
            match self.on(conn).await {
                // It died while it was idle, and those that are as old did as well.
                Some(Err(Fault::Unsent(_))) => self.idle().clear(),
                Some(Err(Fault::Unanswered(_))) if self.repeats => self.idle().clear(),
                answer => return answer.unwrap_or_else(|| Err(self.silence())),
            }
        }
        let conn = self.connector.connect(&self.clock).await?;
        self.on(conn).await.unwrap_or_else(|| Err(self.silence()))
    }

    /// Runs it on this connection and keeps that if it is still good; `None` when the time is over.
    async fn on(&self, mut conn: Conn) -> Option<Result<Answer, Fault>> {
        let answer = self
            .clock
            .timeout(self.limit, exec(&mut conn, &self.text, &self.values))
            .await?;
        // A connection that may not be read any more is closed without a farewell.
        if !answer.as_ref().is_err_and(Fault::ends_connection) {
            self.idle().push(conn);
        }
        Some(answer)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Conn>> {
        self.idle.conns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silence(&self) -> Fault {
        Fault::Unanswered(format!("no answer within {:?}", self.limit).into())
    }
}

/// Runs one statement, prepared on its first use on the connection.
pub(crate) async fn exec(conn: &mut Conn, text: &str, values: &[Value]) -> Result<Answer, Fault> {
    let statement = conn.prep(text).await.map_err(|e| fault(e, false))?;
    let mut result = conn
        .exec_iter(statement, values.to_vec())
        .await
        .map_err(|e| fault(e, true))?;
    let (changed, number) = (result.affected_rows(), result.last_insert_id());
    let rows: Vec<Row> = result.collect().await.map_err(|e| fault(e, true))?;
    result.drop_result().await.map_err(|e| fault(e, true))?;
    Ok(Answer {
        rows: rows.into_iter().map(cells).collect(),
        changed,
        number: number.and_then(|n| i64::try_from(n).ok()).unwrap_or(0),
    })
}

pub(crate) fn cells(row: Row) -> Vec<Cell> {
    let cell = |value| match value {
        Value::Bytes(bytes) => Cell::Text(String::from_utf8_lossy(&bytes).into_owned()),
        Value::Int(n) => Cell::Int(n),
        Value::UInt(n) => i64::try_from(n).map_or(Cell::Null, Cell::Int),
        _ => Cell::Null,
    };
    row.unwrap().into_iter().map(cell).collect()
}

/// What an error of the driver means. `sent`: whether a statement that changes anything may have been sent.
pub(crate) fn fault(e: mysql_async::Error, sent: bool) -> Fault {
    let mysql_async::Error::Server(server) = &e else {
        return match sent {
            true => Fault::Unanswered(e.into()),
            false => Fault::Unsent(e.into()),
        };
    };
    fault_of(server.code, &server.message, sent)
}

/// What the server's own answer means.
pub(crate) fn fault_of(code: u16, message: &str, sent: bool) -> Fault {
    let said = format!("{message} (error {code})");
    match code {
        // Lock wait time-out, deadlock, a record changed under a snapshot, too many half-done prepared statements.
        1205 | 1213 | 1020 | 3572 => Fault::Conflict(said.into()),
        // No such table, or its definition changed under a prepared statement.
        1146 | 1412 | 1615 => Fault::NoTable(said.into()),
        // read_only, super_read_only, a read-only transaction.
        1290 | 1836 | 1792 => Fault::ReadOnly(said.into()),
        // Shutdown, a killed connection or statement.
        1053 | 1927 | 1317 | 3169 | 4031 if sent => Fault::Unanswered(said.into()),
        1053 | 1927 | 1317 | 3169 | 4031 => Fault::Unsent(said.into()),
        // Access denied, no such database, no right, no such column.
        1044 | 1045 | 1049 | 1142 | 1143 | 1227 | 1054 => Fault::Denied(said),
        _ => Fault::Unable(said.into()),
    }
}
