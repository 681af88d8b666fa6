//! A fencing gate for data in ZooKeeper, whatever engine gave the token.

use std::sync::{Arc, Mutex, PoisonError};

use distlock_core::clock::Clock;
use distlock_core::driver::{DriverError, Reached};
use distlock_core::engine::{Engine, EngineThread};
use distlock_core::{FencingToken, Namespace};
use distlock_fence::{FenceError, FenceGate, judge};
use zookeeper_client::{Error, MultiWriteError};

use crate::call::{Call, fault};
use crate::config::Config;
use crate::path::encode;
use crate::seat::lasting;
use crate::session::Session;
use crate::writes::Writes;

/// How often the record of a resource may appear or change while it is judged.
const RETRIES: u32 = 8;

/// Refuses writes to ZooKeeper with a token that is older than one seen before for the same resource.
///
/// The largest token of a resource is kept in a node under `dir`, named as a key's node is, in decimal digits; one multi writes it, on the
/// condition that its version is the one that was judged, and applies the writes. Where lock and data are in the same
/// ensemble, [`GuardMulti`](crate::GuardMulti) needs no record at all; the gate is for tokens of any engine, and for
/// writers that do not have the guard.
///
/// Delete the record only together with the data and the lock: a gate that forgot accepts any token.
///
/// ```no_run
/// use distlock_fence::{FenceGate, FencingToken};
/// use distlock_zookeeper::{Config, Writes, ZooKeeperGate};
///
/// # async fn example(token: FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// let gate = ZooKeeperGate::connect(Config::new(["10.0.0.1:2181"]), "/fence").await?;
/// gate.pass("accounts/42", token, Writes::new().set("/accounts/42", "100", None)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ZooKeeperGate {
    engine: Engine,
    config: Config,
    dir: String,
    session: Mutex<Arc<Session>>,
    _thread: EngineThread,
}

impl ZooKeeperGate {
    /// A gate that keeps its records under the node `dir` (below the chroot), which is made if it is not there.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    ///
    /// # Cancel safety
    /// Safe: a session that comes too late is closed.
    pub async fn connect(config: Config, dir: &str) -> Result<Self, DriverError> {
        let config = config.checked()?;
        let (engine, thread) = Engine::start(Clock::boot(), Namespace::default(), None)
            .map_err(|e| DriverError::unavailable(Reached::No, e))?;
        let session = Session::open(&engine, &config).await?;
        let dir = format!("{}{}", config.chroot, dir.trim_end_matches('/'));
        let call = session.call()?;
        call.answer(call.client.mkdir(&dir, &lasting(config.acl)))
            .await
            .map_err(fault)?;
        Ok(Self {
            session: Mutex::new(session),
            engine,
            config,
            dir,
            _thread: thread,
        })
    }

    /// A session that is not known to have ended.
    async fn session(&self) -> Result<Arc<Session>, DriverError> {
        let present = || self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let session = present().clone();
        if !session.has_ended() {
            return Ok(session);
        }
        let next = Session::open(&self.engine, &self.config).await?;
        present().clone_from(&next);
        Ok(next)
    }

    /// Judges and writes once; `None` when the record changed meanwhile.
    async fn attempt(
        &self,
        call: &Call,
        resource: &str,
        token: FencingToken,
        writes: &Writes,
    ) -> Result<Option<()>, FenceError> {
        let node = format!("{}/{}", self.dir, encode(resource));
        let stored = match call.answer(call.client.get_data(&node)).await {
            Ok(stored) => Some(stored),
            Err(Error::NoNode) => None,
            Err(e) => return Err(self.failed(call, e)),
        };
        judge(resource, token, stored.as_ref().map(|(data, _)| &data[..]))?;
        let bad = |e: Error| FenceError::store(e);
        let mut multi = call.client.new_multi_writer();
        let number = token.to_string();
        match stored {
            Some((_, stat)) => multi.add_set_data(&node, number.as_bytes(), Some(stat.version)),
            None => multi.add_create(&node, number.as_bytes(), &lasting(self.config.acl)),
        }
        .map_err(bad)?;
        writes
            .add_to(&mut multi, &self.config.chroot)
            .map_err(|(_, e)| bad(e))?;
        let applied = self
            .engine
            .clock()
            .timeout(self.config.timeout, multi.commit())
            .await;
        match applied {
            Some(Ok(_)) => Ok(Some(())),
            // Of the record itself; what the servers say of the other writes is the caller's to know.
            Some(Err(MultiWriteError::OperationFailed {
                index: 0,
                source: Error::BadVersion | Error::NodeExists | Error::NoNode,
            })) => Ok(None),
            Some(Err(e)) => Err(self.failed(call, e.into())),
            None => Err(self.failed(call, Error::Timeout)),
        }
    }

    fn failed(&self, call: &Call, e: Error) -> FenceError {
        if let Error::SessionExpired | Error::ClientClosed = e {
            call.session.end();
        }
        FenceError::store(e)
    }
}

impl FenceGate<Writes> for ZooKeeperGate {
    type Output = ();

    /// As promised by the trait; a [`FenceError::Store`] does not tell whether the writes were applied if the answer was
    /// lost. A write that the servers refuse (no such node, another version) is a `Store`, and nothing was written.
    async fn pass(&self, resource: &str, token: FencingToken, write: Writes) -> Result<(), FenceError> {
        // A resource without a name has no node to be read.
        judge(resource, token, None)?;
        for _ in 0..RETRIES {
            let session = self.session().await.map_err(FenceError::store)?;
            let call = session.call().map_err(FenceError::store)?;
            if self.attempt(&call, resource, token, &write).await?.is_some() {
                return Ok(());
            }
        }
        Err(FenceError::store("the record changes as fast as it is read"))
    }
}
