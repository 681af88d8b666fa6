//! One client of the engine for each namespace, made when it is first asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::{Client, Error, Namespace};
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

use crate::overview::Overview;
use crate::problem::Problem;

/// Makes the client of one namespace.
pub type Connect = Arc<dyn Fn(Namespace) -> BoxFuture<'static, Result<Client, Error>> + Send + Sync>;

/// A namespace in use.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) client: Client,
    pub(crate) overview: Overview,
}

impl Tenant {
    pub(crate) fn namespace(&self) -> &str {
        self.client.namespace().as_str()
    }
}

type Slot = Arc<OnceCell<Arc<Tenant>>>;

/// The namespaces in use.
pub(crate) struct Tenants {
    connect: Connect,
    most: usize,
    slots: Mutex<HashMap<Namespace, Slot>>,
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants").finish_non_exhaustive()
    }
}

impl Tenants {
    pub(crate) fn new(connect: Connect, most: usize) -> Self {
        Self {
            connect,
            most,
            slots: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Namespace, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client of this namespace.
    pub(crate) async fn get(&self, namespace: &Namespace) -> Result<Arc<Tenant>, Problem> {
        let slot = {
            let mut slots = self.lock();
            if !slots.contains_key(namespace) && slots.len() >= self.most {
                let why = format!("this gateway serves {} namespaces", self.most);
                return Err(Problem::limited(why, 60));
            }
            slots.entry(namespace.clone()).or_default().clone()
        };
        match slot.get() {
            Some(tenant) => Ok(tenant.clone()),
            None => Box::pin(self.open(namespace, slot)).await,
        }
    }

    async fn open(&self, namespace: &Namespace, slot: Slot) -> Result<Arc<Tenant>, Problem> {
        let made = slot.get_or_try_init(|| async {
            let client = (self.connect)(namespace.clone()).await?;
            Ok::<_, Error>(Arc::new(Tenant {
                client,
                overview: Overview::default(),
            }))
        });
        match made.await {
            Ok(tenant) => Ok(tenant.clone()),
            Err(e) => {
                // A namespace that cannot be opened shall not take up room.
                let mut slots = self.lock();
                if slots.get(namespace).is_some_and(|s| s.get().is_none()) {
                    slots.remove(namespace);
                }
                Err(e.into())
            }
        }
    }

    /// The namespaces in use.
    pub(crate) fn all(&self) -> Vec<Arc<Tenant>> {
        self.lock()
            .values()
            .filter_map(|slot| slot.get().cloned())
            .collect()
    }
}
