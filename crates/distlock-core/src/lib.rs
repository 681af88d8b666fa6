//! The domain of distlock; it knows no engine.

pub mod bell;
pub mod clock;
pub mod driver;
pub mod engine;
pub mod line;

mod error;
mod key;
mod owner;
mod token;

pub use crate::error::{Error, ErrorKind, RunError};
pub use crate::key::{IntoKey, Key, MAX_KEY_BYTES, Namespace, join_key};
pub use crate::owner::{OwnerId, Owners};
pub use crate::token::FencingToken;
