//! Passwords.

use std::fmt;

/// A password or another secret. It never shows itself: not in `Debug`, so not in logs either, and it has no
/// `Display`.
///
/// ```
/// # use distlock_core::Secret;
/// let password = Secret::new("hunter2");
/// assert_eq!(format!("{password:?}"), "<redacted>");
/// assert_eq!(password.reveal(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for those who sign in with it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}
