//! The bounds of a store in memory.

use std::sync::Arc;

use ratekeeper_core::Clock;

use super::{MAX_IDS, MAX_KEYS_DEFAULT, MemoryStore, StoreClock};
use crate::clock::SystemClock;

/// How much a store in memory may hold.
#[derive(Clone, Debug)]
pub struct MemoryStoreBuilder {
    max_keys: usize,
    max_ids: usize,
    clock: Option<Arc<dyn Clock>>,
}

impl Default for MemoryStoreBuilder {
    fn default() -> Self {
        Self { max_keys: MAX_KEYS_DEFAULT, max_ids: MAX_IDS, clock: None }
    }
}

impl MemoryStoreBuilder {
    /// Up to so many counters, rounded up to a multiple of 256; see
    /// [`MemoryStore::with_max_keys`]. A counter takes about 50 bytes.
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Up to so many idempotency ids and reservations at once, rounded up to a multiple of 16.
    /// One takes about 700 bytes.
    #[must_use]
    pub fn max_ids(self, max_ids: usize) -> Self {
        Self { max_ids, ..self }
    }

    /// Takes the time from `clock` instead of the machine.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Makes the store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let clock = self.clock.map_or_else(|| StoreClock::System(SystemClock::new()), StoreClock::Given);
        MemoryStore::build(self.max_keys, self.max_ids, clock)
    }
}
