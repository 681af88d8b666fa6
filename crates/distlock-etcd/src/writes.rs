//! Writes that are applied together.

use crate::wire::{DeleteRangeRequest, PutRequest, RequestOp};

/// Writes to etcd that a [`Txn`](crate::Txn) or an [`EtcdGate`](crate::EtcdGate) applies together, or not at all.
///
/// ```
/// use distlock_etcd::Writes;
///
/// let writes = Writes::new().put("accounts/42/balance", "100").delete("accounts/42/pending");
/// # let _ = writes;
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is written until a transaction or a gate is given these"]
pub struct Writes(pub(crate) Vec<RequestOp>);

impl Writes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a key.
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        let put = PutRequest {
            key: key.into(),
            value: value.into(),
            ..Default::default()
        };
        self.0.push(put.into());
        self
    }

    /// Deletes a key.
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        let delete = DeleteRangeRequest {
            key: key.into(),
            ..Default::default()
        };
        self.0.push(delete.into());
        self
    }
}
