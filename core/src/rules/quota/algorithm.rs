//! The algorithms and their names.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, excerpt};

/// How a quota counts. The table in the [crate documentation](crate#how-much-each-algorithm-can-admit) says how much each
/// admits at most over any span of real time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket of `burst` tokens that is refilled continuously (GCRA), or `step` tokens at a time.
    TokenBucket,
    /// A queue of `burst` places that drains at the rate; an admitted request gets the delay until its turn.
    LeakyBucket,
    /// A counter that restarts every period.
    FixedWindow,
    /// Counters of sub-windows, the oldest of which slides out in proportion. The default.
    #[default]
    SlidingWindow,
    /// The time of every admitted unit.
    SlidingLog,
}

impl Algorithm {
    /// Every algorithm, in the order in which the documentation lists them.
    pub const ALL: [Self; 5] =
        [Self::TokenBucket, Self::LeakyBucket, Self::FixedWindow, Self::SlidingWindow, Self::SlidingLog];

    /// The name in the text form of a quota, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingLog => "sliding_log",
        }
    }

    /// The algorithm with this name, if there is one.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Whether `burst` applies: the two buckets have a capacity of their own.
    pub(crate) const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when no algorithm has that name.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::from_name(name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::invalid_argument(format!("algorithm {} is not known: use one of {known}", excerpt(name)))
        })
    }
}
