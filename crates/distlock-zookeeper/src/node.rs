//! The names of contenders' nodes, as Curator writes them: `_c_<uuid>-<label><sequence>`.

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
}

impl Label {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Lock => "lock-",
            Self::Write => "__WRIT__",
            Self::Read => "__READ__",
            Self::Lease => "lease-",
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Lock => Mode::Mutex,
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
    /// `None` for children that are no contenders: sub-paths, and what other programs put there.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        const LABELS: [Label; 4] = [Label::Lock, Label::Write, Label::Read, Label::Lease];
        LABELS.iter().find_map(|&label| {
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

/// The contenders among these children, in line order.
pub(crate) fn line(children: &[String]) -> Vec<Node> {
    let mut line: Vec<Node> = children.iter().filter_map(|name| Node::parse(name)).collect();
    line.sort_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
    line
}

/// What a contender's node's name begins with, whatever sequence it gets.
pub(crate) fn prefix(id: Uuid, label: Label) -> String {
    format!("_c_{id}-{}", label.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_strangers_are_no_contenders() {
        let id = Uuid::from_u128(7);
        for label in [Label::Lock, Label::Write, Label::Read, Label::Lease] {
            let name = format!("{}{:010}", prefix(id, label), 42);
            assert_eq!(
                Node::parse(&name),
                Some(Node {
                    name: name.clone(),
                    label,
                    sequence: 42
                })
            );
        }
        let kazoo = Node::parse("0123456789abcdef0123456789abcdef-lock-0000000007").unwrap();
        assert_eq!(kazoo.sequence, 7);
        for stranger in [
            "locks",
            "leases",
            "a-lock-b",
            "x-lock-12",
            "lock-",
            "é-lock-000000000é",
        ] {
            assert_eq!(Node::parse(stranger), None, "{stranger}");
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
