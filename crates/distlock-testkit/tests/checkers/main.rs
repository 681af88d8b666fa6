//! The checkers have teeth: hand-made bad histories are rejected, good ones accepted.
//!
//! Times are in milliseconds, leases last 100 ms unless renewed, the bounds are 50 ms.

mod holding;
mod made;
mod runs;
mod time;
