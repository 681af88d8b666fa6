//! etcd and ZooKeeper: clients and leaders that die, stop and are cut off, while a lock is held and waited for. Times
//! are those that the engines' pages promise, with a second for a busy machine.

#![allow(clippy::unwrap_used)]

#[path = "consensus/clients.rs"]
mod clients;
#[path = "consensus/leaders.rs"]
mod leaders;
#[path = "consensus/scene.rs"]
mod scene;
