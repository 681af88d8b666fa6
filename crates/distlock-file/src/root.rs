//! The root of a bucket: one word that names the slot with the present snapshot.
//!
//! `tag of the boot:16 | sequence number:44 | slot:4`; 0 is a bucket that was never written.

use crate::boot::Boot;

const SLOT_BITS: u32 = 4;
const SEQ_BITS: u32 = 44;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// A root word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root(u64);

impl Root {
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The slot of the present snapshot; `None` if there is none yet.
    pub(crate) fn slot(self) -> Option<u32> {
        (self.0 != 0).then_some((self.0 & ((1 << SLOT_BITS) - 1)) as u32)
    }

    pub(crate) fn seq(self) -> u64 {
        (self.0 >> SLOT_BITS) & SEQ_MASK
    }

    /// Whether it is this snapshot that the root names.
    pub(crate) fn names(self, seq: u64) -> bool {
        self.seq() == seq
    }

    /// Whether it was written since the host was last started (it is a hint: tags are short).
    pub(crate) fn is_of(self, boot: &Boot) -> bool {
        self.0 >> (SLOT_BITS + SEQ_BITS) == u64::from(boot.tag())
    }

    /// The root after this one. Never 0, since the sequence number never is.
    pub(crate) fn next(self, slot: u32, boot: &Boot) -> Self {
        let seq = (self.seq() % SEQ_MASK) + 1;
        Self(u64::from(boot.tag()) << (SLOT_BITS + SEQ_BITS) | seq << SLOT_BITS | u64::from(slot))
    }
}
