//! How a file remembers the largest token: two slots written in turn, so that a torn write cannot lose it.

use distlock_core::FencingToken;

/// The length of a slot. Both fit into one sector of any disk.
pub(crate) const SLOT: usize = 64;

const MAGIC: &str = "distlock-fence-1";

/// The remembered token and the slot that the next one goes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) newest: Option<FencingToken>,
    pub(crate) next_slot: usize,
}

/// Reads both slots.
///
/// A slot that is torn was being written when the machine stopped; its data had not been written yet, so that the
/// other slot is the truth. If both are unreadable, the file is not ours or was damaged, and nothing may pass.
pub(crate) fn read(bytes: &[u8]) -> Result<Record, String> {
    if bytes.is_empty() {
        return Ok(Record {
            newest: None,
            next_slot: 0,
        });
    }
    let slot = |i: usize| bytes.get(i * SLOT..(i + 1) * SLOT).and_then(parse);
    match (slot(0), slot(1)) {
        (None, None) if never_finished(bytes) => Ok(Record {
            newest: None,
            next_slot: 0,
        }),
        (None, None) => Err("neither of its two slots can be read".to_owned()),
        (a, b) if a >= b => Ok(Record {
            newest: a,
            next_slot: 1,
        }),
        (_, b) => Ok(Record {
            newest: b,
            next_slot: 0,
        }),
    }
}

/// Whether the very first write was cut short, before any data could follow it. A slot of full length that cannot
/// be read is damage: it may have been whole once.
fn never_finished(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(MAGIC.len())];
    bytes.iter().all(|b| *b == 0) || (bytes.len() < SLOT && MAGIC.as_bytes().starts_with(head))
}

/// One slot: readable by people, of fixed length, with a checksum.
pub(crate) fn slot(token: FencingToken) -> [u8; SLOT] {
    let body = format!("{MAGIC} {:020}", token.get());
    let text = format!("{body} {:016x}", checksum(body.as_bytes()));
    let mut out = [b' '; SLOT];
    out[..text.len()].copy_from_slice(text.as_bytes());
    out[SLOT - 1] = b'\n';
    out
}

fn parse(slot: &[u8]) -> Option<FencingToken> {
    let text = std::str::from_utf8(slot).ok()?;
    let mut words = text.split_ascii_whitespace();
    let (magic, token, sum) = (words.next()?, words.next()?, words.next()?);
    let body = format!("{magic} {token}");
    (magic == MAGIC && format!("{:016x}", checksum(body.as_bytes())) == sum).then(|| token.parse().ok())?
}

/// FNV-1a, 64 bits: enough to tell a torn line from a whole one.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| {
        (hash ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(n: u64) -> FencingToken {
        FencingToken::new(n)
    }

    #[test]
    fn an_empty_file_remembers_nothing() {
        assert_eq!(
            read(b"").unwrap(),
            Record {
                newest: None,
                next_slot: 0
            }
        );
    }

    #[test]
    fn the_larger_slot_counts_and_the_other_is_written_next() {
        let both = [slot(t(7)), slot(t(u64::MAX))].concat();
        assert_eq!(
            read(&both).unwrap(),
            Record {
                newest: Some(t(u64::MAX)),
                next_slot: 0
            }
        );
        let both = [slot(t(9)), slot(t(8))].concat();
        assert_eq!(
            read(&both).unwrap(),
            Record {
                newest: Some(t(9)),
                next_slot: 1
            }
        );
        assert_eq!(
            read(&slot(t(9))).unwrap(),
            Record {
                newest: Some(t(9)),
                next_slot: 1
            }
        );
    }

    #[test]
    fn every_torn_second_write_leaves_the_first_one_readable() {
        for cut in 0..SLOT {
            let torn = [&slot(t(7))[..], &slot(t(8))[..cut]].concat();
            assert_eq!(read(&torn).unwrap().newest, Some(t(7)), "cut after {cut} bytes");
            let mut torn = [slot(t(7)), slot(t(6))].concat();
            torn[SLOT..SLOT + cut].copy_from_slice(&slot(t(8))[..cut]);
            let newest = read(&torn).unwrap().newest;
            // The checksum is the last word that matters; after it the slot is whole.
            assert!(
                newest == Some(t(7)) || newest == Some(t(8)),
                "cut after {cut} bytes: {newest:?}"
            );
        }
    }

    #[test]
    fn a_torn_first_write_is_no_token_and_anything_else_is_damage() {
        for cut in 1..SLOT {
            let record = read(&slot(t(7))[..cut]).unwrap();
            assert_eq!(
                (record.newest, record.next_slot),
                (None, 0),
                "cut after {cut} bytes"
            );
        }
        assert!(read(b"hello, this is somebody else's file").is_err());
        let mut bad = [slot(t(7)), slot(t(8))].concat();
        bad[20] ^= 1;
        bad[SLOT + 20] ^= 1;
        assert!(read(&bad).is_err());
        assert!(
            read(&bad[..SLOT]).is_err(),
            "a lone slot that was whole once must not be forgotten"
        );
    }
}
