//! Any store as an engine of the test kit.

use std::sync::Arc;

use ratekeeper::{
    Algorithm, Check, Decision, Key, ManualClock, MemoryStore, Override, OverrideScope, Reservation, Settled,
    Store, StoreError, StoreFuture, Timestamp,
};
use ratekeeper_testkit::Engine;

pub(crate) struct StoreEngine {
    store: Arc<dyn Store>,
    clock: ManualClock,
}

impl StoreEngine {
    pub(crate) fn memory() -> Self {
        let clock = ManualClock::default();
        let store = Arc::new(MemoryStore::with_clock(100_000, Arc::new(clock.clone())));
        Self { store, clock }
    }
}

/// The answer of a store that needs no I/O, errors as text with their cause.
fn now<T>(answer: StoreFuture<'_, T>) -> Result<T, String> {
    answer.now().expect("the memory store answers at once").map_err(|error| text(&error))
}

fn text(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Engine for StoreEngine {
    fn set_now(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn check(&mut self, check: &Check<'_>) -> Result<Decision, String> {
        let mut decision = Decision::default();
        self.store
            .try_check(check, &mut decision)
            .expect("the memory store answers at once")
            .map_err(|error| text(&error))?;
        Ok(decision)
    }

    fn reserve(&mut self, check: &Check<'_>, reservation: &Reservation<'_>) -> Result<Decision, String> {
        now(self.store.reserve(check, reservation))
    }

    fn settle(&mut self, id: &[u8], actual: Option<u32>) -> Result<Settled, String> {
        now(self.store.settle(id, actual))
    }

    fn refund(&mut self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, String> {
        now(self.store.refund(check, decision, units))
    }

    fn reset(&mut self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, String> {
        now(self.store.reset(key, algorithm))
    }

    fn set_override(&mut self, scope: OverrideScope<'_>, to: Option<Override>) -> Result<(), String> {
        match to {
            Some(to) => now(self.store.overrides().set(scope, to)),
            None => now(self.store.overrides().delete(scope)).map(|_| ()),
        }
    }
}
