//! The holds of a guard.

use std::ops::Deref;
use std::slice;
use std::sync::Arc;

use crate::hold::HoldState;

/// Nearly always one hold, which then needs no list of its own.
#[derive(Debug, Clone, Default)]
pub(crate) enum Holds {
    #[default]
    None,
    One(Arc<HoldState>),
    Many(Vec<Arc<HoldState>>),
}

impl Holds {
    pub(crate) fn push(&mut self, hold: Arc<HoldState>) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(hold),
            Self::One(first) => Self::Many(vec![first, hold]),
            Self::Many(mut all) => {
                all.push(hold);
                Self::Many(all)
            }
        };
    }

    /// Takes the last one.
    pub(crate) fn pop(&mut self) -> Option<Arc<HoldState>> {
        if let Self::Many(all) = self {
            return all.pop();
        }
        match std::mem::take(self) {
            Self::One(hold) => Some(hold),
            _ => None,
        }
    }

    /// In the order of their keys.
    pub(crate) fn sorted(mut self) -> Self {
        if let Self::Many(all) = &mut self {
            all.sort_by(|a, b| a.want.key.cmp(&b.want.key));
        }
        self
    }
}

impl Deref for Holds {
    type Target = [Arc<HoldState>];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::None => &[],
            Self::One(hold) => slice::from_ref(hold),
            Self::Many(all) => all,
        }
    }
}

impl From<Arc<HoldState>> for Holds {
    fn from(hold: Arc<HoldState>) -> Self {
        Self::One(hold)
    }
}

impl FromIterator<Arc<HoldState>> for Holds {
    fn from_iter<I: IntoIterator<Item = Arc<HoldState>>>(holds: I) -> Self {
        let mut all = Self::None;
        holds.into_iter().for_each(|hold| all.push(hold));
        all
    }
}
