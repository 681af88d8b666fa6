//! The attribute on the file engine.

use distlock::{Client, Locks};
use distlock_file::Config;
use tempfile::TempDir;

mod suite;

#[derive(Debug)]
struct Engine(TempDir);

impl Engine {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn client(&self) -> Locks {
        let open = |engine| distlock_file::open(engine, Config::new(self.0.path()));
        Client::builder()
            .build_now(open)
            .expect("the file engine starts")
            .into()
    }
}
