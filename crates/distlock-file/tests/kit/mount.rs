//! File systems of their own, for tests that run as root.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mount that ends with the test.
pub struct Mount(PathBuf);

impl Mount {
    pub fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        Self::of("tmpfs", at, options)
    }

    /// As a container's own layer is.
    pub fn overlay(at: &Path, [lower, upper, work]: [&Path; 3]) -> Option<Self> {
        let [lower, upper, work] = [lower, upper, work].map(Path::display);
        Self::of(
            "overlay",
            at,
            &format!("lowerdir={lower},upperdir={upper},workdir={work}"),
        )
    }

    fn of(kind: &str, at: &Path, options: &str) -> Option<Self> {
        let done = Command::new("mount")
            .args(["-t", kind, "-o", options, kind])
            .arg(at)
            .status();
        done.is_ok_and(|s| s.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
