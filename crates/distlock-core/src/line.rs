//! Whose turn it is: the pure rule over a sorted line, shared by every engine that can list its line.
//!
//! The shape (a predicate over the sorted line that answers "mine" or "whom to watch") is that of Curator's
//! `LockInternalsDriver`.

use crate::driver::Mode;

/// The answer of [`turn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It may hold.
    Mine,
    /// It waits for the contender at this index to leave.
    Behind(usize),
}

/// Whether the contender at `me` may hold, given all contenders in line order (holders first: they came earlier).
///
/// * exclusive: it is first;
/// * reader: nobody exclusive is before it;
/// * slot: fewer than `of` are before it; it watches the one `of` places ahead.
///
/// ```
/// use distlock_core::{driver::Mode, line::{Turn, turn}};
/// let line = [Mode::Read, Mode::Read, Mode::Write, Mode::Read];
/// assert_eq!(turn(&line, 1), Turn::Mine);
/// assert_eq!(turn(&line, 2), Turn::Behind(1));
/// assert_eq!(turn(&line, 3), Turn::Behind(2));
/// ```
pub fn turn(line: &[Mode], me: usize) -> Turn {
    match line[me] {
        Mode::Mutex | Mode::Write if me == 0 => Turn::Mine,
        Mode::Mutex | Mode::Write => Turn::Behind(me - 1),
        Mode::Read => match line[..me].iter().rposition(|m| m.is_exclusive()) {
            None => Turn::Mine,
            Some(writer) => Turn::Behind(writer),
        },
        Mode::Slot { of } => match me.checked_sub(of.max(1) as usize) {
            None => Turn::Mine,
            Some(ahead) => Turn::Behind(ahead),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_watch_the_one_that_many_ahead() {
        let line = [Mode::Slot { of: 2 }; 4];
        assert_eq!(turn(&line, 1), Turn::Mine);
        assert_eq!(turn(&line, 2), Turn::Behind(0));
        assert_eq!(turn(&line, 3), Turn::Behind(1));
    }

    #[test]
    fn exclusive_is_alone() {
        let line = [Mode::Mutex; 3];
        assert_eq!(turn(&line, 0), Turn::Mine);
        assert_eq!(turn(&line, 2), Turn::Behind(1));
    }
}
