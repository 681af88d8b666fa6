//! One contender's key in the store, as the claim, the keeper and the watches share it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::FencingToken;
use distlock_core::bell::Bell;
use distlock_core::driver::{LostReason, Mode, Want};

use crate::name;
use crate::record::Record;
use crate::session::Session;
use crate::watcher::{Seen, Watch, Watcher};

/// One contender's key.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: String,
    number: u32,
    pub(crate) session: Arc<Session>,
    /// The key's create revision, which is its place in line; 0 while it is not known to exist.
    revision: AtomicI64,
    /// The token of the hold; 0 while there is none.
    token: AtomicI64,
    bell: Bell,
    left: AtomicBool,
    news: Mutex<News>,
}

/// What the watch of the key told.
#[derive(Debug, Default)]
struct News {
    gone: Option<LostReason>,
    /// The watch ended: nobody knows what happened since.
    blind: bool,
    watch: Option<Watch>,
}

/// The key of a contender on this lease.
pub(crate) fn key(lock: &str, mode: Mode, lease: i64, number: u32) -> String {
    // Go prints a negative lease with a sign.
    let sign = if lease < 0 { "-" } else { "" };
    format!(
        "{lock}{}{sign}{:x}.{number}",
        name::part(mode),
        lease.unsigned_abs()
    )
}

impl Place {
    pub(crate) fn new(lock: &str, want: &Want, session: Arc<Session>) -> Arc<Self> {
        let number = session.numbers.take(lock);
        let key = key(lock, want.mode, session.id, number);
        session.register(want.owner.n, &want.bell);
        Arc::new(Self {
            key,
            number,
            session,
            revision: AtomicI64::new(0),
            token: AtomicI64::new(0),
            bell: want.bell.clone(),
            left: AtomicBool::new(false),
            news: Mutex::default(),
        })
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The create revision, once the key is known to exist.
    pub(crate) fn revision(&self) -> Option<i64> {
        Some(self.revision.load(Ordering::Acquire)).filter(|r| *r > 0)
    }

    /// The key was found, or made, with this create revision.
    pub(crate) fn stands(&self, revision: i64) {
        self.revision.store(revision, Ordering::Release);
    }

    /// The key is gone although its lease lives; the claim may make it again.
    pub(crate) fn reset(&self) {
        self.revision.store(0, Ordering::Release);
        let old = std::mem::take(&mut *self.news());
        drop(old);
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        u64::try_from(self.token.load(Ordering::Acquire))
            .ok()
            .filter(|t| *t > 0)
            .map(FencingToken::new)
    }

    pub(crate) fn granted(&self, revision: i64) {
        self.token.store(revision, Ordering::Release);
    }

    /// The claim has released, or is about to: what happens to the key is no news any more.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
        let watch = self.news().watch.take();
        drop(watch);
    }

    /// Nothing of this claim can arrive at the store any more that would touch a key of the same name.
    pub(crate) fn give_back(&self, lock: &str) {
        self.session.numbers.give_back(lock, self.number);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Why the key is gone, if the watch saw it go.
    pub(crate) fn gone(&self) -> Option<LostReason> {
        self.news().gone.clone()
    }

    /// The key was read, and is no longer the hold's.
    pub(crate) fn lost(&self, why: LostReason) {
        self.news().gone.get_or_insert(why);
        self.session.doubt();
    }

    /// Whether the watch ended, so that the key must be read.
    pub(crate) fn is_blind(&self) -> bool {
        self.news().blind
    }

    /// Watches the key from this revision on, unless that is done already.
    pub(crate) fn arm(self: &Arc<Self>, watcher: &Watcher, from: i64) {
        let mut news = self.news();
        if news.watch.is_some() && !news.blind || self.has_left() {
            return;
        }
        news.blind = false;
        let place = Arc::downgrade(self);
        let tell = Box::new(move |seen: Seen<'_>| {
            if let Some(place) = place.upgrade() {
                place.saw(&seen);
            }
        });
        news.watch = Some(watcher.watch(self.key.clone().into_bytes(), from, true, tell));
    }

    fn saw(&self, seen: &Seen<'_>) {
        let mut news = self.news();
        match seen {
            Seen::Put(kv) => {
                let record = Record::read(kv, "");
                match record.broken {
                    Some(reason) => news.gone = Some(LostReason::Broken { reason }),
                    // Our own note of the token.
                    None => return,
                }
            }
            Seen::Deleted => {
                news.gone.get_or_insert(LostReason::Taken);
                // It may have gone with its lease.
                self.session.doubt();
            }
            Seen::Blind => news.blind = true,
        }
        drop(news);
        if !self.has_left() {
            self.bell.ring();
        }
    }
}
