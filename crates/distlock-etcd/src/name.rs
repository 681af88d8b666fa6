//! Where things are in the store.
//!
//! A contender's key is `<lock>/<lease>.<n>`: the lease in hexadecimal as in Go's `concurrency` package, then a
//! number that tells the claims of a client apart, because that package's one key per lease would make them the same
//! contender. Go and etcdctl look only at the prefix `<lock>/` and at create revisions, so all exclude each other.
//! Readers stand in `<lock>/r/`, writers in `<lock>/w/`: a reader waits for the last writer before it.
//!
//! In a namespace `<lock>` is `<namespace>:<key>` with `%` and `/` of the key as `%25` and `%2F`, so that no lock
//! lies inside another's prefix. With exact names it is the key itself.

use distlock_core::driver::{Mode, Refusal};
use distlock_core::{Key, Namespace};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b'/');
/// The namespace of our own keys when names are exact.
const OWN: &str = "distlock";

/// The names of one client.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    namespace: Namespace,
}

impl Names {
    pub(crate) fn new(namespace: Namespace) -> Self {
        Self { namespace }
    }

    /// The prefix of all contenders of a lock, with its final `/`.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`] for an exact name that lies among our own keys.
    pub(crate) fn lock(&self, key: &Key) -> Result<String, Refusal> {
        let name = key.as_str();
        if !self.namespace.is_exact() {
            return Ok(format!(
                "{}:{}/",
                self.namespace,
                utf8_percent_encode(name, ESCAPED)
            ));
        }
        let own = self.sessions();
        if format!("{name}/").starts_with(&own) || own.starts_with(&format!("{name}/")) {
            return Err(Refusal::InvalidKey(format!(
                "{own} is kept for distlock's own records"
            )));
        }
        Ok(format!("{name}/"))
    }

    /// The prefix of all locks whose keys start with `prefix`.
    pub(crate) fn locks(&self, prefix: &str) -> String {
        if self.namespace.is_exact() {
            prefix.to_owned()
        } else {
            format!("{}:{}", self.namespace, utf8_percent_encode(prefix, ESCAPED))
        }
    }

    /// The prefix of the sessions' own records.
    pub(crate) fn sessions(&self) -> String {
        let namespace = if self.namespace.is_exact() {
            OWN
        } else {
            self.namespace.as_str()
        };
        format!("{namespace}.session/")
    }

    /// The lock that a stored key belongs to, and the rest of the stored key; `None` for what is no contender.
    pub(crate) fn parse<'a>(&self, stored: &'a [u8]) -> Option<(Key, &'a str)> {
        let stored = std::str::from_utf8(stored).ok()?;
        let (mut lock, place) = stored.rsplit_once('/')?;
        if !is_place(place) {
            return None;
        }
        if let Some((shorter, "r" | "w")) = lock.rsplit_once('/') {
            lock = shorter;
        }
        let rest = &stored[lock.len() + 1..];
        if self.namespace.is_exact() {
            return Some((Key::new(lock).ok()?, rest));
        }
        let name = self.namespace.key_of(lock)?;
        if name.contains('/') {
            return None;
        }
        Some((Key::new(percent_decode_str(name).decode_utf8().ok()?).ok()?, rest))
    }
}

/// Whether this is what follows the lock's prefix in a contender's key.
pub(crate) fn is_contender(rest: &str) -> bool {
    is_place(
        rest.strip_prefix("r/")
            .or_else(|| rest.strip_prefix("w/"))
            .unwrap_or(rest),
    )
}

/// `<hex>` (Go) or `<hex>.<n>` (ours).
fn is_place(place: &str) -> bool {
    let (lease, n) = place.split_once('.').unwrap_or((place, "0"));
    let lease = lease.strip_prefix('-').unwrap_or(lease);
    let hex = !lease.is_empty()
        && lease
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    hex && !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())
}

/// The part of a lock's prefix in which a contender of this mode stands.
pub(crate) fn part(mode: Mode) -> &'static str {
    match mode {
        Mode::Mutex | Mode::Slot { .. } => "",
        Mode::Read => "r/",
        Mode::Write => "w/",
    }
}

/// The end of the range of all keys that start with `prefix`.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(namespace: &str) -> Names {
        Names::new(Namespace::new(namespace).unwrap())
    }

    #[test]
    fn names_that_nest_do_not_lie_in_each_other() {
        let names = names("ns");
        let outer = names.lock(&Key::new("a").unwrap()).unwrap();
        for inner in ["a/b", "a/", "a/r", "a%2Fb", "a/7f.1"] {
            let inner = names.lock(&Key::new(inner).unwrap()).unwrap();
            assert!(!inner.starts_with(&outer), "{inner} lies in {outer}");
        }
    }

    #[test]
    fn every_key_reads_back_as_written() {
        for namespace in ["ns", ""] {
            let names = names(namespace);
            for name in ["a", "a/b", "a%2Fb", "ä ö", "/x/", "a:b", "ns:a"] {
                let key = Key::new(name).unwrap();
                for rest in ["7f.12", "7f", "r/7f.1", "w/-5.1"] {
                    let stored = format!("{}{rest}", names.lock(&key).unwrap());
                    assert_eq!(
                        names.parse(stored.as_bytes()),
                        Some((key.clone(), rest)),
                        "{stored}"
                    );
                }
            }
        }
    }

    #[test]
    fn foreign_keys_are_no_contenders() {
        let names = names("ns");
        for stored in [
            "ns:a/b/7f",
            "ns:a",
            "other:a/7f",
            "ns.session/7f",
            "ns:a/zz",
            "ns:a/",
        ] {
            assert_eq!(names.parse(stored.as_bytes()), None, "{stored}");
        }
        assert!(is_contender("w/7f.1") && !is_contender("b/7f") && !is_contender("zz"));
    }

    #[test]
    fn our_own_records_cannot_be_locked_over() {
        let names = names("");
        for name in ["distlock.session", "distlock.session/7f"] {
            assert!(names.lock(&Key::new(name).unwrap()).is_err());
        }
        assert!(names.lock(&Key::new("distlock").unwrap()).is_ok());
    }

    #[test]
    fn a_range_ends_after_its_prefix() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff"), b"b");
    }
}
