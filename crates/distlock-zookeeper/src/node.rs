//! The names of contenders' nodes, as Curator writes them: `_c_<uuid>-<label><sequence>`; and as kazoo does.

use distlock_core::driver::Mode;
use uuid::Uuid;

/// From here on a sequence is worth a warning: at 1,000 acquisitions a second the rest lasts twelve days.
pub(crate) const SEQUENCE_WARNING: i64 = 1 << 30;
/// From here on a lock is refused. ZooKeeper counts a parent's children with 32 bits; the next number after the
/// largest is negative, and every client that sorts names (Curator, kazoo, go-zk) would put it before the holder.
pub(crate) const SEQUENCE_END: i64 = i32::MAX as i64 - 1_000_000;

/// What a node stands for; the text before its sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Lock,
    Write,
    Read,
    Lease,
    /// kazoo's lock, `<uuid without dashes>__lock__<sequence>`: a line of its own, which Curator does not see.
    Kazoo,
}

/// What is in Curator's lines.
const CURATOR: [Label; 4] = [Label::Lock, Label::Write, Label::Read, Label::Lease];

impl Label {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Lock => "lock-",
            Self::Write => "__WRIT__",
            Self::Read => "__READ__",
            Self::Lease => "lease-",
            Self::Kazoo => "__lock__",
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Lock | Self::Kazoo => Mode::Mutex,
            Self::Write => Mode::Write,
            Self::Read => Mode::Read,
            Self::Lease => Mode::Slot { of: u32::MAX },
        }
    }
}

/// One contender's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) label: Label,
    pub(crate) sequence: i64,
}

impl Node {
    /// One with one of these labels. `None` for children that are no contenders: sub-paths, and what other programs put
    /// there.
    fn parse(name: &str, labels: &[Label]) -> Option<Self> {
        labels.iter().find_map(|&label| {
            let (_, sequence) = name.rsplit_once(label.text())?;
            let digits = sequence.strip_prefix('-').unwrap_or(sequence);
            let written = digits.len() >= 9 && digits.bytes().all(|b| b.is_ascii_digit());
            let sequence = written.then(|| sequence.parse().ok())??;
            Some(Self {
                name: name.to_owned(),
                label,
                sequence,
            })
        })
    }
}

/// The contenders of Curator's line among these children, in line order.
pub(crate) fn line(children: &[String]) -> Vec<Node> {
    line_of(&CURATOR, children)
}

/// The contenders of kazoo's line, in line order.
pub(crate) fn kazoo_line(children: &[String]) -> Vec<Node> {
    line_of(&[Label::Kazoo], children)
}

fn line_of(labels: &[Label], children: &[String]) -> Vec<Node> {
    let nodes = children.iter().filter_map(|name| Node::parse(name, labels));
    let mut line: Vec<Node> = nodes.collect();
    line.sort_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
    line
}

/// What a contender's node's name begins with, whatever sequence it gets.
pub(crate) fn prefix(id: Uuid, label: Label) -> String {
    match label {
        Label::Kazoo => format!("{}{}", id.simple(), label.text()),
        label => format!("_c_{id}-{}", label.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_strangers_are_no_contenders() {
        let id = Uuid::from_u128(7);
        for label in CURATOR.into_iter().chain([Label::Kazoo]) {
            let name = format!("{}{:010}", prefix(id, label), 42);
            let lines = [
                line(std::slice::from_ref(&name)),
                kazoo_line(std::slice::from_ref(&name)),
            ];
            let node = vec![Node {
                name,
                label,
                sequence: 42,
            }];
            let expected = match label {
                Label::Kazoo => [vec![], node],
                _ => [node, vec![]],
            };
            assert_eq!(lines, expected);
        }
        let kazoo = ["0123456789abcdef0123456789abcdef-lock-0000000007".to_owned()];
        assert_eq!(line(&kazoo)[0].sequence, 7);
        for stranger in [
            "locks",
            "leases",
            "a-lock-b",
            "x-lock-12",
            "lock-",
            "é-lock-000000000é",
            "0123456789abcdef0123456789abcdef__rlock__0000000007",
        ] {
            let children = [stranger.to_owned()];
            assert_eq!(line(&children), [], "{stranger}");
            assert_eq!(kazoo_line(&children), [], "{stranger}");
        }
    }

    #[test]
    fn negative_sequences_keep_their_sign() {
        let names = [
            "_c_a-lock--2147483648",
            "_c_b-lock-2147483647",
            "_c_c-lock-0000000000",
        ]
        .map(str::to_owned);
        let order: Vec<i64> = line(&names).iter().map(|n| n.sequence).collect();
        assert_eq!(order, [-2147483648, 0, 2147483647]);
    }
}
