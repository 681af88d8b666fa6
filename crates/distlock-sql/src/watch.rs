//! Keeps an eye on this client's holds: one that was taken away (a row deleted, edited or broken) is told within a
//! second, though its renewal is far away.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use distlock_core::bell::Bell;
use tokio::sync::Notify;

use crate::statement::{Arg, Verb};
use crate::store::{Lane, Store};

const EVERY: Duration = Duration::from_millis(600);
/// Holds asked about in one statement.
const PAGE: usize = 1000;
/// Looks without a hold before the task rests; short holds shall not wake it each time.
const RESTLESS: u32 = 20;

type Holds = HashMap<String, (String, Bell)>;

/// The holds of one driver, by owner.
#[derive(Debug)]
pub(crate) struct Watch {
    holds: Arc<Mutex<Holds>>,
    wake: Arc<Notify>,
    started: Once,
    store: Arc<Store>,
}

/// A hold that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    holds: Arc<Mutex<Holds>>,
    owner: String,
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.holds).remove(&self.owner);
    }
}

fn lock(holds: &Mutex<Holds>) -> MutexGuard<'_, Holds> {
    holds.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            holds: Arc::default(),
            wake: Arc::default(),
            started: Once::new(),
            store,
        }
    }

    pub(crate) fn add(&self, name: &str, owner: &str, bell: &Bell) -> Entry {
        lock(&self.holds).insert(owner.to_owned(), (name.to_owned(), bell.clone()));
        self.started.call_once(|| {
            let (holds, wake) = (Arc::downgrade(&self.holds), self.wake.clone());
            let store = Arc::downgrade(&self.store);
            self.store.engine.spawn(async move {
                let mut idle = 0;
                loop {
                    let Some((holds, store)) = holds.upgrade().zip(store.upgrade()) else {
                        return;
                    };
                    let clock = store.engine.clock().clone();
                    idle = if lock(&holds).is_empty() { idle + 1 } else { 0 };
                    look(&store, &holds).await;
                    drop((holds, store));
                    match idle < RESTLESS {
                        true => clock.sleep(EVERY).await,
                        false => wake.notified().await,
                    }
                }
            });
        });
        // Kept for later if the task is not resting.
        self.wake.notify_one();
        Entry {
            holds: self.holds.clone(),
            owner: owner.into(),
        }
    }
}

/// Rings for the holds that are not there any more. What the database does not answer is the keeper's business.
async fn look(store: &Store, holds: &Mutex<Holds>) {
    let all: Vec<(String, String, Bell)> = lock(holds)
        .iter()
        .map(|(owner, (name, bell))| (owner.clone(), name.clone(), bell.clone()))
        .collect();
    for page in all.chunks(PAGE) {
        let names = page.iter().map(|(_, name, _)| name.clone()).collect();
        let answer = store
            .ask(&mut Lane::default(), "", Verb::Held, &[Arg::Texts(names)])
            .await;
        let Ok(answer) = answer else { return };
        let rows: HashMap<&str, (&str, &str)> = answer
            .rows
            .iter()
            .map(|row| (row[0].text(), (row[1].text(), row[2].text())))
            .collect();
        for (owner, name, bell) in page {
            let there = rows
                .get(name.as_str())
                .is_some_and(|(head, crowd)| *head == owner || crowd.contains(owner.as_str()));
            // Released while we asked, it is not missing.
            if !there && lock(holds).contains_key(owner) {
                bell.ring();
            }
        }
    }
}
