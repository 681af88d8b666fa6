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

/// What each possible byte adds to the checksum.
const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The slot of a key: CRC-16/XMODEM of its tag, modulo 16384 (Redis Cluster specification).
pub(crate) fn slot(key: &str) -> u16 {
    let crc = tag(key).bytes().fold(0_u16, |crc, byte| {
        let [high, _] = crc.to_be_bytes();
        crc << 8 ^ CRC[usize::from(high ^ byte)]
    });
    crc % SLOTS
}

/// Writes braces so that they are no hash tag; reversible, and the beginning of a name stays the beginning.
pub(crate) fn encode(name: String) -> String {
    if !name.contains(['{', '}', '%']) {
        return name;
    }
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
            let stored = encode(name.to_owned());
            assert_eq!(decode(&stored), name);
            assert_eq!(tag(&stored), stored);
        }
    }
}
