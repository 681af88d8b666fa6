//! The locks of a namespace as they are now, read once for all who look.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use distlock_core::driver::LockInfo;
use tokio::sync::watch;

use crate::gateway::Gateway;
use crate::tenants::Tenant;

/// How often the engine is asked while somebody looks, at most.
const PACE: Duration = Duration::from_millis(400);
/// How many locks are shown.
pub(crate) const MOST: usize = 500;

/// One look at all locks: none while it is not known, else those, or why they cannot be seen.
pub(crate) type Look = Option<Arc<Result<Vec<LockInfo>, String>>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Overview(Mutex<Option<watch::Receiver<Look>>>);

impl Overview {
    /// Each look from now on. The engine is asked while somebody has one of these.
    pub(crate) fn follow(&self, gateway: &Arc<Gateway>, tenant: &Arc<Tenant>) -> watch::Receiver<Look> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(looks) = &*present
            && looks.has_changed().is_ok()
        {
            return looks.clone();
        }
        let (sender, looks) = watch::channel(None);
        *present = Some(looks.clone());
        let (gateway, tenant) = (gateway.clone(), tenant.clone());
        tokio::spawn(async move {
            loop {
                let start = Instant::now();
                let look = match tenant.client.list("", None, MOST).await {
                    Ok(mut locks) => {
                        gateway.seats.complete(tenant.namespace(), &mut locks);
                        Ok(locks)
                    }
                    Err(e) => Err(e.to_string()),
                };
                sender.send_replace(Some(Arc::new(look)));
                // A long look must not be all that the engine does.
                let pause = PACE.max(start.elapsed() * 5);
                tokio::time::sleep(pause).await;
                // The one that is kept for those who come is not somebody who looks.
                let mut present = tenant.overview.0.lock().unwrap_or_else(PoisonError::into_inner);
                if sender.receiver_count() <= 1 || gateway.closing.is_cancelled() {
                    *present = None;
                    return;
                }
            }
        });
        looks
    }
}
