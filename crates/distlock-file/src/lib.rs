//! The engine of distlock that needs no server: one table of copy-on-write snapshots on the local file system.
