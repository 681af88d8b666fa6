//! Names as 64-bit numbers, for the lock functions of databases that know numbers only.

/// The same number in every process and version: FNV-1a over the bytes, then a finalizer that spreads short names
/// over all 64 bits. Two different names of a billion in use meet with a probability of about 3 %; they would then
/// exclude each other, which costs time and never safety.
///
/// ```
/// # use distlock_sql::tx::name_hash;
/// assert_eq!(name_hash("distlock:a"), name_hash("distlock:a"));
/// assert_ne!(name_hash("distlock:a"), name_hash("distlock:A"));
/// ```
pub fn name_hash(name: &str) -> i64 {
    let mut hash = fnv(name);
    // The finalizer of splitmix64.
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)).cast_signed()
}

/// FNV-1a, 64 bits.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn f103_a_hundred_thousand_names_have_as_many_numbers() {
        let numbers: HashSet<i64> = (0..100_000)
            .map(|i| name_hash(&format!("distlock:tenant-{i}")))
            .collect();
        assert_eq!(numbers.len(), 100_000);
        // Two names with one CRC-32 (0x4ddb0c25).
        assert_ne!(name_hash("plumless"), name_hash("buckeroo"));
    }

    #[test]
    fn the_numbers_never_change() {
        assert_eq!(fnv(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
