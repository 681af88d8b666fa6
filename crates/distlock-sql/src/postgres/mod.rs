//! PostgreSQL: connections over which many statements are under way at once.

mod connect;
mod listen;
mod pooler;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock_core::driver::DriverError;
use distlock_core::engine::Engine;
use distlock_core::per_runtime::PerRuntime;
use tokio::sync::OnceCell;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

pub(crate) use self::connect::Connector;
pub(crate) use self::listen::{Listener, Seat};
pub(crate) use self::pooler::{is_pooled, keeps_statements};
use crate::config::Config;
use crate::fault::Fault;
use crate::statement::{Answer, Arg, Cell, Statements, Verb};

/// One connection, used by many callers at once: PostgreSQL answers in the order in which statements were sent.
#[derive(Debug)]
pub(crate) struct Line {
    client: Client,
    prepared: [OnceCell<Statement>; Verb::COUNT],
    /// Set when an answer did not come: nobody shall wait for this connection again.
    given_up: AtomicBool,
}

impl Line {
    pub(crate) fn is_over(&self) -> bool {
        self.client.is_closed() || self.given_up.load(Ordering::Relaxed)
    }

    async fn ask(&self, text: &str, verb: Verb, args: &[Arg<'_>]) -> Result<Answer, Fault> {
        if self.client.is_closed() {
            return Err(Fault::Unsent("the connection was closed".into()));
        }
        let statement = self.prepared[verb as usize].get_or_try_init(|| self.client.prepare(text));
        // Nothing is changed by a statement that was not even prepared.
        let statement = statement.await.map_err(|e| fault(e, false))?;
        let params: Vec<_> = args.iter().map(parameter).collect();
        let rows = self
            .client
            .query(statement, &params)
            .await
            .map_err(|e| fault(e, true))?;
        let rows: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
        let number = rows.first().and_then(|row| row.first()).map_or(0, Cell::int);
        Ok(Answer {
            changed: rows.len() as u64,
            number,
            rows,
        })
    }
}

/// The connections of all runtimes that use the driver.
#[derive(Debug)]
pub(crate) struct Pool {
    engine: Engine,
    config: Config,
    connector: Connector,
    statements: Statements,
    lines: Vec<PerRuntime<Arc<Line>>>,
    hash: RandomState,
}

impl Pool {
    pub(crate) fn new(engine: Engine, config: &Config, statements: Statements) -> Result<Self, DriverError> {
        Ok(Self {
            connector: Connector::new(config)?,
            lines: (0..config.connections.max(1))
                .map(|_| PerRuntime::new())
                .collect(),
            config: config.clone(),
            hash: RandomState::new(),
            statements,
            engine,
        })
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Sends a statement over the connection of this name: always the same one in a runtime, so that what is said
    /// about a key arrives in order. `lane` remembers where an unanswered statement went; the next one goes there
    /// first, from whatever runtime.
    pub(crate) async fn ask(
        &self,
        name: &str,
        lane: &mut Option<Arc<Line>>,
        verb: Verb,
        args: &[Arg<'_>],
    ) -> Result<Answer, Fault> {
        let mut slot = None;
        let line = match lane.take().filter(|line| !line.is_over()) {
            Some(line) => line,
            None => {
                let i = (self.hash.hash_one(name) % self.lines.len() as u64) as usize;
                let (generation, line) = self.line(i).await?;
                slot = Some((i, generation));
                line
            }
        };
        *lane = Some(line.clone());
        let asked = line.ask(self.statements.text(verb), verb, args);
        let answer = match self.engine.clock().timeout(self.config.timeout, asked).await {
            Some(answer) => answer,
            None => {
                line.given_up.store(true, Ordering::Relaxed);
                Err(Fault::Unanswered(
                    format!("no answer within {:?}", self.config.timeout).into(),
                ))
            }
        };
        match &answer {
            Err(fault) => {
                if let Some((i, generation)) = slot.filter(|_| fault.ends_connection()) {
                    self.lines[i].discard(generation);
                }
                if !matches!(fault, Fault::Unanswered(_)) {
                    *lane = None;
                }
            }
            Ok(_) => *lane = None,
        }
        answer
    }

    async fn line(&self, i: usize) -> Result<(u64, Arc<Line>), Fault> {
        loop {
            let made = self.lines[i].get(|| async {
                let client = self.connector.connect(&self.engine).await?;
                Ok(Arc::new(Line {
                    client,
                    prepared: Default::default(),
                    given_up: AtomicBool::new(false),
                }))
            });
            let (generation, line) = made.await?;
            if !line.is_over() {
                return Ok((generation, line));
            }
            self.lines[i].discard(generation);
        }
    }
}

/// An argument as the driver wants it.
pub(crate) fn parameter<'a>(arg: &'a Arg<'_>) -> &'a (dyn ToSql + Sync) {
    match arg {
        Arg::Text(text) => text,
        Arg::Int(n) => n,
        Arg::Texts(list) => list,
        Arg::Ints(list) => list,
    }
}

pub(crate) fn cells(row: &Row) -> Vec<Cell> {
    let cell = |(i, column): (usize, &tokio_postgres::Column)| match *column.type_() {
        Type::INT8 => row
            .try_get::<_, Option<i64>>(i)
            .ok()
            .flatten()
            .map_or(Cell::Null, Cell::Int),
        Type::INT4 => row
            .try_get::<_, Option<i32>>(i)
            .ok()
            .flatten()
            .map_or(Cell::Null, |n| Cell::Int(n.into())),
        Type::BOOL => row
            .try_get::<_, Option<bool>>(i)
            .ok()
            .flatten()
            .map_or(Cell::Null, |b| Cell::Int(b.into())),
        _ => row
            .try_get::<_, Option<String>>(i)
            .ok()
            .flatten()
            .map_or(Cell::Null, Cell::Text),
    };
    row.columns().iter().enumerate().map(cell).collect()
}

/// The refusal of a pooler that rows do not work behind.
pub(crate) fn pooled() -> Fault {
    let why = "a pooler in transaction or statement mode is in between, which loses prepared statements: connect to \
        PostgreSQL itself, set pool_mode = session, or use PgBouncer 1.21 or newer with max_prepared_statements";
    Fault::Denied(why.into())
}

/// What an error of the driver means. `sent`: whether a statement that changes anything may have been sent.
pub(crate) fn fault(e: tokio_postgres::Error, sent: bool) -> Fault {
    let Some(db) = e.as_db_error() else {
        return match sent {
            true => Fault::Unanswered(e.into()),
            false => Fault::Unsent(e.into()),
        };
    };
    fault_of(db.code().code(), db.message(), sent)
}

/// What the server's own answer means.
pub(crate) fn fault_of(code: &str, message: &str, sent: bool) -> Fault {
    let said = format!("{message} (SQLSTATE {code})");
    match code {
        // Serialization failure, deadlock, lock_timeout, a key or type made by two at once.
        "40001" | "40P01" | "55P03" | "23505" => Fault::Conflict(said.into()),
        // No such table or schema; a plan for a table that was made anew meanwhile.
        "42P01" | "3F000" => Fault::NoTable(said.into()),
        "25006" => Fault::ReadOnly(said.into()),
        // The session ended: an administrator, a crash of a sibling, a shutdown, an idle timeout.
        "57P01" | "57P02" | "57P05" | "25P03" if sent => Fault::Unanswered(said.into()),
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => Fault::Unsent(said.into()),
        // A prepared statement that is not there, or there already: another server process answers each time.
        "26000" | "42P05" => pooled(),
        // Wrong password, role or database; no right; a column that our table would have.
        "28P01" | "28000" | "3D000" | "42501" | "42703" => Fault::Denied(said),
        _ => Fault::Unable(said.into()),
    }
}
