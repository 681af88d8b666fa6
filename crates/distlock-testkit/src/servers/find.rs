//! Where the server programs are.

use std::path::{Path, PathBuf};

use super::program::StartError;

/// Places outside of `PATH` where distributions put server programs.
const EXTRA: [&str; 4] = [
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/opt/distlock/bin",
];

/// Finds a program: the path in `DISTLOCK_<NAME>` (upper case, `-` as `_`), then `PATH`, then the usual places.
///
/// # Errors
/// [`StartError::Missing`] when it is nowhere, also when the variable names a file that does not exist.
pub fn find(name: &str) -> Result<PathBuf, StartError> {
    let variable = format!("DISTLOCK_{}", name.to_uppercase().replace('-', "_"));
    if let Some(path) = std::env::var_os(&variable) {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(StartError::Missing(format!(
                "{name} ({variable}={} does not exist)",
                path.display()
            )))
        };
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .chain(EXTRA.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| StartError::Missing(name.to_owned()))
}

/// The newest PostgreSQL installation's program: distributions keep them out of `PATH`, one directory per version.
pub(super) fn find_postgres(name: &str) -> Result<PathBuf, StartError> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir(Path::new("/usr/lib/postgresql"))
        .map(|dirs| {
            dirs.filter_map(|d| Some(d.ok()?.path().join("bin").join(name)))
                .collect()
        })
        .unwrap_or_default();
    versions.retain(|path| path.is_file());
    versions.sort();
    versions.pop().map_or_else(|| find(name), Ok)
}

/// The user and group ids of a system user, from the password file.
pub(super) fn find_user(name: &str) -> Result<(u32, u32), StartError> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    users
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()? == name;
            let (uid, gid) = (fields.nth(1)?, fields.next()?);
            found.then_some((uid.parse().ok()?, gid.parse().ok()?))
        })
        .ok_or_else(|| StartError::Missing(format!("the system user {name}")))
}
