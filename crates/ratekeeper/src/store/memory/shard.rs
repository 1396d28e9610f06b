//! One shard: an open-addressing table of slots.
//!
//! Linear probing over slots that hold their fingerprints, so a look-up
//! touches one or two cache lines. States that grow (logs, leases) live in a
//! list beside the table, and their slots say where. Dead counters are removed
//! a few at a time by a hand that moves on with every new key; nothing ever
//! sweeps the whole store.

mod eviction;
mod rules;
mod unsaved;

use std::sync::Arc;

use ratekeeper_core::{Algorithm, State, WINDOWS_MAX};

use self::eviction::Queues;
pub(super) use self::eviction::Room;
use self::rules::RuleCounts;
pub(super) use self::rules::RuleNumber;
use self::unsaved::Unsaved;
#[cfg(feature = "data-dir")]
pub(super) use self::unsaved::{Found, Take};
use super::denials::Denials;
use super::fingerprint::Fingerprint;
use super::slot::{Pressure, Slot};

/// Slots the hand looks at for every new key.
const SWEPT_PER_INSERT: usize = 4;
/// The smallest table.
const SLOTS_MIN: usize = 8;

/// A counter and the rule it belongs to: the one that first counted on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) fingerprint: Fingerprint,
    pub(super) rule: RuleNumber,
}

#[derive(Debug)]
pub(super) struct Shard {
    slots: Vec<Slot>,
    used: usize,
    /// States that grow; `None` where one has been taken out or removed.
    grown: Vec<Option<State>>,
    /// Places in `grown` that no slot points to.
    free: Vec<u32>,
    hand: usize,
    /// The most counters it may hold.
    max: usize,
    rules: RuleCounts,
    queues: Queues,
    evicted: u64,
    /// Copies of counters in the table, all of them exhausted.
    denials: Arc<Denials>,
    /// Counts denials for [`Denials::keep`].
    turn: u8,
    /// What a data directory does not have yet.
    unsaved: Unsaved,
}

impl Shard {
    pub(super) fn new(max: usize) -> Self {
        Self {
            slots: Vec::new(),
            used: 0,
            grown: Vec::new(),
            free: Vec::new(),
            hand: 0,
            max,
            rules: RuleCounts::new(),
            queues: Queues::new(),
            evicted: 0,
            denials: Arc::default(),
            turn: 0,
            unsaved: Unsaved::new(),
        }
    }

    /// The copies of its counters that denied last.
    pub(super) fn denials(&self) -> &Arc<Denials> {
        &self.denials
    }

    pub(super) const fn len(&self) -> usize {
        self.used
    }

    pub(super) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Where a fingerprint would stand if it were alone. Multiplying instead
    /// of masking lets the table have any size, so it can grow in small steps.
    #[inline]
    fn home(&self, fingerprint: Fingerprint) -> usize {
        // The first eight bits have chosen the shard.
        ((u128::from(fingerprint.key() << 8) * self.slots.len() as u128) >> 64) as usize
    }

    #[inline]
    fn after(&self, index: usize) -> usize {
        if index + 1 >= self.slots.len() { 0 } else { index + 1 }
    }

    #[inline]
    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut index = self.home(fingerprint);
        // There always is a vacant slot, so this ends.
        loop {
            let slot = &self.slots[index];
            if slot.is_vacant() {
                return None;
            }
            if slot.fingerprint == fingerprint {
                return Some(index);
            }
            index = self.after(index);
        }
    }

    /// The slots of a key under all algorithms and in all windows, whether or not they are kept apart.
    fn of_key(&self, fingerprint: Fingerprint) -> impl Iterator<Item = usize> {
        let home = if self.slots.is_empty() { None } else { Some(self.home(fingerprint)) };
        let places = std::iter::successors(home, |index| Some(self.after(*index)));
        let used = places.take_while(|index| !self.slots[*index].is_vacant());
        used.filter(move |index| self.slots[*index].fingerprint.key() == fingerprint.key())
    }

    /// The slots of a key under all algorithms and in all windows that are kept together.
    fn windows(&self, fingerprint: Fingerprint) -> impl Iterator<Item = usize> {
        self.of_key(fingerprint).filter(move |index| self.slots[*index].fingerprint.high == fingerprint.high)
    }

    /// Whether there is a place for a window of a key under an algorithm that is not in the table, or is
    /// dead. Logs are counted by themselves, and so are leases: servers keep them apart.
    #[cold]
    pub(super) fn has_window_for(&self, fingerprint: Fingerprint, algorithm: Algorithm, now: u64) -> bool {
        let live = |index: &usize| {
            let slot = &self.slots[*index];
            let is_beside =
                if algorithm.keeps_all() { slot.is_under(algorithm) } else { slot.place().is_none() };
            is_beside && slot.expires_at() > now
        };
        self.windows(fingerprint).filter(live).count() < WINDOWS_MAX
    }

    /// Whether a counter is in the table and says something.
    #[inline]
    pub(super) fn is_live(&self, index: usize, now: u64) -> bool {
        self.slots[index].is_live(now)
    }

    /// Removes a key under an algorithm, in all its windows; says whether something counted in one.
    pub(super) fn remove_all(&mut self, fingerprint: Fingerprint, algorithm: Algorithm, now: u64) -> bool {
        let mut any = false;
        while let Some(index) =
            { self.of_key(fingerprint).find(|index| self.slots[*index].is_under(algorithm)) }
        {
            any |= self.slots[index].expires_at() > now;
            self.remove(index);
        }
        any
    }

    /// Where a counter is that says something, and its state, if that is one that does not grow.
    #[inline]
    pub(super) fn in_use(
        &self,
        fingerprint: Fingerprint,
        algorithm: Algorithm,
        now: u64,
    ) -> Option<(usize, State)> {
        let index = self.find(fingerprint)?;
        let slot = &self.slots[index];
        let state = slot.state(algorithm)?;
        slot.is_live(now).then_some((index, state))
    }

    /// The state of a counter. One that grows is taken out, to be put back.
    #[inline]
    pub(super) fn take(&mut self, index: usize, algorithm: Algorithm) -> State {
        let slot = &self.slots[index];
        if let Some(state) = slot.state(algorithm) {
            return state;
        }
        let taken = slot.place().and_then(|place| self.grown[place as usize].take());
        taken.unwrap_or_else(|| State::vacant(algorithm))
    }

    /// Writes a counter that is in the table.
    #[inline]
    pub(super) fn put(&mut self, index: usize, state: State, pressure: Pressure) {
        let slot = &mut self.slots[index];
        let place = slot.place();
        if slot.pressure() == Pressure::EXHAUSTED {
            self.denials.forget(slot.fingerprint);
        }
        slot.write(&state, pressure, place.unwrap_or_default());
        self.unsaved.note(slot);
        if let Some(place) = place {
            self.grown[place as usize] = Some(state);
        }
    }

    /// Puts a state back that was taken out and not changed.
    pub(super) fn put_back(&mut self, index: usize, state: State) {
        // Others were only copied.
        if let Some(place) = self.slots[index].place() {
            self.grown[place as usize] = Some(state);
        }
    }

    /// Has the next denials of a counter that just denied, and is exhausted, need no lock.
    pub(super) fn keep_denial(&mut self, index: usize) {
        let slot = &self.slots[index];
        if slot.place().is_none() {
            self.denials.keep(slot, &mut self.turn);
        }
    }

    /// Adds a counter of a rule that is not in the table.
    pub(super) fn insert(&mut self, counter: Counter, state: State, pressure: Pressure, now: u64) {
        self.sweep(SWEPT_PER_INSERT, now);
        if (self.used + 1) * 8 > self.slots.len() * 7 {
            self.rebuild(now);
        }
        let place = self.free.last().copied().unwrap_or(self.grown.len() as u32);
        let mut slot = Slot::vacant_for(counter.fingerprint, counter.rule);
        slot.write(&state, pressure, place);
        self.unsaved.note(&mut slot);
        if slot.place().is_some() {
            match self.free.pop() {
                Some(place) => self.grown[place as usize] = Some(state),
                None => self.grown.push(Some(state)),
            }
        }
        self.settle_in(slot);
        self.rules.add(counter.rule);
        self.queues.offer(counter.rule, slot.rank(), counter.fingerprint);
    }

    fn settle_in(&mut self, slot: Slot) {
        let mut index = self.home(slot.fingerprint);
        while !self.slots[index].is_vacant() {
            index = self.after(index);
        }
        self.slots[index] = slot;
        self.used += 1;
    }

    /// Moves what is live into a table that is three quarters full. It is moved
    /// again at seven eighths: small steps, so that little memory lies idle.
    fn rebuild(&mut self, now: u64) {
        let dead = |slot: &Slot| slot.is_vacant() || slot.expires_at() <= now;
        let live = self.slots.iter().filter(|slot| !dead(slot)).count();
        let size = ((live + 1) * 4 / 3 + 1).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![Slot::VACANT; size]);
        self.used = 0;
        self.hand = 0;
        for slot in old {
            if !dead(&slot) {
                self.settle_in(slot);
            } else if !slot.is_vacant() {
                self.forget(slot);
            }
        }
    }

    fn forget(&mut self, slot: Slot) {
        if slot.pressure() == Pressure::EXHAUSTED {
            self.denials.forget(slot.fingerprint);
        }
        self.rules.remove(slot.rule());
        self.unsaved.note(&mut { slot });
        if let Some(place) = slot.place() {
            self.grown[place as usize] = None;
            self.free.push(place);
        }
    }

    /// Empties a slot and closes the gap, so that probing needs no tombstones.
    pub(super) fn remove(&mut self, index: usize) {
        self.forget(self.slots[index]);
        let mut gap = index;
        let mut next = self.after(index);
        while !self.slots[next].is_vacant() {
            let home = self.home(self.slots[next].fingerprint);
            // It may move back to the gap unless its home lies behind the gap.
            let behind = if gap <= next { gap < home && home <= next } else { gap < home || home <= next };
            if !behind {
                self.slots[gap] = self.slots[next];
                gap = next;
            }
            next = self.after(next);
        }
        self.slots[gap] = Slot::VACANT;
        self.used -= 1;
    }

    /// Moves the hand over `count` slots and removes the dead among them.
    fn sweep(&mut self, count: usize, now: u64) {
        for _ in 0..count.min(self.slots.len()) {
            self.hand = self.after(self.hand);
            // What is removed may bring another one to its place.
            while self.is_dead(self.hand, now) {
                self.remove(self.hand);
            }
        }
    }

    fn is_dead(&self, index: usize, now: u64) -> bool {
        let slot = &self.slots[index];
        !slot.is_vacant() && slot.expires_at() <= now
    }

    /// Whether `needed` new counters fit without anything having to go.
    pub(super) const fn has_room_for(&self, needed: usize) -> bool {
        self.used + needed <= self.max
    }

    /// Whether so many counters fit it at all.
    pub(super) const fn can_hold(&self, counters: usize) -> bool {
        counters <= self.max
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::algorithm::{Bucket, TokenBucket};
    use std::collections::HashMap;

    fn counter(fingerprint: Fingerprint) -> Counter {
        Counter { fingerprint, rule: RuleNumber::from_bits((fingerprint.low % 5) as u32) }
    }

    fn bucket(full_at: u64) -> State {
        State::TokenBucket(TokenBucket(Bucket { full_at, remainder: 0, denominator: 1, ahead: 0 }))
    }

    /// Random inserts and removals against a plain map, on homes that crowd.
    #[test]
    fn the_table_agrees_with_a_map() {
        let mut shard = Shard::new(usize::MAX);
        let mut map: HashMap<Fingerprint, u64> = HashMap::new();
        let mut random = fastrand::Rng::with_seed(7);
        for step in 0..200_000u64 {
            let low = random.u64(0..40) << 58 | random.u64(0..20);
            let fingerprint = Fingerprint { high: low >> 8, low };
            match shard.find(fingerprint) {
                Some(index) if random.bool() => {
                    shard.remove(index);
                    assert!(map.remove(&fingerprint).is_some());
                }
                Some(index) => {
                    let state = shard.take(index, Algorithm::TokenBucket);
                    assert_eq!(state, bucket(map[&fingerprint]));
                }
                None => {
                    assert!(!map.contains_key(&fingerprint));
                    shard.insert(
                        counter(fingerprint),
                        bucket(step + 1_000_000_000),
                        Pressure::EXHAUSTED,
                        step,
                    );
                    map.insert(fingerprint, step + 1_000_000_000);
                }
            }
            assert_eq!(shard.len(), map.len());
        }
        let mut rules = RuleCounts::new();
        map.keys().for_each(|fingerprint| rules.add(counter(*fingerprint).rule));
        assert_eq!(shard.rules, rules);
    }

    #[test]
    fn the_dead_leave_without_a_sweep_of_the_whole() {
        let mut shard = Shard::new(usize::MAX);
        let mut random = fastrand::Rng::with_seed(8);
        for step in 0..100_000u64 {
            let low = random.u64(..);
            let fingerprint = Fingerprint { high: low, low };
            shard.insert(counter(fingerprint), bucket(step + 100), Pressure::EXHAUSTED, step);
        }
        assert!(shard.len() < 1_000, "{} counters, 100 of them live", shard.len());
        assert!(shard.bytes() < 100_000, "{} bytes", shard.bytes());
    }

    #[test]
    fn places_of_logs_that_are_gone_are_used_again() {
        let mut shard = Shard::new(usize::MAX);
        for step in 0..1_000u64 {
            let fingerprint = Fingerprint { high: step, low: step << 54 };
            shard.insert(counter(fingerprint), State::vacant(Algorithm::SlidingLog), Pressure::EXHAUSTED, 0);
            let index = shard.find(fingerprint).unwrap();
            shard.remove(index);
        }
        assert!(shard.grown.len() < 10, "{} places for one log", shard.grown.len());
    }
}
