//! The file engine proves itself to the suite that all engines share.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::Duration;

use distlock_file::Config;
use distlock_testkit::conformance::{BoxError, Client, Connected, Criterion, Deployment, Verdict, run};
use tempfile::TempDir;

struct Directory(TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

#[async_trait::async_trait]
impl Deployment for Directory {
    async fn client(&self) -> Connected {
        Client::start(async |engine| -> Result<_, BoxError> {
            Ok(distlock_file::open(engine, Config::new(self.0.path()))?)
        })
        .await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(300)
    }
}

distlock_testkit::conformance!(Directory::new());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_says_yes_to_all_criteria() {
    let report = run(Directory::new()).await;
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
