//! Who may do what: bearer tokens, stored as digests, and their scopes.
//!
//! The file is read again when it changes, so that tokens are rotated without a restart:
//!
//! ```toml
//! [[token]]
//! name = "billing"                                       # shown in the audit log
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! namespaces = ["shop"]                                  # or ["*"]; default: the gateway's own
//! may = ["read", "acquire"]                              # and "break"
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The least that a token must have, since its digest is not salted: random ones of 128 bits and more.
const SHORTEST: usize = 22;

/// One thing that a token may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Right {
    /// See locks.
    Read,
    /// Take, renew and release locks.
    Acquire,
    /// Take locks away from others.
    Break,
}

impl Right {
    pub(crate) const ALL: [Right; 3] = [Right::Read, Right::Acquire, Right::Break];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Acquire => "acquire",
            Self::Break => "break",
        }
    }
}

/// Somebody who was recognised.
#[derive(Debug)]
pub(crate) struct Principal {
    pub(crate) name: String,
    /// None: all.
    namespaces: Option<Vec<String>>,
    may: Vec<Right>,
}

impl Principal {
    /// Everybody, where no tokens are asked for.
    pub(crate) fn anybody() -> Arc<Self> {
        Arc::new(Self {
            name: String::from("anonymous"),
            namespaces: None,
            may: Right::ALL.to_vec(),
        })
    }

    pub(crate) fn may(&self, right: Right, namespace: &str) -> bool {
        let here = self
            .namespaces
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name == namespace));
        here && self.may.contains(&right)
    }

    /// What it may do there, in words.
    pub(crate) fn rights(&self, namespace: &str) -> Vec<&'static str> {
        let may = Right::ALL.into_iter().filter(|right| self.may(*right, namespace));
        may.map(Right::word).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    namespaces: Option<Vec<String>>,
    may: Vec<Right>,
}

#[derive(Debug)]
struct Known {
    digest: [u8; 32],
    who: Arc<Principal>,
}

/// What tells whether the file has changed.
type Stamp = Option<(SystemTime, u64)>;

#[derive(Debug)]
struct Tokens {
    path: PathBuf,
    default_namespace: String,
    known: RwLock<(Stamp, Vec<Known>)>,
}

/// The rule at the door.
#[derive(Debug)]
pub(crate) struct Access(Option<Tokens>);

impl Access {
    /// Everybody may do everything.
    pub(crate) fn open() -> Self {
        Self(None)
    }

    /// Those whose tokens' digests are in this file may do what it says.
    pub(crate) fn tokens(path: &Path, default_namespace: &str) -> io::Result<Self> {
        let stamp = stamp(path);
        let known = read(path, default_namespace)?;
        Ok(Self(Some(Tokens {
            path: path.to_owned(),
            default_namespace: default_namespace.to_owned(),
            known: RwLock::new((stamp, known)),
        })))
    }

    /// Whether tokens are asked for.
    pub(crate) fn is_guarded(&self) -> bool {
        self.0.is_some()
    }

    /// Who this is. Every known digest is compared, each in constant time.
    pub(crate) fn recognise(&self, token: Option<&str>) -> Option<Arc<Principal>> {
        let Some(tokens) = &self.0 else {
            return Some(Principal::anybody());
        };
        let digest: [u8; 32] = Sha256::digest(token?.as_bytes()).into();
        let known = tokens.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for one in &known.1 {
            if bool::from(one.digest.ct_eq(&digest)) {
                found = Some(one.who.clone());
            }
        }
        found
    }

    /// Reads the file again if it has changed. A file that cannot be read or understood changes nothing.
    pub(crate) fn refresh(&self) {
        let Some(tokens) = &self.0 else { return };
        let now = stamp(&tokens.path);
        if tokens.known.read().unwrap_or_else(PoisonError::into_inner).0 == now {
            return;
        }
        let path = tokens.path.display();
        let mut known = tokens.known.write().unwrap_or_else(PoisonError::into_inner);
        known.0 = now;
        match read(&tokens.path, &tokens.default_namespace) {
            Ok(read) => {
                tracing::info!(target: "distlock", %path, tokens = read.len(), "the tokens were read again");
                known.1 = read;
            }
            Err(e) => {
                tracing::error!(target: "distlock", %path, error = %e, "the tokens stay as they were");
            }
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

fn read(path: &Path, default_namespace: &str) -> io::Result<Vec<Known>> {
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    // The error of the parser would quote the file.
    let file: File = toml::from_str(&text).map_err(|e| bad(e.message().to_owned()))?;
    if file.token.is_empty() {
        return Err(bad("no [[token]] is in it".into()));
    }
    let known = file.token.into_iter().map(|entry| {
        let digest = hex(&entry.sha256).ok_or_else(|| {
            bad(format!(
                "sha256 of {:?} is not 64 hexadecimal digits; make it with: printf %s \"$TOKEN\" | sha256sum",
                entry.name
            ))
        })?;
        let names = entry
            .namespaces
            .unwrap_or_else(|| vec![default_namespace.to_owned()]);
        Ok(Known {
            digest,
            who: Arc::new(Principal {
                name: entry.name,
                namespaces: (!names.iter().any(|n| n == "*")).then_some(names),
                may: entry.may,
            }),
        })
    });
    known.collect()
}

fn hex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(digest)
}

/// The token of an `Authorization: Bearer` header. One that is too short to be random is no token.
pub(crate) fn bearer(header: Option<&str>) -> Option<&str> {
    let (scheme, token) = header?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && token.len() >= SHORTEST).then_some(token)
}
