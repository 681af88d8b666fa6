//! Redisson, the rslock crate, redsync.

use std::process::Command;

use super::contended::Turn;
use crate::peer::{Peer, PeerPrograms, java};
use crate::report::{Report, good};

/// Those that were given.
pub(super) struct Peers(pub(super) Vec<Peer>);

impl Peers {
    pub(super) fn start(url: &str, programs: &PeerPrograms, report: &mut Report) -> Self {
        let redisson = programs.redisson.as_ref().map(|path| java(path, "RedissonBench"));
        let rslock = programs.rslock.as_ref().map(Command::new);
        let address = url.trim_end_matches('/');
        // The crate neither mints tokens nor tells waiters; Redisson tells them.
        let peers = [("Redisson", 1.0, redisson), ("the rslock crate", 1.1, rslock)];
        let started = peers.map(|(name, slack, command)| Peer::start(name, slack, command, address, report));
        Self(started.into_iter().flatten().collect())
    }

    /// Those that know Redlock.
    pub(super) fn of_quorums(addresses: &[String], programs: &PeerPrograms, report: &mut Report) -> Self {
        let first = &addresses[0];
        let with_others = |program: &Option<String>| {
            let mut command = Command::new(program.as_ref()?);
            command.args(&addresses[1..]);
            Some(command)
        };
        let peers = [
            ("the rslock crate", with_others(&programs.rslock)),
            ("redsync", with_others(&programs.redsync)),
        ];
        let started = peers.map(|(name, command)| Peer::start(name, 1.0, command, first, report));
        Self(started.into_iter().flatten().collect())
    }

    /// The one that can contend.
    pub(super) fn redisson(&mut self) -> Option<&mut Peer> {
        self.0.iter_mut().find(|peer| peer.name == "Redisson")
    }
}

/// Has so many clients take turns on one key.
pub(super) fn contend(peer: &mut Peer, address: &str, clients: usize, seconds: u64, fair: bool) -> Vec<Turn> {
    peer.ask(&format!("contend redis://{address} {clients} {seconds} {fair}"));
    let mut turns = Vec::new();
    loop {
        let line = peer.line();
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some(of), Some(granted), Some(left)) => turns.push(Turn {
                of: good(of.parse()),
                granted: good(granted.parse()),
                left: good(left.parse()),
            }),
            _ => return turns,
        }
    }
}
