//! A disk that is soon full.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::find::find;
use super::program::StartError;

/// A file system of a few megabytes, in memory. Gone when dropped, with everything in it.
#[derive(Debug)]
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// One of this size.
    ///
    /// # Errors
    /// [`StartError::Missing`] where file systems cannot be mounted (that takes root).
    pub fn new(megabytes: u32) -> Result<Self, StartError> {
        let dir = TempDir::with_prefix("distlock-disk-")?;
        let mut mount = Command::new(find("mount")?);
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "distlock"]);
        if !mount.arg(dir.path()).output()?.status.success() {
            return Err(StartError::Missing("the right to mount a file system".into()));
        }
        let this = Self(dir);
        std::fs::set_permissions(this.path(), Permissions::from_mode(0o755))?;
        Ok(this)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the room that is left.
    ///
    /// # Errors
    /// When it cannot be written to for another reason.
    pub fn fill(&self) -> io::Result<()> {
        let mut file = File::create(self.path().join("fill"))?;
        for size in [1 << 20, 1 << 12] {
            let block = vec![1; size];
            loop {
                match file.write_all(&block) {
                    Ok(()) => {}
                    Err(e) if e.kind() == io::ErrorKind::StorageFull => break,
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// Gives that room back.
    ///
    /// # Errors
    /// When it was not full.
    pub fn free(&self) -> io::Result<()> {
        std::fs::remove_file(self.path().join("fill"))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: what is still open on it goes when it is closed.
        let umount = Command::new("umount").arg("-l").arg(self.path()).output();
        drop(umount);
    }
}
