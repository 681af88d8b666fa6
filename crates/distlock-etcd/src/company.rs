//! Who else stands in the line, and whether we may stand there.

use distlock_core::driver::{DriverError, Holder, Kind, Refusal};

use crate::claim::EtcdClaim;
use crate::name;
use crate::record::Record;
use crate::wire::KeyValue;

impl EtcdClaim {
    /// A contender as people see it.
    pub(crate) fn shown(&self, kv: &KeyValue) -> Holder {
        let rest = String::from_utf8_lossy(&kv.key);
        let rest = rest.strip_prefix(&self.lock).unwrap_or(&rest);
        self.shared.holder(Record::read(kv, rest).holder)
    }

    /// Refuses to stand in a line of another kind of lock, or behind what is no contender at all.
    pub(crate) fn check_line(&self, first: Option<&KeyValue>) -> Result<(), DriverError> {
        let Some(kv) = first else { return Ok(()) };
        let key = String::from_utf8_lossy(&kv.key);
        let rest = key.strip_prefix(&self.lock).unwrap_or(&key);
        if !name::is_contender(rest) {
            let why = format!(
                "{key:?} lies inside of it and would block it{}; choose names that do not nest",
                if kv.lease == 0 {
                    " for ever, having no lease"
                } else {
                    ""
                }
            );
            return Err(DriverError::refused(Refusal::InvalidKey(why)));
        }
        let (have, want) = (Record::read(kv, rest).kind(), self.want.mode.kind());
        if have != want {
            let (have, want) = (Kind::to_string(&have), Kind::to_string(&want));
            return Err(DriverError::refused(Refusal::KindMismatch { have, want }));
        }
        Ok(())
    }
}
