//! Hash slots of a cluster, and names that stay in one.

use std::borrow::Cow;

/// The part of a key that decides its slot: what is between the first `{` and the next `}`, unless that is nothing.
pub(crate) fn tag(key: &str) -> &str {
    let Some((_, rest)) = key.split_once('{') else {
        return key;
    };
    match rest.split_once('}') {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => key,
    }
}

/// How many slots there are.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key: CRC-16/XMODEM of its tag, modulo 16384 (Redis Cluster specification).
pub(crate) fn slot(key: &str) -> u16 {
    let crc = tag(key).bytes().fold(0_u16, |mut crc, byte| {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = match crc & 0x8000 {
                0 => crc << 1,
                _ => crc << 1 ^ 0x1021,
            };
        }
        crc
    });
    crc % SLOTS
}

/// Writes braces so that they are no hash tag; reversible, and the beginning of a name stays the beginning.
pub(crate) fn encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '{' => out.push_str("%7B"),
            '}' => out.push_str("%7D"),
            '%' => out.push_str("%25"),
            c => out.push(c),
        }
    }
    out
}

/// The name that was encoded; other text as it is.
pub(crate) fn decode(text: &str) -> Cow<'_, str> {
    match text.contains('%') {
        true => text
            .replace("%7B", "{")
            .replace("%7D", "}")
            .replace("%25", "%")
            .into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("foo"), 12182);
        assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
        assert_eq!(tag("foo{}{bar}"), "foo{}{bar}");
        assert_eq!(tag("foo{{bar}}zap"), "{bar");
        assert_eq!(tag("foo{bar}{zap}"), "bar");
    }

    #[test]
    fn f101_names_of_any_shape_are_encoded_reversibly() {
        for name in ["a", "a{b", "{}", "a}b{c", "100%", "%7B", "{a}", "%257B{"] {
            let stored = encode(name);
            assert_eq!(decode(&stored), name);
            assert_eq!(tag(&stored), stored);
        }
    }
}
