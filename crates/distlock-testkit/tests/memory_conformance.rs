//! The memory engine proves itself.

use std::time::Duration;

use distlock_core::memory::Memory;
use distlock_testkit::conformance::{Client, Connected, Criterion, Deployment, Verdict, run};

struct InMemory(Memory);

#[async_trait::async_trait]
impl Deployment for InMemory {
    async fn client(&self) -> Connected {
        Client::start(async |engine| Ok(self.0.driver(engine))).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(200)
    }
}

distlock_testkit::conformance!(InMemory(Memory::new()));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_says_yes_to_all_criteria() {
    let report = run(InMemory(Memory::new())).await;
    println!("{report}");
    assert!(report.is_conforming(), "{report}");
    for (criterion, verdict) in report.criteria() {
        assert!(
            matches!(
                verdict,
                Verdict::Yes {
                    proven: 1..,
                    skipped: 0
                }
            ),
            "{criterion}: {verdict}"
        );
    }
    assert_eq!(report.criteria().map(|(c, _)| c), Criterion::ALL);
}
