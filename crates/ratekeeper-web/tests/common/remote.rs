//! A store that takes I/O, or so it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ratekeeper::bounds::SECRET_BYTES;
use ratekeeper::{
    Algorithm, Audit, Charge, Check, Control, Decision, Key, ManualClock, MemoryStore, Overrides,
    Reservation, Settled, Store, StoreError, StoreErrorKind, StoreFuture, Timestamp,
};

/// A store that needs I/O, or so it says: every question takes a turn of the runtime,
/// and every answer.
#[derive(Debug)]
pub(crate) struct Remote {
    inner: MemoryStore,
    pub(crate) is_away: AtomicBool,
    pub(crate) checks: AtomicUsize,
    pub(crate) refunds: AtomicUsize,
}

impl Remote {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_secs(1_700_000_000)));
        let inner = MemoryStore::with_clock(10_000, clock);
        let (is_away, checks, refunds) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { inner, is_away, checks, refunds })
    }

    pub(crate) fn away() -> Arc<Self> {
        let store = Self::new();
        store.is_away.store(true, Ordering::SeqCst);
        store
    }

    async fn journey(&self) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "it is away")),
            false => Ok(()),
        }
    }
}

impl Store for Remote {
    fn needs_io(&self) -> bool {
        true
    }

    fn try_check(&self, _: &Check<'_>, _: &mut Decision) -> Option<Result<(), StoreError>> {
        None
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        StoreFuture::pending(async move {
            self.checks.fetch_add(1, Ordering::SeqCst);
            self.journey().await?;
            let decision = self.inner.check(check).await;
            // It has been charged, and whoever asked does not know yet.
            tokio::task::yield_now().await;
            decision
        })
    }

    fn reserve<'a>(&'a self, check: &'a Check<'a>, by: &'a Reservation<'a>) -> StoreFuture<'a, Decision> {
        self.inner.reserve(check, by)
    }

    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled> {
        self.inner.settle(id, actual)
    }

    fn refund<'a>(
        &'a self,
        check: &'a Check<'a>,
        decision: &'a Decision,
        units: u32,
    ) -> StoreFuture<'a, u64> {
        StoreFuture::pending(async move {
            self.refunds.fetch_add(1, Ordering::SeqCst);
            self.journey().await?;
            self.inner.refund(check, decision, units).await
        })
    }

    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]> {
        self.inner.shared_secret()
    }

    fn number_of(&self, charge: &Charge<'_>) -> u64 {
        self.inner.number_of(charge)
    }

    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool> {
        self.inner.reset(key, algorithm)
    }

    fn overrides(&self) -> &dyn Overrides {
        self.inner.overrides()
    }

    fn control(&self) -> &dyn Control {
        self.inner.control()
    }

    fn audit(&self) -> &dyn Audit {
        self.inner.audit()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
