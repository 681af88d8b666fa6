//! Which node serves which slots: what the nodes say, and the map that is made of it.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::Clock;
use distlock_core::driver::{DriverError, Reached};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redis::Value;

use super::node::{Address, Node};
use crate::slot::SLOTS;

/// After the first node's answer, others have this long to contradict it.
const SECOND_OPINION: Duration = Duration::from_millis(100);

/// The slots as one node sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    /// First and last slot, and the master; sorted.
    pub(super) ranges: Vec<(u16, u16, Address)>,
    /// All nodes, replicas too; sorted.
    pub(super) nodes: Vec<Address>,
}

impl View {
    /// From the answer to CLUSTER SLOTS of the node at `asked`.
    pub(super) fn read(answer: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut view = Self::default();
        for range in ranges {
            let Value::Array(words) = range else { return None };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &words[..] else {
                return None;
            };
            let nodes: Vec<Address> = nodes.iter().filter_map(|node| address(node, asked)).collect();
            let slot = |n: i64| u16::try_from(n).ok().filter(|slot| *slot < SLOTS);
            view.ranges
                .push((slot(*first)?, slot(*last)?, nodes.first()?.clone()));
            view.nodes.extend(nodes);
        }
        view.ranges.sort_unstable();
        view.nodes.sort_unstable();
        view.nodes.dedup();
        (!view.ranges.is_empty()).then_some(view)
    }
}

/// A node of CLUSTER SLOTS. One that does not know its own address is where we asked.
fn address(node: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(words) = node else { return None };
    let host = match words.first()? {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => "",
    };
    let Value::Int(port) = words.get(1)? else {
        return None;
    };
    let host = if matches!(host, "" | "?") { &asked.0 } else { host };
    Some((host.to_owned(), u16::try_from(*port).ok()?))
}

/// `host:port` of a redirection. A node that does not know its own address is at the host that was asked.
pub(super) fn redirection(to: &str, asked: &Address) -> Option<Address> {
    let (host, port) = to.rsplit_once(':')?;
    let host = if matches!(host, "" | "?") { &asked.0 } else { host };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port.parse().ok()?))
}

/// The view that most nodes share, of those that answer soon after the first.
pub(super) async fn agree(
    clock: &Clock,
    limit: Duration,
    asked: Vec<BoxFuture<'_, Result<View, DriverError>>>,
) -> Result<View, DriverError> {
    let mut asked: FuturesUnordered<_> = asked.into_iter().collect();
    let mut views: Vec<(usize, View)> = Vec::new();
    let mut trouble = DriverError::unavailable(Reached::No, "no node of the cluster answers");
    let mut due = clock.now() + limit;
    while let Some(Some(said)) = clock.timeout(due.since(clock.now()), asked.next()).await {
        match said {
            Ok(view) => {
                due = due.min(clock.now() + SECOND_OPINION);
                match views.iter_mut().find(|(_, known)| *known == view) {
                    Some((count, _)) => *count += 1,
                    None => views.push((1, view)),
                }
            }
            Err(e) => trouble = e,
        }
    }
    let best = views.into_iter().max_by_key(|(count, _)| *count);
    best.map(|(_, view)| view).ok_or(trouble)
}

/// The slots, each with its node.
#[derive(Debug, Clone)]
pub(super) struct Map {
    masters: Vec<Arc<Node>>,
    /// For each slot the index of its master.
    slots: Box<[Option<u16>]>,
    /// All nodes, replicas too.
    pub(super) nodes: Vec<Address>,
}

impl Map {
    /// Nothing is known.
    pub(super) fn empty() -> Self {
        Self {
            masters: Vec::new(),
            slots: vec![None; usize::from(SLOTS)].into(),
            nodes: Vec::new(),
        }
    }

    pub(super) fn of(view: View, node: impl Fn(&Address) -> Arc<Node>) -> Self {
        let mut map = Self {
            nodes: view.nodes,
            ..Self::empty()
        };
        for (first, last, address) in view.ranges {
            let index = map.index_of(node(&address));
            map.slots[usize::from(first)..=usize::from(last)].fill(index);
        }
        map
    }

    /// The same with one slot elsewhere.
    pub(super) fn with(&self, slot: u16, node: Arc<Node>) -> Self {
        let mut map = self.clone();
        let index = map.index_of(node);
        if let Some(place) = map.slots.get_mut(usize::from(slot)) {
            *place = index;
        }
        map
    }

    fn index_of(&mut self, node: Arc<Node>) -> Option<u16> {
        let known = self.masters.iter().position(|master| Arc::ptr_eq(master, &node));
        let index = known.unwrap_or_else(|| {
            self.masters.push(node);
            self.masters.len() - 1
        });
        u16::try_from(index).ok()
    }

    pub(super) fn master(&self, slot: u16) -> Option<&Arc<Node>> {
        let index = (*self.slots.get(usize::from(slot))?)?;
        self.masters.get(usize::from(index))
    }

    /// The masters, in the order of their first slots.
    pub(super) fn masters(&self) -> &[Arc<Node>] {
        &self.masters
    }

    /// Whether each slot has the same master.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        (0..SLOTS).all(|slot| match (self.master(slot), other.master(slot)) {
            (Some(one), Some(another)) => Arc::ptr_eq(one, another),
            (None, None) => true,
            _ => false,
        })
    }

    /// The slots that nobody serves.
    pub(super) fn uncovered(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_read_and_nodes_without_an_address_are_where_we_asked() {
        let node = |host: &str, port: i64| {
            Value::Array(vec![
                Value::BulkString(host.as_bytes().to_vec()),
                Value::Int(port),
            ])
        };
        let range = |first, last, host, port| {
            Value::Array(vec![
                Value::Int(first),
                Value::Int(last),
                node(host, port),
                node("r", 1),
            ])
        };
        let asked = ("seed".to_owned(), 9);
        let answer = Value::Array(vec![range(8192, 16383, "b", 2), range(0, 100, "", 7)]);
        let view = View::read(&answer, &asked).unwrap();
        assert_eq!(
            view.ranges,
            [(0, 100, ("seed".into(), 7)), (8192, 16383, ("b".into(), 2))]
        );
        assert_eq!(view.nodes.len(), 3);
        assert_eq!(
            View::read(&Value::Array(vec![range(0, 16384, "b", 2)]), &asked),
            None
        );
        assert_eq!(redirection("?:7001", &asked), Some(("seed".into(), 7001)));
        assert_eq!(redirection("[::1]:7001", &asked), Some(("::1".into(), 7001)));
    }
}
