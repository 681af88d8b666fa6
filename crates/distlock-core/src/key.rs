//! Keys and namespaces: the validated names under which locks are known.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// The largest length of a key, in bytes of UTF-8.
pub const MAX_KEY_BYTES: usize = 512;

/// The name of a lock, as the user spells it: UTF-8, 1 to 512 bytes, no control characters, case-sensitive.
///
/// Cloning is cheap. Two keys are the same lock exactly when they are equal byte for byte (and used in the same
/// namespace of the same engine); no normalisation is applied.
///
/// ```
/// use distlock_core::Key;
/// let key = Key::new("order:close:42")?;
/// assert_eq!(key.as_str(), "order:close:42");
/// assert!(Key::new("").is_err());
/// assert!(Key::new("a\nb").is_err());
/// # Ok::<(), distlock_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Checks a name and makes it a key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`], naming what is wrong and the allowed range, for an empty name, one over
    /// 512 bytes, or one with a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        check(name).map_err(|why| Error::new(ErrorKind::InvalidKey, why))?;
        Ok(Self(Arc::from(name)))
    }

    /// Checks bytes that came from outside (an argument, a file) and makes them a key.
    ///
    /// # Errors
    /// As [`Key::new`], and [`ErrorKind::InvalidKey`] when the bytes are not UTF-8.
    pub fn from_bytes(name: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(name).map_err(|e| {
            let at = e.valid_up_to();
            Error::new(
                ErrorKind::InvalidKey,
                format!("the key is not UTF-8 (byte {at} of {})", name.len()),
            )
        })?;
        Self::new(text)
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("the key is empty; a key has 1 to {MAX_KEY_BYTES} bytes"));
    }
    if name.len() > MAX_KEY_BYTES {
        return Err(format!(
            "the key has {} bytes; a key has 1 to {MAX_KEY_BYTES} bytes",
            name.len()
        ));
    }
    // Nearly all keys are of this kind, and it is seen without decoding them.
    if name.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Ok(());
    }
    if let Some((at, c)) = name.char_indices().find(|(_, c)| c.is_control()) {
        return Err(format!(
            "the key has the control character U+{:04X} at byte {at}; control characters are not allowed",
            c as u32
        ));
    }
    Ok(())
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// What can name a lock: `&str`, `String`, a [`Key`], or the result of [`key!`](crate::key!).
///
/// A bad name is not an error yet when the lock is built; it is reported by the first call that would use it,
/// before any I/O.
pub trait IntoKey {
    /// The checked key.
    ///
    /// # Errors
    /// As [`Key::new`].
    fn into_key(self) -> Result<Key, Error>;
}

impl IntoKey for Key {
    fn into_key(self) -> Result<Key, Error> {
        Ok(self)
    }
}

impl IntoKey for &Key {
    fn into_key(self) -> Result<Key, Error> {
        Ok(self.clone())
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Result<Key, Error> {
        Key::new(self)
    }
}

impl IntoKey for String {
    fn into_key(self) -> Result<Key, Error> {
        Key::new(self)
    }
}

impl IntoKey for &String {
    fn into_key(self) -> Result<Key, Error> {
        Key::new(self)
    }
}

impl IntoKey for Result<Key, Error> {
    fn into_key(self) -> Result<Key, Error> {
        self
    }
}

/// Joins parts into one key with `:`, so that different parts never give the same key.
///
/// Inside a part, `%` becomes `%25` and `:` becomes `%3A`; a program in another language that does the same
/// shares the lock.
///
/// ```
/// use distlock_core::{key, Key};
/// let (user, id) = ("a:b", 42);
/// assert_eq!(key!["order", user, id]?, Key::new("order:a%3Ab:42")?);
/// # Ok::<(), distlock_core::Error>(())
/// ```
#[macro_export]
macro_rules! key {
    ($($part:expr),+ $(,)?) => {{
        // A statement of its own: the borrowed parts, which are not `Send`, must not live across an await of the
        // expression that the key is used in.
        let key = $crate::join_key(&[$(&$part as &dyn ::std::fmt::Display),+]);
        key
    }};
}

/// The function behind [`key!`](crate::key!).
///
/// # Errors
/// As [`Key::new`], for the joined name.
pub fn join_key(parts: &[&dyn fmt::Display]) -> Result<Key, Error> {
    use fmt::Write;

    /// Escapes what is written through it.
    struct Escaped<'a>(&'a mut String);
    impl Write for Escaped<'_> {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            for c in s.chars() {
                match c {
                    '%' => self.0.push_str("%25"),
                    ':' => self.0.push_str("%3A"),
                    c => self.0.push(c),
                }
            }
            Ok(())
        }
    }

    let mut name = String::new();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            name.push(':');
        }
        write!(Escaped(&mut name), "{part}").map_err(|_| {
            Error::new(
                ErrorKind::InvalidKey,
                format!("part {i} of the key could not be formatted"),
            )
        })?;
    }
    Key::new(name)
}

/// The prefix that keeps one application's locks apart from another's on the same engine.
///
/// Default `distlock`. The empty namespace means *exact names*: the record's name is the key itself, for sharing
/// locks with programs that do not use distlock.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks a namespace.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] when it contains `:`, `/` or a control character, or is over 128 bytes.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        let bad = name.chars().find(|&c| c == ':' || c == '/' || c.is_control());
        if let Some(c) = bad {
            let why = format!(
                "the namespace {name:?} contains {c:?}; it may not contain ':', '/' or control characters"
            );
            return Err(Error::new(ErrorKind::InvalidConfig, why));
        }
        if name.len() > 128 {
            let why = format!(
                "the namespace has {} bytes; it may have 0 to 128 bytes",
                name.len()
            );
            return Err(Error::new(ErrorKind::InvalidConfig, why));
        }
        Ok(Self(Arc::from(name)))
    }

    /// The namespace as text; empty for exact names.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether records carry the keys' exact names.
    pub fn is_exact(&self) -> bool {
        self.0.is_empty()
    }

    /// The usual name of a key's record: `namespace:key`, or the key itself with exact names.
    pub fn record(&self, key: &Key) -> String {
        if self.is_exact() {
            key.as_str().to_owned()
        } else {
            [&*self.0, ":", key.as_str()].concat()
        }
    }

    /// The key of a record name, if the record is in this namespace.
    pub fn key_of<'a>(&self, record: &'a str) -> Option<&'a str> {
        if self.is_exact() {
            return Some(record);
        }
        record.strip_prefix(&*self.0)?.strip_prefix(':')
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self(Arc::from("distlock"))
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_is_not_a_control_character_is_legal_and_distinct() {
        let names = ["a", "A", "é", "a b", "a/b", "..", "{a}", "*", "a%3Ab", "日本"];
        let keys: std::collections::HashSet<_> = names.iter().map(|n| Key::new(n).unwrap()).collect();
        assert_eq!(keys.len(), names.len());
    }

    #[test]
    fn bad_names_say_what_is_allowed() {
        assert!(Key::new("").unwrap_err().to_string().contains("1 to 512 bytes"));
        assert!(
            Key::new("x".repeat(513))
                .unwrap_err()
                .to_string()
                .contains("513 bytes")
        );
        assert!(Key::new("x".repeat(512)).is_ok());
        assert!(Key::new("a\u{7f}").unwrap_err().to_string().contains("U+007F"));
        assert!(
            Key::from_bytes(b"a\xff")
                .unwrap_err()
                .to_string()
                .contains("byte 1")
        );
    }

    #[test]
    fn joined_parts_never_collide() {
        assert_ne!(key!["a:b", "c"].unwrap(), key!["a", "b:c"].unwrap());
        assert_ne!(key!["a%3Ab"].unwrap(), key!["a:b"].unwrap());
        assert_eq!(key!["order", 42].unwrap().as_str(), "order:42");
    }

    #[test]
    fn a_key_may_be_made_in_an_expression_that_awaits_in_a_spawned_task() {
        fn spawnable(_: impl Send) {}
        spawnable(async {
            let id = 7;
            std::future::ready(key!["order", id]).await
        });
    }

    #[test]
    fn namespaces_are_checked_and_reversible() {
        assert!(Namespace::new("a:b").is_err());
        assert!(Namespace::new("a/b").is_err());
        let ns = Namespace::new("shop").unwrap();
        let key = Key::new("a:b").unwrap();
        assert_eq!(ns.record(&key), "shop:a:b");
        assert_eq!(ns.key_of("shop:a:b"), Some("a:b"));
        assert_eq!(ns.key_of("shopping:a"), None);
        assert_eq!(Namespace::new("").unwrap().record(&key), "a:b");
    }
}
