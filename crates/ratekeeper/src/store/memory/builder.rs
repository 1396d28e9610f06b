//! The bounds of a store in memory.

use std::sync::Arc;
#[cfg(feature = "data-dir")]
use std::time::Duration;

use ratekeeper_core::Clock;
#[cfg(feature = "data-dir")]
use ratekeeper_core::InvalidInput;

#[cfg(feature = "data-dir")]
use super::data::DataOptions;
use super::fingerprint::Fingerprinter;
use super::{MAX_IDS, MAX_KEYS_DEFAULT, MemoryStore, StoreClock};
use crate::clock::SystemClock;
#[cfg(feature = "data-dir")]
use crate::fence::Fence;

/// How much a store in memory may hold.
#[derive(Clone, Debug)]
pub struct MemoryStoreBuilder {
    max_keys: usize,
    max_ids: usize,
    clock: Option<Arc<dyn Clock>>,
    #[cfg(feature = "data-dir")]
    data: DataOptions,
}

impl Default for MemoryStoreBuilder {
    fn default() -> Self {
        Self {
            max_keys: MAX_KEYS_DEFAULT,
            max_ids: MAX_IDS,
            clock: None,
            #[cfg(feature = "data-dir")]
            data: DataOptions::default(),
        }
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

    /// Runs `around` around every step of the thread that writes a data directory, with that step as its argument: for a
    /// program that forks and must do so between two steps, because a child would find locks held for ever.
    #[cfg(feature = "data-dir")]
    #[must_use]
    pub fn fence(mut self, around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.data.fence = Fence::new(around);
        self
    }

    /// A data directory keeps counters whose window, or for a bucket the time until it is full again, is longer than this;
    /// a minute by default. Shorter ones begin anew with the process.
    #[cfg(feature = "data-dir")]
    #[must_use]
    pub fn save_longer_than(mut self, length: Duration) -> Self {
        self.data.longer_than = length;
        self
    }

    /// Makes the store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore::make((self.max_keys, self.max_ids), self.store_clock(), Fingerprinter::random())
    }

    /// Makes the store with a data directory: overrides, switches, ids, receipts and counters that take longer than a minute
    /// to be vacant again are those of the last store there. The directory is made if there is none.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use ratekeeper::{MemoryStore, Override, OverrideScope, Overrides};
    ///
    /// let directory = folder.path().join("ratekeeper");
    /// let scope = OverrideScope::organisation("/search", "acme")?;
    ///
    /// let store = MemoryStore::builder().open(&directory)?;
    /// Overrides::set(&store, scope, Override::limit(500)).now().expect("no I/O to wait for")?;
    /// drop(store);
    ///
    /// let store = MemoryStore::builder().open(&directory)?;
    /// let found = Overrides::get(&store, scope).now().expect("no I/O to wait for")?;
    /// assert_eq!(found.map(|found| found.limit), Some(500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the directory cannot be used: another process has it, another version wrote it, or it cannot be written.
    #[cfg(feature = "data-dir")]
    pub fn open(self, directory: impl AsRef<std::path::Path>) -> Result<MemoryStore, InvalidInput> {
        let clock = self.store_clock();
        super::data::open((self.max_keys, self.max_ids), clock, &self.data, directory.as_ref())
    }

    fn store_clock(&self) -> StoreClock {
        let given = self.clock.as_ref().map(|clock| StoreClock::Given(Arc::clone(clock)));
        given.unwrap_or_else(|| StoreClock::System(SystemClock::new()))
    }
}
