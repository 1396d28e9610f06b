//! Counters in this process: the embedded default.
//!
//! Sharded tables, each behind a lock (see `lock.rs`). A check of several keys locks their
//! shards in one order and holds them together, so its decision is one step:
//! nothing is rolled back and nobody is denied by a charge that did not last.
//! Denials of a single charge are judged without the lock, on copies (`denials.rs`).
//!
//! Memory: 40 bytes a counter, 46 to 54 with the free slots between them,
//! 16 bytes more for each entry of a log or lease, and up to 1 MiB for the copies. The number of counters is
//! bounded ([`MemoryStoreBuilder::max_keys`]). At the bound a new key takes the place of another one: of the
//! rule that holds most counters nearby, the counter that has used least (`shard/eviction.rs`). So
//! keys that somebody makes up push one another out, and a new key is no outage. Only if that rule has nothing but exhausted
//! counters, the one that ends first goes.
//!
//! A check fails with [`StoreErrorKind::Capacity`] if all places for ids are taken
//! ([`MemoryStoreBuilder::max_ids`]), or if the store is too small for all counters of the check
//! together. The rule's failure policy decides then. Both, and exhausted counters that had to go, are counted in
//! [`Store::health`], and the log tells when that begins and when it is over.
//!
//! [`StoreErrorKind::Capacity`]: super::StoreErrorKind::Capacity

mod audit;
mod builder;
#[cfg(feature = "data-dir")]
mod data;
#[cfg(not(feature = "data-dir"))]
#[path = "memory/no_data.rs"]
mod data;
mod decide;
mod denials;
mod few;
mod fingerprint;
mod fullness;
mod ids;
mod ledger;
mod lock;
mod locked;
mod overrides;
mod penal;
mod receipts;
mod refund;
mod shard;
mod slot;
mod switches;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ratekeeper_core::{
    Algorithm, Charge, Check, Clock, Decision, Key, Level, Quota, Reservation, Settled, Timestamp, resolve,
};
use smallvec::SmallVec;

pub use self::builder::MemoryStoreBuilder;
#[cfg(feature = "data-dir")]
pub use self::data::DATA_VERSION;
use self::data::DataDir;
use self::denials::Denials;
use self::fingerprint::{Fingerprint, Fingerprinter, Window};
use self::fullness::Fullness;
use self::ledger::IdLedger;
use self::lock::{Guard, Lock};
use self::locked::shard_index;
use self::overrides::OverrideTable;
pub use self::receipts::RECEIPTS_MAX;
use self::receipts::Receipts;
use self::shard::{Counter, RuleNumber, Shard};
use super::meetings::Meetings;
use super::{
    CounterClaims, FailureKinds, Health, Overrides, SECRET_BYTES, Store, StoreError, StoreErrorKind,
    StoreFuture, random_secret,
};
use crate::audit::{Audit, AuditLog};
use crate::clock::SystemClock;
use crate::control::{Control, ControlCell};

/// Counters a store holds unless told otherwise: about 50 MiB when full.
pub const MAX_KEYS_DEFAULT: usize = 1_000_000;
/// Idempotency ids and reservations a store remembers at once unless told otherwise,
/// each with its decision: about 70 MiB when full. At the default of ten minutes for
/// each, that is 166 new ones a second.
pub const MAX_IDS: usize = 100_000;

/// Enough that threads seldom meet and a table that grows stays small.
const SHARDS: usize = 256;
const LEDGERS: usize = 16;
/// Charges of a check that need no allocation.
const INLINE: usize = 4;

/// The in-memory store.
///
/// ```
/// use ratekeeper::{Charge, Check, Key, MemoryStore, Name};
///
/// let store = MemoryStore::new();
/// let key = Key::new(Name::new("per-user")?, "user:42")?;
/// let quota = "10/s burst 20".parse()?;
/// let charge = Charge::new(key, &quota);
/// let decision = store.decide(&Check::one(&charge))?;
/// assert_eq!(decision.verdicts()[0].remaining(), 19);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore {
    clock: StoreClock,
    fingerprinter: Fingerprinter,
    shards: Arc<[Padded]>,
    /// Of each shard, what can be read without its lock.
    denials: Box<[Arc<Denials>]>,
    /// Locked before any shard, never after.
    ledgers: Arc<[Lock<IdLedger>]>,
    max_ids: usize,
    /// Locked like a ledger.
    receipts: Arc<Lock<Receipts>>,
    secret: OnceLock<[u8; SECRET_BYTES]>,
    fullness: Fullness,
    overrides: OverrideTable,
    control: ControlCell,
    audit: AuditLog,
    meetings: Meetings,
    claims: CounterClaims,
    /// Held while overrides or switches change, so that memory and the data directory agree.
    operators: Mutex<()>,
    data: Option<DataDir>,
}

/// Quotas in force and who set them, one for each charge.
type Resolved = SmallVec<[(Quota, Level); INLINE]>;

/// The machine's clock, known to the compiler, or a test's.
#[derive(Debug)]
enum StoreClock {
    System(SystemClock),
    Given(Arc<dyn Clock>),
}

impl StoreClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            StoreClock::System(clock) => clock.now(),
            StoreClock::Given(clock) => clock.now(),
        }
    }

    /// A clock that shows the same.
    #[cfg(feature = "data-dir")]
    fn twin(&self) -> Self {
        match self {
            StoreClock::System(_) => StoreClock::System(SystemClock::new()),
            StoreClock::Given(clock) => StoreClock::Given(Arc::clone(clock)),
        }
    }
}

/// A shard on cache lines of its own: neighbours do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Lock<Shard>);

impl MemoryStore {
    /// A store of up to [`MAX_KEYS_DEFAULT`] counters on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_keys(MAX_KEYS_DEFAULT)
    }

    /// A store of up to `max_keys` counters, rounded up to a multiple of 256.
    ///
    /// Each of 256 shards holds its share; give it a few thousand at least, or
    /// the counters of one check may not fit the shard they share.
    #[must_use]
    pub fn with_max_keys(max_keys: usize) -> Self {
        Self::builder().max_keys(max_keys).build()
    }

    /// A store with other bounds or another clock.
    #[must_use]
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::default()
    }

    /// A store of up to `max_keys` counters that takes its time from `clock`.
    #[must_use]
    pub fn with_clock(max_keys: usize, clock: Arc<dyn Clock>) -> Self {
        Self::builder().max_keys(max_keys).clock(clock).build()
    }

    fn make((max_keys, max_ids): (usize, usize), clock: StoreClock, fingerprinter: Fingerprinter) -> Self {
        let per_shard = max_keys.div_ceil(SHARDS).max(1);
        let shard = |_| Padded(Lock::new(Shard::new(per_shard)));
        let ledger = |_| Lock::new(IdLedger::with_max(max_ids.div_ceil(LEDGERS).max(1)));
        let shards: Arc<[Padded]> = (0..SHARDS).map(shard).collect();
        Self {
            clock,
            overrides: OverrideTable::new(fingerprinter.clone()),
            max_ids,
            receipts: Arc::new(Lock::new(Receipts::default())),
            secret: OnceLock::new(),
            fullness: Fullness::default(),
            control: ControlCell::default(),
            audit: AuditLog::default(),
            meetings: Meetings::new(),
            claims: CounterClaims::default(),
            fingerprinter,
            denials: shards.iter().map(|shard| Arc::clone(shard.0.lock().denials())).collect(),
            shards,
            ledgers: (0..LEDGERS).map(ledger).collect(),
            operators: Mutex::default(),
            data: None,
        }
    }

    /// Saves in the data directory what changes with requests, at once instead of within a second. Without a directory
    /// there is nothing to do. A store that is dropped does this by itself.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.data.as_ref().map_or(Ok(()), DataDir::flush)
    }

    /// Keeps other changes of overrides and switches out.
    fn operators(&self) -> MutexGuard<'_, ()> {
        self.operators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The secret that receipts are signed with.
    fn receipt_key(&self) -> Result<[u8; SECRET_BYTES], StoreError> {
        if let Some(known) = self.secret.get() {
            return Ok(*known);
        }
        let fresh = random_secret()?;
        let kept = self.data.as_ref().map_or(Ok(fresh), |data| data.receipt_key(&fresh))?;
        Ok(*self.secret.get_or_init(|| kept))
    }

    /// How many counters it holds, dead ones that wait for removal included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many live counters had to go because the store was at its bound.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().evicted()).sum()
    }

    #[inline]
    fn shard(&self, fingerprint: Fingerprint) -> Guard<'_, Shard> {
        self.shards[shard_index(fingerprint)].0.lock()
    }

    /// The counter of a charge under the quota in force.
    #[inline]
    fn fingerprint(&self, charge: &Charge<'_>, quota: &Quota) -> Fingerprint {
        if charge.is_overridable() && charge.shared_scope().is_some() {
            return self.fingerprinter.shared_counter(charge.key().subject());
        }
        let window = Window { number: charge.window_number(quota), is_long: charge.is_long() };
        self.fingerprinter.counter(charge.key(), quota.algorithm(), window)
    }

    /// The counters of charges under the quotas in force.
    fn counters(&self, charges: &[Charge<'_>], resolved: &Resolved) -> SmallVec<[Counter; INLINE]> {
        let quota = |index: usize| resolved.get(index).map(|(quota, _)| quota);
        let pairs = charges.iter().enumerate();
        pairs.map(|(at, charge)| self.counter(charge, quota(at).unwrap_or(charge.quota()))).collect()
    }

    /// The counter of a charge under the quota in force.
    #[inline]
    fn counter(&self, charge: &Charge<'_>, quota: &Quota) -> Counter {
        Counter { fingerprint: self.fingerprint(charge, quota), rule: RuleNumber::of(charge.key()) }
    }

    /// The quotas in force and who set them, as the overrides stand at one
    /// instant; nothing if overrides concern none of the charges.
    #[inline]
    fn resolved(&self, charges: &[Charge<'_>], now: Timestamp) -> Resolved {
        if !charges.iter().any(|charge| self.overrides.concern(charge)) {
            return SmallVec::new();
        }
        let table = self.overrides.snapshot();
        charges.iter().map(|charge| resolve(charge, now, |scope| table.find(scope))).collect()
    }

    /// Judges a check; the same as [`Store::check`], without the future.
    ///
    /// # Errors
    /// If the store is too small for all counters of the check together.
    #[inline]
    pub fn decide(&self, check: &Check<'_>) -> Result<Decision, StoreError> {
        let mut decision = Decision::default();
        self.decide_into(check, &mut decision)?;
        Ok(decision)
    }

    /// Charges one counter as of `now`, which may be a little earlier than the clock says.
    pub(crate) fn charge_at(&self, charge: &Charge<'_>, now: Timestamp) -> Result<(), StoreError> {
        self.decide_one(charge, now, false, &mut Decision::default()).map(|_| ())
    }

    /// The number of a charge's counter, the same in all windows.
    fn number(&self, charge: &Charge<'_>) -> u64 {
        self.fingerprint(charge, charge.quota()).key()
    }

    fn reset_now(&self, key: Key<'_>, algorithm: Algorithm) -> bool {
        let now = self.clock.now().as_micros();
        let remove = |fingerprint| self.shard(fingerprint).remove_all(fingerprint, algorithm, now);
        let own = remove(self.fingerprinter.counter(key, algorithm, Window::short(0)));
        // Whoever has only the key cannot know whether it was shared.
        let shared = algorithm == Algorithm::FixedWindow;
        own | (shared && remove(self.fingerprinter.shared_counter(key.subject())))
    }
}

impl Store for MemoryStore {
    fn needs_io(&self) -> bool {
        false
    }

    fn outlives_process(&self) -> bool {
        self.data.is_some()
    }

    #[inline]
    fn try_check(&self, check: &Check<'_>, decision: &mut Decision) -> Option<Result<(), StoreError>> {
        Some(self.decide_into(check, decision))
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        StoreFuture::ready(self.decide(check))
    }

    fn reserve<'a>(
        &'a self,
        check: &'a Check<'a>,
        reservation: &'a Reservation<'a>,
    ) -> StoreFuture<'a, Decision> {
        StoreFuture::ready(self.reserve_now(check, reservation))
    }

    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled> {
        StoreFuture::ready(Ok(self.settle_now(id, actual)))
    }

    fn refund<'a>(
        &'a self,
        check: &'a Check<'a>,
        decision: &'a Decision,
        units: u32,
    ) -> StoreFuture<'a, u64> {
        StoreFuture::ready(Ok(self.refund_now(check, decision, units)))
    }

    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]> {
        StoreFuture::ready(self.receipt_key())
    }

    fn number_of(&self, charge: &Charge<'_>) -> u64 {
        self.number(charge)
    }

    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool> {
        StoreFuture::ready(Ok(self.reset_now(key, algorithm)))
    }

    fn overrides(&self) -> &dyn Overrides {
        self
    }

    fn control(&self) -> &dyn Control {
        self
    }

    fn audit(&self) -> &dyn Audit {
        self
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn counter_claims(&self) -> Option<&CounterClaims> {
        Some(&self.claims)
    }

    fn health(&self) -> Health {
        let (full, is_full) = self.fullness.look(self.clock.now());
        let (evicted, evicted_exhausted) = (self.evicted(), self.fullness.evicted_exhausted());
        let refunds_refused = self.fullness.refunds_refused();
        Health {
            failures: full,
            by_kind: FailureKinds::only(StoreErrorKind::Capacity, full, is_full),
            full,
            is_full,
            evicted,
            evicted_exhausted,
            refunds_refused,
            data: self.data.as_ref().map(DataDir::health),
            ..Health::default()
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}
