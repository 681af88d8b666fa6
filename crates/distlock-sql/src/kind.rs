//! Kinds and modes of locks as words in a row.

use distlock_core::driver::{Kind, Mode};
use serde::{Deserialize, Serialize};

/// A mode without its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    Mutex,
    Write,
    Read,
    Slot,
}

/// The word for a kind of lock.
pub(crate) fn kind_word(kind: Kind) -> String {
    match kind {
        Kind::Mutex => "mutex".into(),
        Kind::ReadWrite => "rw".into(),
        Kind::Semaphore { of } => format!("semaphore/{of}"),
    }
}

/// The kind for a word.
pub(crate) fn kind_of(word: &str) -> Option<Kind> {
    match word {
        "mutex" => Some(Kind::Mutex),
        "rw" => Some(Kind::ReadWrite),
        _ => Some(Kind::Semaphore {
            of: word.strip_prefix("semaphore/")?.parse().ok()?,
        }),
    }
}

/// The word for a mode.
pub(crate) fn word(mode: Mode) -> Word {
    match mode {
        Mode::Mutex => Word::Mutex,
        Mode::Write => Word::Write,
        Mode::Read => Word::Read,
        Mode::Slot { .. } => Word::Slot,
    }
}
