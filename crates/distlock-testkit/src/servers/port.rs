//! Listen ports that nobody else takes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use rand::RngExt;

/// Below the range (32768–60999) from which the kernel takes the ports of outgoing connections: a port that is
/// closed for a moment during a server's restart cannot be taken by one.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port for a server, kept from other test processes of this machine for as long as this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lease: File,
}

impl Port {
    /// Takes a free port at random.
    ///
    /// # Errors
    /// When a thousand tries find none, or the lease files cannot be written.
    pub fn free() -> io::Result<Self> {
        let leases = std::env::temp_dir().join("distlock-testkit-ports");
        std::fs::create_dir_all(&leases)?;
        for _ in 0..1000 {
            let number = rand::rng().random_range(RANGE);
            let lease = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(leases.join(number.to_string()))?;
            match lease.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(e)) => return Err(e),
            }
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self {
                    number,
                    _lease: lease,
                });
            }
        }
        Err(io::Error::other("no free port between 20000 and 32000"))
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:<number>`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}
