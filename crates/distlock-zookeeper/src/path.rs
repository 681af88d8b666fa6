//! Where a lock is: from keys to paths and back.

use distlock_core::driver::{DriverError, Refusal};
use distlock_core::{Key, Namespace};

/// Whether ZooKeeper stores this as one part of a path. (Its check looks at UTF-16 units, so it refuses everything
/// beyond the first plane, with the private use area and the specials.)
pub(crate) fn storable(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".." && part.chars().all(plain)
}

fn plain(c: char) -> bool {
    !matches!(c, '/' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The keys of one client, as paths.
#[derive(Debug)]
pub(crate) struct Paths {
    /// The parent of all locks; empty for the root.
    root: String,
    exact: bool,
}

impl Paths {
    pub(crate) fn new(chroot: &str, namespace: &Namespace) -> Result<Self, DriverError> {
        let exact = namespace.is_exact();
        let root = if exact {
            chroot.to_owned()
        } else {
            format!("{chroot}/{}", encode(namespace.as_str()))
        };
        if root == "/zookeeper" {
            let why = "the namespace \"zookeeper\" is the servers' own; take another one or a chroot";
            return Err(DriverError::refused(Refusal::InvalidConfig(why.into())));
        }
        Ok(Self { root, exact })
    }

    /// The parent of all locks, and whether keys there are encoded into one part each.
    pub(crate) fn root(&self) -> (&str, bool) {
        (if self.root.is_empty() { "/" } else { &self.root }, !self.exact)
    }

    /// The lock's own path. With exact names the key is the path; otherwise it is one part under the namespace, with
    /// what ZooKeeper cannot store written as `%` and two digits for each byte.
    pub(crate) fn of(&self, key: &Key) -> Result<String, DriverError> {
        if !self.exact {
            return Ok(format!("{}/{}", self.root, encode(key.as_str())));
        }
        let name = key.as_str().strip_prefix('/').unwrap_or(key.as_str());
        if let Some(part) = name.split('/').find(|part| !storable(part)) {
            let why = format!("ZooKeeper cannot store {part:?} as a part of a path");
            return Err(DriverError::refused(Refusal::InvalidKey(why)));
        }
        let path = format!("{}/{name}", self.root);
        if path == "/zookeeper" || path.starts_with("/zookeeper/") {
            let why = "paths under /zookeeper are the servers' own".to_owned();
            return Err(DriverError::refused(Refusal::InvalidKey(why)));
        }
        Ok(path)
    }
}

/// One part of a path for any name but the empty one.
pub(crate) fn encode(name: &str) -> String {
    let dots = name == "." || name == "..";
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if plain(c) && c != '%' && !(dots && c == '.') {
            out.push(c);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in c.encode_utf8(&mut bytes).bytes() {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The key of a part that [`Paths::of`] wrote.
pub(crate) fn decode(part: &str) -> Option<Key> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    let key = Key::from_bytes(&bytes).ok()?;
    // Only what we would write ourselves: nothing foreign, and no second name of the same key.
    (encode(key.as_str()) == part).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_one_part_and_reads_back() {
        let paths = Paths::new("", &Namespace::default()).unwrap();
        for name in [
            "a", "a/b", "/", ".", "..", "%", "%2F", "a:b", "日本", "🔒", "\u{feff}", "\u{e000}", "a.b",
        ] {
            let key = Key::new(name).unwrap();
            let path = paths.of(&key).unwrap();
            let part = path.strip_prefix("/distlock/").unwrap();
            assert!(storable(part), "{name:?} became {part:?}");
            assert_eq!(decode(part), Some(key));
        }
        assert_eq!(decode("%2f"), None);
        assert_eq!(decode("%61"), None);
    }

    #[test]
    fn exact_names_are_paths() {
        let paths = Paths::new("/apps", &Namespace::new("").unwrap()).unwrap();
        assert_eq!(paths.of(&Key::new("/locks/a").unwrap()).unwrap(), "/apps/locks/a");
        assert_eq!(paths.of(&Key::new("locks/a").unwrap()).unwrap(), "/apps/locks/a");
        for bad in ["a//b", "a/", "../a", "a/./b", "🔒"] {
            assert!(paths.of(&Key::new(bad).unwrap()).is_err(), "{bad}");
        }
        let root = Paths::new("", &Namespace::new("").unwrap()).unwrap();
        assert!(root.of(&Key::new("zookeeper/quota").unwrap()).is_err());
    }
}
