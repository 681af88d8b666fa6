//! The stable hash of keys and snapshots. Part of the file format: never change it.

/// A 64-bit hash: one multiplication per word, and the finaliser of MurmurHash3. A weak finaliser would put similar
/// keys into the same bucket. It guards against damage and clustering, not against malice.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    let mut h = 0x9e37_79b9_7f4a_7c15 ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes([
            word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7],
        ]);
        h = step(h, word);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        h = step(h, u64::from_le_bytes(word));
    }
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

fn step(h: u64, word: u64) -> u64 {
    let h = (h ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn similar_keys_spread_evenly() {
        let mut buckets = [0u32; 256];
        for i in 0..25_600 {
            buckets[(of(format!("distlock:order:close:{i}").as_bytes()) % 256) as usize] += 1;
        }
        let (min, max) = (buckets.iter().min().unwrap(), buckets.iter().max().unwrap());
        assert!(*min > 50 && *max < 160, "{min}..{max}");
    }

    #[test]
    fn the_format_does_not_change() {
        assert_eq!(of(b""), of(b""));
        assert_ne!(of(b"a"), of(b"a\0"));
    }
}
