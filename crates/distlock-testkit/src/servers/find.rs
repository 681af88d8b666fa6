//! Where the server programs are.

use std::path::PathBuf;

use super::process::StartError;

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
