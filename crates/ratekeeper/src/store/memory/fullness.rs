//! What a store in memory had to do for want of room: refuse a check, forget a counter that
//! limits somebody, or keep what should have been given back.
//!
//! Each is counted, and logged when it begins and when it is over. Counters live in shards that fill up
//! one by one, so it is over when it has not happened for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::Timestamp;

use super::receipts::RECEIPTS_MAX;
use super::shard::Room;
use crate::store::StoreError;

/// It is over when it has not happened for so long.
const RECENT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// Checks that found no room for their own counters, or for an id.
    refused: Episode,
    /// Exhausted counters that had to go for new ones.
    evicted: Episode,
    /// Charges that were not given back, because the memory of receipts was full.
    kept_back: Episode,
}

/// Something that happens again and again for a while.
#[derive(Debug, Default)]
struct Episode {
    count: AtomicU64,
    /// In microseconds.
    last: AtomicU64,
    lasts: AtomicBool,
}

impl Episode {
    /// Counts; says whether it begins.
    fn note(&self, now: Timestamp, count: u64) -> bool {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.last.store(now.as_micros(), Ordering::Relaxed);
        !self.lasts.swap(true, Ordering::Relaxed)
    }

    fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Ends it if it has not happened of late; says whether this call did.
    fn ends(&self, now: Timestamp) -> bool {
        let last = Timestamp::from_micros(self.last.load(Ordering::Relaxed));
        // A clock that was far ahead of itself has been set right since.
        let is_over = now >= last.after(RECENT) || now.after(RECENT) < last;
        self.lasts() && is_over && self.lasts.swap(false, Ordering::Relaxed)
    }
}

impl Fullness {
    /// Counts a check that found no room; a line when that begins.
    #[cold]
    pub(super) fn refused(&self, now: Timestamp, why: &StoreError) {
        if self.refused.note(now, 1) {
            tracing::warn!(reason = %why, "the store in memory is full: rules decide by their failure policy");
        }
    }

    /// Notes what it took to find room.
    #[inline]
    pub(super) fn found(&self, now: Timestamp, room: Room) {
        if let Room::AtTheExpenseOf(exhausted) = room {
            self.evicted(now, exhausted);
        }
        if self.refused.lasts() || self.evicted.lasts() || self.kept_back.lasts() {
            self.look(now);
        }
    }

    #[cold]
    fn evicted(&self, now: Timestamp, exhausted: u64) {
        if self.evicted.note(now, exhausted) {
            tracing::warn!("the store in memory is full: it forgets exhausted counters; raise its max_keys");
        }
    }

    /// Counts a charge that was not given back; a line when that begins.
    #[cold]
    pub(super) fn kept_back(&self, now: Timestamp) {
        if self.kept_back.note(now, 1) {
            tracing::warn!(
                receipts = RECEIPTS_MAX,
                "the store in memory remembers no more receipts: refunds give nothing back"
            );
        }
    }

    /// How many charges were not given back so far.
    pub(super) fn refunds_refused(&self) -> u64 {
        self.kept_back.count()
    }

    /// How many exhausted counters had to go so far.
    pub(super) fn evicted_exhausted(&self) -> u64 {
        self.evicted.count()
    }

    /// How many checks were refused so far, and whether any was of late; a line when something is over.
    #[cold]
    pub(super) fn look(&self, now: Timestamp) -> (u64, bool) {
        let refused = self.refused.count();
        if self.refused.ends(now) {
            tracing::info!(refused, "the store in memory has room again");
        }
        if self.evicted.ends(now) {
            let evicted = self.evicted.count();
            tracing::info!(evicted, "the store in memory no longer forgets exhausted counters");
        }
        if self.kept_back.ends(now) {
            let refunds_refused = self.kept_back.count();
            tracing::info!(refunds_refused, "the store in memory gives back again what receipts are of");
        }
        (refused, self.refused.lasts())
    }
}
