//! The etcd engine of distlock, in the layout of the Go concurrency package.
