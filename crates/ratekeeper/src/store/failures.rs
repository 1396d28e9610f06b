//! The kinds of failure of a store, and how often each occurred.

use super::StoreErrorKind;

#[cfg(feature = "redis")]
mod log;

#[cfg(feature = "redis")]
pub(super) use self::log::FailureLog;

/// How many checks a store could not decide, by the kind of failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureKinds {
    counts: [u64; KINDS],
    lasting: [bool; KINDS],
}

/// Kinds of failure that are a store's and not the caller's.
const KINDS: usize = StoreErrorKind::OF_STORES.len();

impl FailureKinds {
    /// How many checks failed so, since the store was made.
    #[must_use]
    pub fn count(&self, kind: StoreErrorKind) -> u64 {
        index(kind).map_or(0, |index| self.counts[index])
    }

    /// Whether such failures go on: the last was a few seconds ago at most.
    #[must_use]
    pub fn is_lasting(&self, kind: StoreErrorKind) -> bool {
        index(kind).is_some_and(|index| self.lasting[index])
    }

    /// Every kind with its count, and whether it goes on.
    pub fn iter(&self) -> impl Iterator<Item = (StoreErrorKind, u64, bool)> {
        let each = self.counts.into_iter().zip(self.lasting);
        StoreErrorKind::OF_STORES.into_iter().zip(each).map(|(kind, (count, lasts))| (kind, count, lasts))
    }
}

fn index(kind: StoreErrorKind) -> Option<usize> {
    StoreErrorKind::OF_STORES.iter().position(|other| *other == kind)
}

impl FailureKinds {
    /// Those of two servers.
    #[cfg(feature = "redis")]
    pub(super) fn and(mut self, other: Self) -> Self {
        for kind in 0..KINDS {
            self.counts[kind] += other.counts[kind];
            self.lasting[kind] |= other.lasting[kind];
        }
        self
    }

    /// Failures of one kind alone.
    pub(super) fn only(kind: StoreErrorKind, count: u64, lasts: bool) -> Self {
        let mut kinds = Self::default();
        if let Some(index) = index(kind) {
            (kinds.counts[index], kinds.lasting[index]) = (count, lasts);
        }
        kinds
    }
}

impl StoreErrorKind {
    /// The kinds that are a store's failure, not the caller's.
    pub const OF_STORES: [Self; 8] = [
        Self::Capacity,
        Self::Timeout,
        Self::Overloaded,
        Self::Unavailable,
        Self::ReadOnly,
        Self::Unreadable,
        Self::Permission,
        Self::Protocol,
    ];

    /// The word for it in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Input => "input",
            Self::Timeout => "timeout",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::ReadOnly => "read_only",
            Self::Unreadable => "unreadable",
            Self::Permission => "permission",
            Self::Protocol => "protocol",
        }
    }

    /// What an operator can do.
    #[cfg(feature = "redis")]
    const fn hint(self) -> &'static str {
        match self {
            Self::Capacity => "give the server more memory, or look for keys that are not ours (INFO memory)",
            Self::Input => "correct the call",
            Self::Timeout => "raise the store's deadline if the server is far away, else look at its SLOWLOG",
            Self::Overloaded => "more is asked than one server answers: see docs/redis.md",
            Self::Unavailable => "look at the server's log",
            Self::ReadOnly => "the URL must name the primary, and its disk must have room (INFO replication)",
            Self::Unreadable => "delete the key, or reset it with Ratekeeper: checks never overwrite it",
            Self::Permission => "give the user the commands and keys in docs/redis.md (ACL GETUSER)",
            Self::Protocol => {
                "the URL must name a Redis or Valkey server, not a proxy or a node of a cluster"
            }
        }
    }
}
