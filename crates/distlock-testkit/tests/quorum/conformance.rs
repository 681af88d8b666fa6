//! The suite over a majority of five memory engines.

use std::time::Duration;

use distlock_core::memory::Memory;
use distlock_core::quorum::{self, Node, Rules};
use distlock_testkit::conformance::{Client, Connected, Deployment};

struct FiveMemories(Vec<Memory>);

#[async_trait::async_trait]
impl Deployment for FiveMemories {
    async fn client(&self) -> Connected {
        Client::start(async |engine| {
            let node = |(n, memory): (usize, &Memory)| Node {
                name: format!("node {n}"),
                driver: memory.driver(engine.clone()),
            };
            let nodes = self.0.iter().enumerate().map(node).collect();
            Ok(quorum::over(engine.clone(), "quorum", nodes, Rules::default())?)
        })
        .await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(200)
    }
}

distlock_testkit::conformance!(FiveMemories((0..5).map(|_| Memory::new()).collect()));
