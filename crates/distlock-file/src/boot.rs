//! Which run of the host this is: what was recorded before a restart is history.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use distlock_core::driver::DriverError;

use crate::hash;
use crate::trouble::failed;

/// The host's present run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Boot {
    /// A hash of the kernel's random boot id, which is the same in all containers of a host.
    pub(crate) hash: u64,
}

impl Boot {
    pub(crate) fn current() -> Result<Self, DriverError> {
        let path = Path::new("/proc/sys/kernel/random/boot_id");
        let id = std::fs::read(path).map_err(|e| {
            failed(
                "the file engine must know the host's boot id, but cannot read",
                path,
                e,
            )
        })?;
        Ok(Self {
            hash: hash::of(id.trim_ascii()),
        })
    }

    pub(crate) fn tag(&self) -> u16 {
        (self.hash >> 48) as u16
    }

    /// The wall clock, for the first token of a counter that may have vanished. Nothing else uses it.
    pub(crate) fn wall_micros(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}
