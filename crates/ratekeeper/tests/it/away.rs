//! A store that takes no I/O and fails every check.

use std::sync::Arc;

use ratekeeper::bounds::SECRET_BYTES;
use ratekeeper::{
    Algorithm, Audit, Charge, Check, Control, Decision, Key, ManualClock, MemoryStore, Overrides,
    Reservation, Settled, Store, StoreError, StoreErrorKind, StoreFuture, Timestamp,
};

/// Fails every check and answers every peek, as a store does that has no room.
#[derive(Debug, Default)]
pub(crate) struct Away(MemoryStore);

impl Away {
    pub(crate) fn store() -> Arc<dyn Store> {
        Arc::new(Self::default())
    }

    /// One with a clock of the test.
    pub(crate) fn at(clock: &ManualClock) -> Arc<dyn Store> {
        Arc::new(Self(MemoryStore::with_clock(100, Arc::new(clock.clone()))))
    }

    fn refuse(check: &Check<'_>) -> Result<(), StoreError> {
        let refused = || StoreError::new(StoreErrorKind::Unavailable, "the store is away");
        if check.is_peek() { Ok(()) } else { Err(refused()) }
    }
}

impl Store for Away {
    fn needs_io(&self) -> bool {
        false
    }

    fn try_check(&self, check: &Check<'_>, decision: &mut Decision) -> Option<Result<(), StoreError>> {
        match Self::refuse(check) {
            Ok(()) => self.0.try_check(check, decision),
            Err(error) => Some(Err(error)),
        }
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        match Self::refuse(check) {
            Ok(()) => self.0.check(check),
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }

    fn reserve<'a>(&'a self, check: &'a Check<'a>, _: &'a Reservation<'a>) -> StoreFuture<'a, Decision> {
        self.check(check)
    }

    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled> {
        self.0.settle(id, actual)
    }

    fn refund<'a>(
        &'a self,
        check: &'a Check<'a>,
        decision: &'a Decision,
        units: u32,
    ) -> StoreFuture<'a, u64> {
        self.0.refund(check, decision, units)
    }

    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]> {
        self.0.shared_secret()
    }

    fn number_of(&self, charge: &Charge<'_>) -> u64 {
        self.0.number_of(charge)
    }

    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool> {
        self.0.reset(key, algorithm)
    }

    fn overrides(&self) -> &dyn Overrides {
        self.0.overrides()
    }

    fn control(&self) -> &dyn Control {
        self.0.control()
    }

    fn audit(&self) -> &dyn Audit {
        self.0.audit()
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}
