//! What a database server of one's own is started with.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use tempfile::TempDir;

use super::disk::SmallDisk;
use super::find::find_user;
use super::program::StartError;

/// What a database server is started with besides what it needs anyway.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) settings: Vec<String>,
    disk: Option<PathBuf>,
}

impl Setup {
    /// With settings of PostgreSQL (`idle_session_timeout=5s`) or arguments of MariaDB (`--wait-timeout=5`).
    #[must_use]
    pub fn settings(mut self, settings: impl IntoIterator<Item: AsRef<str>>) -> Self {
        self.settings
            .extend(settings.into_iter().map(|setting| setting.as_ref().to_owned()));
        self
    }

    /// With variables, such as those of a [`FakeClock`](super::FakeClock).
    #[must_use]
    pub fn env(mut self, env: Vec<(OsString, OsString)>) -> Self {
        self.env.extend(env);
        self
    }

    /// With its data on this disk, which must outlive the server.
    #[must_use]
    pub fn on(mut self, disk: &SmallDisk) -> Self {
        self.disk = Some(disk.path().to_owned());
        self
    }

    /// A directory for its data, and the user to run as.
    pub(super) fn place(
        &self,
        server: &str,
        user: &str,
    ) -> Result<(TempDir, Option<(u32, u32)>), StartError> {
        let prefix = format!("distlock-{server}-");
        let dir = match &self.disk {
            Some(disk) => TempDir::with_prefix_in(prefix, disk)?,
            None => TempDir::with_prefix(prefix)?,
        };
        let user = unprivileged(&dir, user)?;
        Ok((dir, user))
    }
}

/// Gives a directory to the system user of a server that refuses to be root. `None`: we are not root ourselves.
pub(super) fn unprivileged(dir: &TempDir, name: &str) -> Result<Option<(u32, u32)>, StartError> {
    if !rustix::process::getuid().is_root() {
        return Ok(None);
    }
    let (uid, gid) = find_user(name)?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    chown(dir.path(), Some(uid), Some(gid))?;
    Ok(Some((uid, gid)))
}
