//! Whether a store in memory has had to refuse something for want of room.
//!
//! Counters live in shards that fill up one by one, so some checks still find room when
//! others do not: it is over when none was refused for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::Timestamp;

use crate::store::StoreError;

/// It is over when nothing was refused for so long.
const RECENT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Fullness {
    refused: AtomicU64,
    /// In microseconds.
    last: AtomicU64,
    lasts: AtomicBool,
}

impl Fullness {
    /// Counts a check that found no room; a line when that begins.
    #[cold]
    pub(super) fn refused(&self, now: Timestamp, why: &StoreError) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.last.fetch_max(now.as_micros(), Ordering::Relaxed);
        if !self.lasts.swap(true, Ordering::Relaxed) {
            tracing::warn!(reason = %why, "the store in memory is full: rules decide by their failure policy");
        }
    }

    /// Looks whether it is over; called where something has found room.
    #[inline]
    pub(super) fn found_room(&self, now: Timestamp) {
        if self.lasts.load(Ordering::Relaxed) {
            self.look(now);
        }
    }

    /// How many were refused so far, and whether any was of late; a line when that is over.
    #[cold]
    pub(super) fn look(&self, now: Timestamp) -> (u64, bool) {
        let refused = self.refused.load(Ordering::Relaxed);
        let over_at = Timestamp::from_micros(self.last.load(Ordering::Relaxed)).after(RECENT);
        if !self.lasts.load(Ordering::Relaxed) || now < over_at {
            return (refused, self.lasts.load(Ordering::Relaxed));
        }
        if self.lasts.swap(false, Ordering::Relaxed) {
            tracing::info!(refused, "the store in memory has room again");
        }
        (refused, false)
    }
}
