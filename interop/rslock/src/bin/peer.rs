//! The rslock crate, driven over pipes by `scripts/interop`, in the words of distlock-worker: JSON requests on standard
//! input, answers on standard output. Arguments: the addresses of the servers.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rslock::{Lock, LockManager};
use serde_json::{Value, json};
use tokio::sync::Mutex;

struct Peer {
    locks: LockManager,
    holds: Mutex<HashMap<u64, Lock>>,
    count: AtomicU64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut locks = LockManager::new(std::env::args().skip(1).collect());
    locks.set_retry(1, Duration::from_millis(1));
    let peer = Arc::new(Peer {
        locks,
        holds: Mutex::default(),
        count: AtomicU64::new(1),
    });
    for line in std::io::stdin().lock().lines() {
        let ask: Value = serde_json::from_str(&line?)?;
        let peer = peer.clone();
        runtime.spawn(async move {
            let mut answer = peer.perform(&ask).await;
            answer["id"] = ask["id"].clone();
            let mut out = std::io::stdout().lock();
            // Who asked is gone, if it cannot be written.
            let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
        });
    }
    Ok(())
}

impl Peer {
    async fn perform(&self, ask: &Value) -> Value {
        if ask["do"] == "acquire" {
            return self.acquire(ask).await;
        }
        let hold = ask["hold"].as_u64().unwrap_or_default();
        let mut holds = self.holds.lock().await;
        let held = match holds.get(&hold) {
            Some(lock) => self.locks.is_freed(lock).await.is_ok_and(|freed| !freed),
            None => false,
        };
        if ask["do"] == "release"
            && let Some(lock) = holds.remove(&hold)
        {
            self.locks.unlock(&lock).await;
        }
        json!({ "answer": if held { "yes" } else { "no" } })
    }

    async fn acquire(&self, ask: &Value) -> Value {
        let key = ask["key"].as_str().unwrap_or_default().as_bytes();
        let ttl = Duration::from_millis(ask["ttl_ms"].as_u64().unwrap_or_default());
        let wait = ask["wait_ms"].as_u64().map(Duration::from_millis);
        let (start, mut pause) = (Instant::now(), 20);
        loop {
            if let Ok(lock) = self.locks.lock(key, ttl).await {
                let mut holds = self.holds.lock().await;
                let number = self.count.fetch_add(1, Ordering::Relaxed);
                holds.insert(number, lock);
                return json!({ "answer": "granted", "hold": number });
            }
            if wait.is_some_and(|wait| start.elapsed() >= wait) {
                let kind = if wait == Some(Duration::ZERO) { "busy" } else { "timeout" };
                return json!({ "answer": "failed", "kind": kind, "message": "not obtained" });
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
            // Two that split the votes must not go on in step.
            pause = 20 + u64::from(start.elapsed().subsec_nanos() / 1000 % 80);
        }
    }
}
