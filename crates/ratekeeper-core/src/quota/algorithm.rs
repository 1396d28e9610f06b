//! The algorithms by their names.

use std::fmt;

use super::{ENTRIES_MAX, LIMIT_MAX};
use crate::error::{Field, InvalidInput};

/// How a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// A counter that starts again when its window ends.
    FixedWindow = 1,
    /// Two counters; the older fades as the window slides over it.
    SlidingWindow = 2,
    /// Every request remembered until it is one window old: exact.
    SlidingLog = 3,
    /// Tokens that refill steadily, up to a burst (GCRA inside).
    TokenBucket = 4,
    /// A steady drip without bursts: requests wait their turn.
    LeakyBucket = 5,
    /// How many may be under way at once, each with a lease that lapses.
    Concurrency = 6,
}

impl Algorithm {
    /// All six.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::Concurrency,
    ];

    /// Whether it keeps every request that counts: [`Self::SlidingLog`] and [`Self::Concurrency`].
    #[must_use]
    #[inline]
    pub const fn keeps_all(self) -> bool {
        matches!(self, Algorithm::SlidingLog | Algorithm::Concurrency)
    }

    /// The name people write: `token_bucket`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::SlidingLog => "sliding_log",
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::LeakyBucket => "leaky_bucket",
            Algorithm::Concurrency => "concurrency",
        }
    }

    pub(super) const fn limit_max(self) -> u32 {
        match self {
            Algorithm::SlidingLog | Algorithm::Concurrency => ENTRIES_MAX,
            _ => LIMIT_MAX,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Algorithm {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.as_str() == text).ok_or_else(|| {
            let names = Algorithm::ALL.map(Algorithm::as_str).join(", ");
            InvalidInput::new(Field::Algorithm, format!("`{text}`"), format!("one of {names}"))
        })
    }
}
