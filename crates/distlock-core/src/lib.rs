//! The domain of distlock; it knows no engine.

pub mod bell;
pub mod by_client;
pub mod clock;
pub mod doctor;
pub mod driver;
pub mod engine;
pub mod line;
pub mod memory;
#[doc(hidden)]
pub mod mutant;
pub mod per_runtime;
pub mod quorum;

mod acquire;
mod admin;
mod behalf;
pub mod blocking;
mod cleanup;
mod client;
mod commit;
mod election;
mod entered;
mod error;
mod fork;
mod guard;
mod hold;
mod holds;
mod keeper;
mod key;
mod lease;
mod lock;
mod multi;
pub mod observe;
mod once;
mod owner;
mod pace;
mod prehashed;
mod queue;
mod reentrant;
mod release;
mod schedule;
mod secret;
mod settings;
mod survey;
mod sync;
mod token;

pub use crate::behalf::Waiting;
pub use crate::client::{Builder, Client, OnDisconnect};
pub use crate::commit::{CommitError, Committed, Uncommitted};
pub use crate::election::{Election, Term};
#[doc(hidden)]
pub use crate::entered::Entered;
pub use crate::error::{Error, ErrorKind, RunError};
pub use crate::guard::{Guard, Held};
pub use crate::key::{IntoKey, Key, MAX_KEY_BYTES, Namespace, join_key};
pub use crate::lease::Lease;
pub use crate::lock::{Lock, RwLock};
pub use crate::multi::{All, all};
pub use crate::once::{OnCrash, Once, Ran};
pub use crate::owner::{OwnerId, Owners};
pub use crate::reentrant::{Owner, holds_key};
pub use crate::release::Release;
pub use crate::secret::Secret;
pub use crate::settings::{Renew, Wait};
pub use crate::survey::{Survey, Usage};
pub use crate::token::FencingToken;
