//! A fencing gate for data in etcd, whatever engine gave the token.

use std::sync::Arc;

use distlock_core::clock::Clock;
use distlock_core::driver::{DriverError, Reached};
use distlock_core::engine::{Engine, EngineThread};
use distlock_core::{FencingToken, Namespace};
use distlock_fence::{FenceError, FenceGate, judge};

use crate::ask;
use crate::client::Client;
use crate::config::Config;
use crate::failure::Failure;
use crate::txn::Applied;
use crate::wire::{Compare, CompareResult, CompareTarget, PutRequest, RangeRequest, TxnRequest};
use crate::writes::Writes;

/// How often the record of a resource may appear or change while it is judged.
const RETRIES: u32 = 8;

/// Refuses writes to etcd with a token that is older than one seen before for the same resource.
///
/// The largest token of a resource is kept in the key `<prefix><resource>`, in decimal digits; one transaction writes it,
/// on the condition that it is the one that was judged, and applies the writes. Where lock and data are in the same etcd,
/// [`GuardTxn`](crate::GuardTxn) needs no record at all; the gate is for tokens of any engine, and for writers that do
/// not have the guard.
///
/// Delete the record only together with the data and the lock: a gate that forgot accepts any token.
///
/// ```no_run
/// use distlock_etcd::{Config, EtcdGate, Writes};
/// use distlock_fence::{FenceGate, FencingToken};
///
/// # async fn example(token: FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// let gate = EtcdGate::connect(&Config::new(["10.0.0.1:2379"]), "fence/").await?;
/// gate.pass("accounts/42", token, Writes::new().put("accounts/42/balance", "100")).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct EtcdGate {
    client: Arc<Client>,
    prefix: String,
    /// Drives the time limits of requests.
    _thread: Arc<EngineThread>,
}

impl EtcdGate {
    /// A gate that keeps its records under `prefix`; asks the cluster once.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn connect(config: &Config, prefix: &str) -> Result<Self, DriverError> {
        let (engine, thread) = Engine::start(Clock::boot(), Namespace::default(), None)
            .map_err(|e| DriverError::unavailable(Reached::No, e))?;
        let client = Client::new(config, engine.clock().clone())?;
        client
            .call(ask::page(prefix, prefix.as_bytes().to_vec(), 1))
            .await?;
        Ok(Self {
            client: Arc::new(client),
            prefix: prefix.to_owned(),
            _thread: Arc::new(thread),
        })
    }
}

impl FenceGate<Writes> for EtcdGate {
    type Output = Applied;

    /// As promised by the trait; a [`FenceError::Store`] does not tell whether the writes were applied if the answer was
    /// lost.
    async fn pass(&self, resource: &str, token: FencingToken, write: Writes) -> Result<Applied, FenceError> {
        let key = format!("{}{resource}", self.prefix).into_bytes();
        let remember = PutRequest {
            key: key.clone(),
            value: token.to_string().into_bytes(),
            ..Default::default()
        };
        let writes = [vec![remember.into()], write.0].concat();
        for _ in 0..RETRIES {
            let read = RangeRequest {
                key: key.clone(),
                ..Default::default()
            };
            let reply = self.client.call(read).await.map_err(failed)?;
            let stored = reply.kvs.first();
            judge(resource, token, stored.map(|kv| &kv.value[..]))?;
            let unchanged = stored.map_or(CompareTarget::Create(0), |kv| CompareTarget::Mod(kv.mod_revision));
            let request = TxnRequest {
                compare: vec![Compare::key(key.clone(), CompareResult::Equal, unchanged)],
                success: writes.clone(),
                failure: Vec::new(),
            };
            let reply = self.client.call(request).await.map_err(failed)?;
            if reply.succeeded {
                return Ok(Applied {
                    revision: reply.revision(),
                });
            }
        }
        Err(FenceError::store("the record changes as fast as it is read"))
    }
}

fn failed(failure: Failure) -> FenceError {
    FenceError::store(DriverError::from(failure))
}
