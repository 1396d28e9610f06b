//! What became of the requests at a door.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ratekeeper::Decision;

/// How many requests came, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Went on.
    pub allowed: u64,
    /// Were denied.
    pub denied: u64,
    /// Went on, although a quota that only watches had no room.
    pub over_limit: u64,
    /// Could not be judged, and went on.
    pub failed: u64,
    /// Came from nobody, where somebody was expected.
    pub anonymous: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    allowed: AtomicU64,
    denied: AtomicU64,
    over_limit: AtomicU64,
    failed: AtomicU64,
    anonymous: AtomicU64,
    told_failed: AtomicBool,
    told_anonymous: AtomicBool,
}

impl Counters {
    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        if !decision.is_allowed() {
            count(&self.denied);
            return;
        }
        count(&self.allowed);
        if decision.is_over_limit() {
            count(&self.over_limit);
        }
    }

    /// Whether it is the first.
    pub(crate) fn failed(&self) -> bool {
        count(&self.failed);
        !self.told_failed.swap(true, Ordering::Relaxed)
    }

    /// Whether it is the first.
    pub(crate) fn anonymous(&self) -> bool {
        count(&self.anonymous);
        !self.told_anonymous.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            allowed: read(&self.allowed),
            denied: read(&self.denied),
            over_limit: read(&self.over_limit),
            failed: read(&self.failed),
            anonymous: read(&self.anonymous),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
