//! For tests of your limits: time that stands still, and a store that fails on demand.
//!
//! ```
//! use ratekeeper::testing::{Failure, TestStore};
//! use ratekeeper::{Limiter, Rule};
//! use std::time::Duration;
//!
//! let store = TestStore::new();
//! let limiter = Limiter::<str>::builder(store.clone())
//!     .rule(Rule::new("per-user", |user: &str| Some(user.into())).quotas("1/min"))
//!     .build()?;
//!
//! assert!(limiter.check_now("ann")?.is_allowed());
//! assert!(!limiter.check_now("ann")?.is_allowed());
//! store.clock().advance(Duration::from_secs(60)); // no test sleeps
//! assert!(limiter.check_now("ann")?.is_allowed());
//!
//! store.fail(Failure::Outage); // the rule says on_outage = allow, so it passes
//! assert!(limiter.check_now("ann")?.is_allowed());
//! store.recover();
//! assert!(!limiter.check_now("ann")?.is_allowed(), "what passed meanwhile was not counted; what was before, is");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/testing.md` has more, also for web services and policies.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub use crate::ManualClock;
use crate::bounds::SECRET_BYTES;
use crate::{
    Algorithm, Audit, Charge, Check, Control, CounterClaims, Decision, Health, Key, MemoryStore, Overrides,
    Reservation, Settled, Store, StoreError, StoreErrorKind, StoreFuture, StoredFilter, StoredPage,
    Timestamp,
};

/// When the clock of a [`TestStore`] begins: 14 November 2023, 22:13:20 UTC.
pub const START: Timestamp = Timestamp::from_secs(1_700_000_000);
/// Counters that a [`TestStore`] keeps.
pub const TEST_KEYS_MAX: usize = 10_000;

/// How a [`TestStore`] fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// It cannot be reached, or its circuit breaker is open.
    Outage,
    /// It does not answer within the deadline.
    Slow,
    /// More is asked of it than it can answer.
    Overload,
    /// It has no room.
    Full,
    /// It does not take charges: a replica, or a disk that is full.
    ReadOnly,
}

impl Failure {
    const ALL: [Self; 5] = [Self::Outage, Self::Slow, Self::Overload, Self::Full, Self::ReadOnly];

    /// What a store on a server would say.
    fn error(self) -> StoreError {
        let (kind, message) = match self {
            Self::Outage => (StoreErrorKind::Unavailable, "the test store is away"),
            Self::Slow => (StoreErrorKind::Timeout, "the test store does not answer within the deadline"),
            Self::Overload => {
                (StoreErrorKind::Overloaded, "more is asked of the test store than it can answer")
            }
            Self::Full => (StoreErrorKind::Capacity, "the test store has no room"),
            Self::ReadOnly => (StoreErrorKind::ReadOnly, "the test store does not write"),
        };
        StoreError::new(kind, message)
    }
}

/// A store in memory whose clock is yours and which fails when you say so. Clones are the same store.
///
/// What a failing call would have changed is not changed. Overrides, switches and the audit log go on working.
#[derive(Clone)]
pub struct TestStore(Arc<Inner>);

struct Inner {
    memory: MemoryStore,
    clock: ManualClock,
    /// 0, or 1 above the place of the failure in `Failure::ALL`.
    failure: AtomicU8,
}

impl TestStore {
    /// An empty store at [`START`], which answers.
    #[must_use]
    pub fn new() -> Self {
        let clock = ManualClock::starting_at(START);
        let memory = MemoryStore::with_clock(TEST_KEYS_MAX, Arc::new(clock.clone()));
        Self(Arc::new(Inner { memory, clock, failure: AtomicU8::new(0) }))
    }

    /// The clock by which it judges.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.0.clock
    }

    /// Fails every call from now on.
    pub fn fail(&self, failure: Failure) {
        let place = Failure::ALL.iter().position(|known| *known == failure).unwrap_or_default();
        self.0.failure.store(u8::try_from(place + 1).unwrap_or(u8::MAX), Ordering::SeqCst);
    }

    /// Answers again from now on.
    pub fn recover(&self) {
        self.0.failure.store(0, Ordering::SeqCst);
    }

    /// Why it fails now, if it does.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        let place = usize::from(self.0.failure.load(Ordering::SeqCst)).checked_sub(1)?;
        Failure::ALL.get(place).copied()
    }

    fn refused(&self) -> Result<(), StoreError> {
        self.failure().map_or(Ok(()), |failure| Err(failure.error()))
    }

    /// What the store in memory answers, unless it fails.
    fn answer<'a, T>(
        &'a self,
        ask: impl FnOnce(&'a MemoryStore) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        match self.refused() {
            Ok(()) => ask(&self.0.memory),
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }
}

impl Default for TestStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStore").field("clock", &self.0.clock).field("failure", &self.failure()).finish()
    }
}

impl Store for TestStore {
    fn needs_io(&self) -> bool {
        false
    }

    fn try_check(&self, check: &Check<'_>, decision: &mut Decision) -> Option<Result<(), StoreError>> {
        match self.refused() {
            Ok(()) => self.0.memory.try_check(check, decision),
            Err(error) => Some(Err(error)),
        }
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        self.answer(|memory| memory.check(check))
    }

    fn reserve<'a>(
        &'a self,
        check: &'a Check<'a>,
        reservation: &'a Reservation<'a>,
    ) -> StoreFuture<'a, Decision> {
        self.answer(|memory| memory.reserve(check, reservation))
    }

    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled> {
        self.answer(|memory| memory.settle(id, actual))
    }

    fn refund<'a>(
        &'a self,
        check: &'a Check<'a>,
        decision: &'a Decision,
        units: u32,
    ) -> StoreFuture<'a, u64> {
        self.answer(|memory| memory.refund(check, decision, units))
    }

    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]> {
        self.answer(MemoryStore::shared_secret)
    }

    fn number_of(&self, charge: &Charge<'_>) -> u64 {
        self.0.memory.number_of(charge)
    }

    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool> {
        self.answer(move |memory| memory.reset(key, algorithm))
    }

    fn overrides(&self) -> &dyn Overrides {
        self.0.memory.overrides()
    }

    fn control(&self) -> &dyn Control {
        self.0.memory.control()
    }

    fn audit(&self) -> &dyn Audit {
        self.0.memory.audit()
    }

    fn stored<'a>(
        &'a self,
        filter: &'a StoredFilter,
        cursor: u64,
        count: usize,
    ) -> StoreFuture<'a, Option<StoredPage>> {
        self.answer(move |memory| memory.stored(filter, cursor, count))
    }

    fn counter_claims(&self) -> Option<&CounterClaims> {
        self.0.memory.counter_claims()
    }

    fn now(&self) -> Timestamp {
        self.0.memory.now()
    }

    fn health(&self) -> Health {
        self.0.memory.health()
    }
}
