//! A store in a directory, and an engine of the test kit that restarts it now and then.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{
    Algorithm, Charge, Check, Clock as _, Decision, Key, ManualClock, MemoryStore, Name, Override,
    OverrideScope, Overrides as _, Quota, Reservation, Settled, Store as _, StoreError, StoreFuture,
    Timestamp,
};
use ratekeeper_testkit::Engine;
use tempfile::TempDir;

/// A Tuesday in November 2023.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

pub(crate) fn clock() -> ManualClock {
    ManualClock::starting_at(START)
}

/// A store in a directory that saves every counter.
pub(crate) fn open(directory: &Path, clock: &ManualClock) -> MemoryStore {
    let store = MemoryStore::builder().max_keys(100_000).clock(Arc::new(clock.clone()));
    store.save_longer_than(Duration::ZERO).open(directory).unwrap()
}

/// What is in a directory now, while its store goes on: as after a crash.
pub(crate) fn copied(directory: &Path) -> (TempDir, MemoryStore) {
    let copy = TempDir::new().unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let store = open(copy.path(), &clock());
    (copy, store)
}

/// The answer of a store that needs no I/O.
pub(crate) fn now<T>(answer: StoreFuture<'_, T>) -> Result<T, StoreError> {
    answer.now().expect("it answers at once")
}

/// Asks for a unit of a key; what is left, or none if it is denied.
pub(crate) fn charge(store: &MemoryStore, subject: &str, quota: &str) -> Option<u32> {
    charge_of(store, "kept", subject, quota)
}

pub(crate) fn charge_of(store: &MemoryStore, rule: &str, subject: &str, quota: &str) -> Option<u32> {
    let quota: Quota = quota.parse().unwrap();
    let key = Key::new(Name::new(rule).unwrap(), subject).unwrap();
    let decision = store.decide(&Check::one(&Charge::new(key, &quota))).unwrap();
    decision.is_allowed().then(|| decision.verdicts()[0].remaining())
}

/// Restarts its store before every `every`-th instant.
pub(crate) struct Restarting {
    directory: TempDir,
    store: Option<MemoryStore>,
    clock: ManualClock,
    every: u32,
    instants: u32,
}

impl Restarting {
    pub(crate) fn every(every: u32) -> Self {
        let (directory, clock) = (TempDir::new().unwrap(), clock());
        let store = Some(open(directory.path(), &clock));
        Self { directory, store, clock, every, instants: 0 }
    }

    fn store(&self) -> &MemoryStore {
        self.store.as_ref().unwrap()
    }
}

fn text(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn told<T>(answer: StoreFuture<'_, T>) -> Result<T, String> {
    now(answer).map_err(|error| text(&error))
}

impl Engine for Restarting {
    fn set_now(&mut self, now: Timestamp) {
        self.instants += 1;
        if self.instants.is_multiple_of(self.every) {
            // It saves what it has at the instant before.
            self.store = None;
            self.clock.set(now);
            self.store = Some(open(self.directory.path(), &self.clock));
            let data = self.store().health().data.unwrap();
            assert_eq!((data.was_damaged, data.unreadable, data.failures), (false, 0, 0));
        }
        self.clock.set(now);
        assert_eq!(self.clock.now(), now);
    }

    fn check(&mut self, check: &Check<'_>) -> Result<Decision, String> {
        self.store().decide(check).map_err(|error| text(&error))
    }

    fn reserve(&mut self, check: &Check<'_>, reservation: &Reservation<'_>) -> Result<Decision, String> {
        told(self.store().reserve(check, reservation))
    }

    fn settle(&mut self, id: &[u8], actual: Option<u32>) -> Result<Settled, String> {
        told(self.store().settle(id, actual))
    }

    fn refund(&mut self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, String> {
        told(self.store().refund(check, decision, units))
    }

    fn reset(&mut self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, String> {
        told(self.store().reset(key, algorithm))
    }

    fn set_override(&mut self, scope: OverrideScope<'_>, to: Option<Override>) -> Result<(), String> {
        match to {
            Some(to) => told(self.store().set(scope, to)),
            None => told(self.store().delete(scope)).map(|_| ()),
        }
    }
}
