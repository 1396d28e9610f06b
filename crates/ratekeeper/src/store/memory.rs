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

mod builder;
mod denials;
mod few;
mod fingerprint;
mod fullness;
mod lock;
mod locked;
mod overrides;
mod penal;
mod receipts;
mod shard;
mod slot;

use std::fmt;
use std::sync::{Arc, OnceLock};

use ratekeeper_core::{
    Algorithm, Begin, Charge, Check, Clock, Decision, GiveBack, Held, Key, Ledger, Level, Quota, Reservation,
    Settled, State, Timestamp, judge, judge_denied, judge_one, resolve, too_many_windows,
};
use smallvec::SmallVec;

pub use self::builder::MemoryStoreBuilder;
use self::denials::Denials;
use self::few::Few;
use self::fingerprint::{Fingerprint, Fingerprinter};
use self::fullness::Fullness;
use self::lock::{Guard, Lock};
use self::locked::{Locked, Part, full, shard_index};
use self::overrides::OverrideTable;
pub use self::receipts::RECEIPTS_MAX;
use self::receipts::Receipts;
use self::shard::{Counter, Room, RuleNumber, Shard};
use self::slot::Pressure;
use super::meetings::Meetings;
use super::{
    FailureKinds, Health, Overrides, SECRET_BYTES, Store, StoreError, StoreErrorKind, StoreFuture,
    random_secret,
};
use crate::clock::SystemClock;
use crate::control::{Control, ControlCell, SWITCHES_MAX, Switch, Switches, validated};

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
    shards: Box<[Padded]>,
    /// Of each shard, what can be read without its lock.
    denials: Box<[Arc<Denials>]>,
    /// Locked before any shard, never after.
    ledgers: Box<[Lock<Ledger<Counter>>]>,
    max_ids: usize,
    /// Locked like a ledger.
    receipts: Lock<Receipts>,
    secret: OnceLock<[u8; SECRET_BYTES]>,
    fullness: Fullness,
    overrides: OverrideTable,
    control: ControlCell,
    meetings: Meetings,
}

/// The algorithm of a charge that has a counter for its window alone under the quota in force.
fn windowed(charge: &Charge<'_>, resolved: Option<&(Quota, Level)>) -> Option<Algorithm> {
    let quota = resolved.map_or(charge.quota(), |(quota, _)| quota);
    (charge.window_number(quota) > 0).then(|| quota.algorithm())
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

    fn build(max_keys: usize, max_ids: usize, clock: StoreClock) -> Self {
        let per_shard = max_keys.div_ceil(SHARDS).max(1);
        let shard = |_| Padded(Lock::new(Shard::new(per_shard)));
        let ledger = |_| Lock::new(Ledger::with_max(max_ids.div_ceil(LEDGERS).max(1)));
        let fingerprinter = Fingerprinter::random();
        let shards: Box<[Padded]> = (0..SHARDS).map(shard).collect();
        Self {
            clock,
            overrides: OverrideTable::new(fingerprinter.clone()),
            max_ids,
            receipts: Lock::new(Receipts::default()),
            secret: OnceLock::new(),
            fullness: Fullness::default(),
            control: ControlCell::default(),
            meetings: Meetings::new(),
            fingerprinter,
            denials: shards.iter().map(|shard| Arc::clone(shard.0.lock().denials())).collect(),
            shards,
            ledgers: (0..LEDGERS).map(ledger).collect(),
        }
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
        self.fingerprinter.counter(charge.key(), quota.algorithm(), charge.window_number(quota))
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

    #[inline]
    fn decide_into(&self, check: &Check<'_>, decision: &mut Decision) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.meetings.note(check);
        let decided = match check.charges() {
            _ if !check.penalties().is_empty() => self.decide_penal(check, now, decision),
            [charge] => self.decide_one(charge, now, check.is_peek(), decision),
            charges if check.is_peek() => self.decide_many(charges, now, true, decision),
            charges => match self.charge_few(charges, now, decision) {
                Few::Charged => Ok(Room::None),
                Few::Found(counters, shards) => {
                    let found = (&*counters, shards);
                    Self::decide_locked(charges, &Resolved::new(), found, (now, false), decision)
                }
                Few::Many => self.decide_many(charges, now, false, decision),
            },
        };
        // No shard is locked any more: whoever reads the log may ask the store.
        match decided {
            Ok(Room::None) => Ok(()),
            Ok(room) => {
                self.fullness.found(now, room);
                Ok(())
            }
            Err(error) => {
                if error.kind() == StoreErrorKind::Capacity {
                    self.fullness.refused(now, &error);
                }
                Err(error)
            }
        }
    }

    /// Says which room it needed; none for a counter that is there.
    #[inline]
    fn decide_one(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        peek: bool,
        decision: &mut Decision,
    ) -> Result<Room, StoreError> {
        // Before the lock: the window in force is part of the counter's identity.
        let resolved;
        let (quota, level) = if self.overrides.concern(charge) {
            // Not asked twice whether there are any: the last one may be deleted meanwhile.
            let table = self.overrides.snapshot();
            resolved = resolve(charge, now, |scope| table.find(scope));
            (&resolved.0, resolved.1)
        } else {
            (charge.quota(), charge.quota_level())
        };
        let fingerprint = self.fingerprint(charge, quota);
        let algorithm = charge.quota().algorithm();
        if let Some(slot) = self.denials[shard_index(fingerprint)].find(fingerprint)
            && slot.is_live(now.as_micros())
            && let Some(mut state) = slot.state(algorithm)
            && judge_denied(charge, (quota, level), &mut state, now, decision)
        {
            decision.set_counters([fingerprint.high]);
            return Ok(Room::None);
        }
        let mut shard = self.shard(fingerprint);
        let Some(index) = shard.find(fingerprint) else {
            if charge.window_number(quota) > 0
                && !shard.has_window_for(fingerprint, algorithm, now.as_micros())
            {
                return Err(too_many_windows().into());
            }
            let mut state = State::vacant(algorithm);
            judge_one(charge, (quota, level), &mut state, now, peek, decision);
            decision.set_counters([fingerprint.high]);
            let verdict = &decision.verdicts()[0];
            if verdict.receipt().is_none() {
                return Ok(Room::None);
            }
            let counter = Counter { fingerprint, rule: RuleNumber::of(charge.key()) };
            // A shard holds one counter at least, and nothing is kept for this check.
            let room = shard.make_room(&[counter.rule], now.as_micros(), |_| false);
            shard.insert(counter, state, Pressure::of(verdict), now.as_micros());
            return Ok(room);
        };
        if !shard.is_live(index, now.as_micros())
            && charge.window_number(quota) > 0
            && !shard.has_window_for(fingerprint, algorithm, now.as_micros())
        {
            return Err(too_many_windows().into());
        }
        let mut state = shard.take(index, algorithm);
        judge_one(charge, (quota, level), &mut state, now, peek, decision);
        decision.set_counters([fingerprint.high]);
        if peek {
            shard.put_back(index, state);
        } else {
            let verdict = &decision.verdicts()[0];
            shard.put(index, state, Pressure::of(verdict));
            if !verdict.is_admitted() {
                shard.keep_denial(index);
            }
        }
        Ok(Room::None)
    }

    fn decide_many<'c>(
        &self,
        charges: &'c [Charge<'c>],
        now: Timestamp,
        peek: bool,
        decision: &mut Decision,
    ) -> Result<Room, StoreError> {
        let resolved = self.resolved(charges, now);
        let counters = self.counters(charges, &resolved);
        let shards = self.lock_all(&counters);
        Self::decide_locked(charges, &resolved, (&counters, shards), (now, peek), decision)
    }

    /// Judges a check whose shards are locked.
    fn decide_locked<'c>(
        charges: &'c [Charge<'c>],
        resolved: &Resolved,
        (counters, mut shards): (&[Counter], Locked<'_>),
        (now, peek): (Timestamp, bool),
        decision: &mut Decision,
    ) -> Result<Room, StoreError> {
        let mut places = shards.places(counters);
        let mut has_room = true;
        // Of counters that are in use, nothing has to be made sure of.
        if !shards.are_live(&places, now) {
            let windowed = |index: usize| windowed(&charges[index], resolved.get(index));
            shards.has_windows_for(counters, windowed, now)?;
            // Without room for what is new, what is there can still deny.
            has_room = peek || shards.make_room(counters, counters, now);
            places = shards.places(counters);
        }
        let peek = peek || !has_room;
        // Nothing is inserted before everything is judged, so places stand.
        let mut parts: SmallVec<[Part<'_>; INLINE]> = SmallVec::new();
        for (index, (charge, place)) in charges.iter().zip(places).enumerate() {
            parts.push(shards.part(counters[index], place, charge, resolved.get(index).copied()));
        }
        judge(&mut parts, now, peek, decision);
        decision.set_counters(counters.iter().map(|counter| counter.fingerprint.high));
        shards.write_back(&mut parts, decision, now, peek);
        match has_room {
            true => Ok(shards.room()),
            false if decision.is_allowed() => Err(full()),
            false => Ok(Room::None),
        }
    }

    /// Locks the shards of all `counters`, each once, in ascending order:
    /// two checks that share shards can never wait for each other in a ring.
    fn lock_all(&self, counters: &[Counter]) -> Locked<'_> {
        const WORD: usize = u64::BITS as usize;
        // A bit for each shard: they come out in ascending order.
        let mut wanted = [0u64; SHARDS / WORD];
        for counter in counters {
            let index = shard_index(counter.fingerprint);
            wanted[index / WORD] |= 1 << (index % WORD);
        }
        let mut locked = Locked::default();
        for (word, mut bits) in wanted.into_iter().enumerate() {
            while bits != 0 {
                let index = word * WORD + bits.trailing_zeros() as usize;
                locked.push(index, self.shards[index].0.lock());
                bits &= bits - 1;
            }
        }
        locked
    }

    fn reserve_now(&self, check: &Check<'_>, reservation: &Reservation<'_>) -> Result<Decision, StoreError> {
        let mut ledger = self.ledger(reservation.id());
        match ledger.begin(reservation, check, self.clock.now())? {
            Begin::Repeat(decision) => Ok(*decision),
            Begin::Full => {
                let error = StoreError::capacity(format!("all {} idempotency ids are in use", self.max_ids));
                self.fullness.refused(self.clock.now(), &error);
                Err(error)
            }
            Begin::New => {
                let mut decision = self.decide(check)?;
                if reservation.held_for().is_some() {
                    decision.set_held();
                }
                let held = check.charges().iter().zip(decision.verdicts());
                let held = held.filter_map(|(charge, verdict)| {
                    Held::new(self.counter(charge, verdict.quota()), charge, verdict)
                });
                ledger.record(reservation, check, &decision, held.collect());
                Ok(decision)
            }
        }
    }

    /// What was remembered of the same check under this id.
    pub(crate) fn recall(&self, check: &Check<'_>, under: &Reservation<'_>) -> Option<Decision> {
        match self.ledger(under.id()).begin(under, check, self.clock.now()) {
            Ok(Begin::Repeat(decision)) => Some(*decision),
            Ok(Begin::New | Begin::Full) | Err(_) => None,
        }
    }

    /// Remembers a decision that was charged without its id. At the bound of ids it is forgotten.
    pub(crate) fn remember(&self, check: &Check<'_>, under: &Reservation<'_>, decision: &Decision) {
        let mut ledger = self.ledger(under.id());
        if let Ok(Begin::New) = ledger.begin(under, check, self.clock.now()) {
            ledger.record(under, check, decision, Vec::new());
        }
    }

    fn ledger(&self, id: &[u8]) -> Guard<'_, Ledger<Counter>> {
        // The remainder of LEDGERS is below LEDGERS, whatever the width.
        self.ledgers[self.fingerprinter.id(id) as usize % LEDGERS].lock()
    }

    fn settle_now(&self, id: &[u8], actual: Option<u32>) -> Settled {
        let now = self.clock.now();
        // Held until the counters are right: who is told `Already` finds them so.
        let mut ledger = self.ledger(id);
        let held = match ledger.close(id, now) {
            Err(answer) => return answer,
            Ok(held) => held,
        };
        let counters: Vec<Counter> = held.iter().map(|charge| charge.counter).collect();
        let mut shards = self.lock_all(&counters);
        for charge in held {
            if charge.adds(actual) {
                shards.ensure(&counters, charge.counter, charge.quota(), now);
            }
            let fingerprint = charge.counter.fingerprint;
            shards.update(fingerprint, charge.quota(), now, |state| charge.settle(state, now, actual));
        }
        let room = shards.room();
        drop(shards);
        self.fullness.found(now, room);
        Settled::Done
    }

    fn refund_now(&self, check: &Check<'_>, decision: &Decision, units: u32) -> u64 {
        let now = self.clock.now();
        let charges = decision.given_back_to(check, units, |charge| self.number(charge));
        charges.map(|back| u64::from(self.give_back(&back, now))).sum()
    }

    fn give_back(&self, back: &GiveBack<'_, '_>, now: Timestamp) -> u32 {
        let quota = back.verdict.quota();
        let counter = self.counter(&back.charge_made(), quota);
        let fingerprint = counter.fingerprint;
        let mut receipts = back.note.map(|note| (self.receipts.lock(), note));
        let left = match &mut receipts {
            Some((receipts, note)) => receipts.left(fingerprint.low, *note, back.units, now.as_micros()),
            None => Some((0, back.units)),
        };
        let Some((before, units)) = left else {
            drop(receipts);
            back.put_back();
            self.fullness.kept_back(now);
            return 0;
        };
        let mut given = 0;
        self.lock_all(&[counter]).update(fingerprint, quota, now, |state| {
            let now = state.instant(now.as_micros());
            given = state.refund(quota, now, units, back.receipt.less(before, quota));
        });
        if let Some((receipts, note)) = receipts.as_mut().filter(|_| given > 0) {
            receipts.note(fingerprint.low, *note, given);
        }
        given
    }

    /// The number of a charge's counter, the same in all windows.
    fn number(&self, charge: &Charge<'_>) -> u64 {
        self.fingerprint(charge, charge.quota()).high
    }

    fn reset_now(&self, key: Key<'_>, algorithm: Algorithm) -> bool {
        let now = self.clock.now().as_micros();
        let remove = |fingerprint| self.shard(fingerprint).remove_all(fingerprint, algorithm, now);
        let own = remove(self.fingerprinter.counter(key, algorithm, 0));
        // Whoever has only the key cannot know whether it was shared.
        let shared = algorithm == Algorithm::FixedWindow;
        own | (shared && remove(self.fingerprinter.shared_counter(key.subject())))
    }
}

impl Store for MemoryStore {
    fn needs_io(&self) -> bool {
        false
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
        StoreFuture::ready(random_secret().map(|fresh| *self.secret.get_or_init(|| fresh)))
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

    fn now(&self) -> Timestamp {
        self.clock.now()
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
            ..Health::default()
        }
    }
}

impl Control for MemoryStore {
    #[inline]
    fn switches(&self) -> Option<Arc<Switches>> {
        self.control.get()
    }

    fn read_switches(&self) -> StoreFuture<'_, Switches> {
        StoreFuture::ready(Ok(self.control.get().map(|switches| (*switches).clone()).unwrap_or_default()))
    }

    fn set_switch<'a>(&'a self, rule: &'a str, switch: Switch) -> StoreFuture<'a, ()> {
        let set = |switch| {
            self.control.update(|switches| {
                if switches.len() >= SWITCHES_MAX && !switches.contains_key(rule) {
                    let now = self.clock.now();
                    switches.retain(|_, switch| switch.is_live(now));
                }
                if switches.len() >= SWITCHES_MAX && !switches.contains_key(rule) {
                    return Err(StoreError::capacity(format!("there are {SWITCHES_MAX} switches already")));
                }
                switches.insert(rule.to_owned(), switch);
                Ok(())
            })
        };
        StoreFuture::ready(validated(rule, switch).map_err(Into::into).and_then(set))
    }

    fn clear_switch<'a>(&'a self, rule: &'a str) -> StoreFuture<'a, bool> {
        StoreFuture::ready(Ok(self.control.update(|switches| switches.remove(rule).is_some())))
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
