//! The primitives under the parts that are model-checked (bell, schedule, queue): the tests in `tests/model` compile
//! the same files over primitives whose every interleaving can be tried.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use futures_util::task::AtomicWaker;

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}
