//! Acquisitions that replicas have confirmed (`WAIT`).

use std::sync::atomic::Ordering;

use distlock_core::driver::{DriverError, Reached};
use redis::{Cmd, Value};

use crate::claim::RedisClaim;
use crate::dial::Link;
use crate::fault::Fault;
use crate::shape::millis;

/// How many replicas must have confirmed an acquisition before it is granted (`WAIT`).
///
/// It narrows the window in which a failover loses a lock, and does not close it: the replica that is promoted need
/// not be one that confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinReplicas {
    /// So many; 0 does not ask.
    Count(u32),
    /// A majority of the master and its replicas, counting those that were ever connected; at least one.
    Majority,
    /// All replicas that were ever connected; at least one.
    All,
}

impl Default for MinReplicas {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl MinReplicas {
    /// How many that is of so many replicas.
    pub(crate) fn of(self, replicas: u32) -> u32 {
        match self {
            Self::Count(n) => n,
            // The master is one of the majority.
            Self::Majority => replicas.div_ceil(2).max(1),
            Self::All => replicas.max(1),
        }
    }
}

impl RedisClaim {
    /// Waits until enough replicas have the acquisition, and gives it back if they do not. It bounds what a failover
    /// can lose; a replica that has it need not be the one that is promoted.
    pub(crate) async fn replicated(&mut self, link: &Link) -> Result<(), DriverError> {
        let patience = self.shared.links.patience();
        let wanted = match self.wanted(link).await {
            Ok(wanted) => wanted,
            Err(fault) => {
                self.owed = Some(link.clone());
                return Err(DriverError {
                    reached: Reached::Maybe,
                    ..fault.error
                });
            }
        };
        let mut wait = Cmd::new();
        wait.arg("WAIT").arg(wanted).arg(millis(patience / 2));
        let confirmed = match link.ask(&wait, patience).await {
            Ok(Value::Int(confirmed)) => confirmed,
            Ok(_) => 0,
            Err(fault) => {
                self.owed = Some(link.clone());
                return Err(DriverError {
                    reached: Reached::Maybe,
                    ..fault.error
                });
            }
        };
        if confirmed >= i64::from(wanted) {
            return Ok(());
        }
        self.leave(link, None).await.map_err(|fault| DriverError {
            reached: Reached::Maybe,
            ..fault.error
        })?;
        let why = format!("{confirmed} of {wanted} replicas confirmed the acquisition; it was given back");
        Err(DriverError::unavailable(Reached::No, why))
    }

    /// How many replicas have to confirm. The number of those that are connected now says nothing of the others.
    async fn wanted(&self, link: &Link) -> Result<u32, Fault> {
        let min_replicas = self.shared.config.min_replicas;
        if let MinReplicas::Count(count) = min_replicas {
            return Ok(count);
        }
        let mut role = Cmd::new();
        role.arg("ROLE");
        let connected = match link.ask(&role, self.shared.links.patience()).await? {
            Value::Array(words) => match words.get(2) {
                Some(Value::Array(replicas)) => u32::try_from(replicas.len()).unwrap_or(u32::MAX),
                _ => 0,
            },
            _ => 0,
        };
        let before = self.shared.replicas.fetch_max(connected, Ordering::AcqRel);
        Ok(min_replicas.of(before.max(connected)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_counts_the_master() {
        let of = |replicas| [MinReplicas::Majority.of(replicas), MinReplicas::All.of(replicas)];
        assert_eq!([0, 1, 2, 3, 4].map(of), [[1, 1], [1, 1], [1, 2], [2, 3], [2, 4]]);
        assert_eq!(MinReplicas::Count(3).of(1), 3);
    }
}
