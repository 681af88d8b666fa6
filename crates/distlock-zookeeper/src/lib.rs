//! The ZooKeeper engine of distlock, in Curator's layout.
