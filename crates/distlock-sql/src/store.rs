//! Asking the database: the table made sure of, conflicts retried, the answer of either dialect in one shape.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock_core::driver::{DriverError, Reached};
use distlock_core::engine::Engine;
use rand::RngExt;

use crate::config::{Config, Dialect};
use crate::fault::Fault;
use crate::hash::fnv;
use crate::state::State;
use crate::statement::{Answer, Arg, Statements, Verb};
use crate::table::Table;
use crate::{mysql, postgres};

/// How often a statement that was rolled back for another one is made again.
const CONFLICTS: u32 = 8;

/// The database of one driver.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    pub(crate) backend: Backend,
    table: Table,
    channel: String,
    closed: AtomicBool,
}

/// Either dialect's connections.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each driver")]
pub(crate) enum Backend {
    /// PostgreSQL.
    Postgres {
        pool: postgres::Pool,
        listener: postgres::Listener,
    },
    /// MySQL or MariaDB.
    Mysql(mysql::Pool),
}

/// Where the statements of one contender go, so that they arrive in order.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    line: Option<Arc<postgres::Line>>,
    gate: mysql::Gate,
}

impl Store {
    pub(crate) fn new(engine: Engine, config: Config) -> Result<Self, DriverError> {
        let table = config.quoted_table()?;
        let statements = Statements::new(config.dialect, config.layout, &table);
        let channel = format!("distlock_{:016x}", fnv(&table));
        let backend = match config.dialect {
            Dialect::Postgres => {
                let pool = postgres::Pool::new(engine.clone(), &config, statements)?;
                let connector = pool.connector().clone();
                let listener = postgres::Listener::new(engine.clone(), connector, channel.clone());
                Backend::Postgres { pool, listener }
            }
            Dialect::Mysql => Backend::Mysql(mysql::Pool::new(engine.clone(), &config, &statements)?),
        };
        Ok(Self {
            engine,
            config,
            backend,
            table: Table::default(),
            channel,
            closed: AtomicBool::new(false),
        })
    }

    /// The channel on which changes of this table are told.
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// Nothing new is taken or renewed from now on; what is held can still be given back.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Backend::Postgres { listener, .. } = &self.backend {
            listener.stop();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether anything was asked yet, so that the table is known.
    pub(crate) fn is_used(&self) -> bool {
        self.table.is_seen()
    }

    /// Asks one statement about the row `name`; conflicts with other clients are solved in here.
    pub(crate) async fn ask(
        &self,
        lane: &mut Lane,
        name: &str,
        verb: Verb,
        args: &[Arg<'_>],
    ) -> Result<Answer, DriverError> {
        let mut made = false;
        let mut conflicts = 0;
        loop {
            if !self.table.is_seen() {
                self.bounded(self.table.ensure(self)).await?;
            }
            let answer = match &self.backend {
                Backend::Postgres { pool, .. } => pool.ask(name, &mut lane.line, verb, args).await,
                Backend::Mysql(pool) => pool.ask(&lane.gate, verb, args).await,
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Fault::Conflict(_)) if conflicts < CONFLICTS => {
                    conflicts += 1;
                    self.pause(conflicts).await;
                }
                Err(Fault::NoTable(_)) if !made => {
                    made = true;
                    self.table.forget();
                }
                Err(fault) => return Err(fault.into_error()),
            }
        }
    }

    /// A short pause at random, longer with each time, so that those who collided do not collide again.
    pub(crate) async fn pause(&self, times: u32) {
        let most = 2_000_u64 << times.min(5);
        let pause = rand::rng().random_range(200..most);
        self.engine.clock().sleep(Duration::from_micros(pause)).await;
    }

    /// Reads the row of `name` as it is now.
    pub(crate) async fn look(&self, lane: &mut Lane, name: &str) -> Result<State, DriverError> {
        let answer = self
            .ask(lane, name, Verb::Look, &[Arg::Texts(vec![name.to_owned()])])
            .await?;
        // The last row is nobody's and has the time; it is also what a key without a row looks like.
        let row = answer
            .rows
            .first()
            .ok_or_else(|| unreadable("no answer".into()))?;
        State::read(row).map_err(unreadable)
    }

    /// Replaces the row `name` by `next` if it still is `seen`; whether it was. `notify`: somebody who waits may
    /// have his turn now.
    pub(crate) async fn write(
        &self,
        lane: &mut Lane,
        name: &str,
        seen: &State,
        next: &State,
        notify: bool,
    ) -> Result<bool, DriverError> {
        let crowd = next.crowd_text();
        let mut args: Vec<Arg<'_>> = vec![name.into()];
        if seen.version != 0 {
            args.push(seen.version.into());
        }
        args.extend([
            Arg::from(next.kind.as_str()),
            next.owner.as_str().into(),
            next.token.into(),
        ]);
        args.extend([
            Arg::from(next.expires),
            next.since.into(),
            next.about.as_str().into(),
        ]);
        args.extend([Arg::from(crowd), next.crowd_until().into(), next.next().into()]);
        let verb = if seen.version == 0 {
            Verb::Insert
        } else {
            Verb::Write
        };
        if verb == Verb::Write && self.config.dialect == Dialect::Postgres {
            args.push(if notify {
                self.channel.as_str().into()
            } else {
                "".into()
            });
        }
        Ok(self.ask(lane, name, verb, &args).await?.changed > 0)
    }

    async fn bounded<T>(&self, work: impl Future<Output = Result<T, DriverError>>) -> Result<T, DriverError> {
        let limit = self.config.timeout + self.config.connect_timeout;
        let done = self.engine.clock().timeout(limit, work).await;
        done.unwrap_or_else(|| {
            Err(DriverError::unavailable(
                Reached::No,
                format!("no answer within {limit:?}"),
            ))
        })
    }
}

/// A row that we cannot understand: somebody edited it.
pub(crate) fn unreadable(why: String) -> DriverError {
    DriverError::unavailable(Reached::No, why)
}
