//! One shard: an open-addressing table of slots.
//!
//! Linear probing over slots that hold their fingerprints, so a look-up
//! touches one or two cache lines. States that grow (logs, leases) live in a
//! list beside the table, and their slots say where. Dead counters are removed
//! a few at a time by a hand that moves on with every new key; nothing ever
//! sweeps the whole store.

use ratekeeper_core::{Algorithm, State};

use super::fingerprint::Fingerprint;
use super::slot::{Pressure, Slot};

/// Slots the hand looks at for every new key.
const SWEPT_PER_INSERT: usize = 4;
/// Slots searched for a victim when the shard is at its bound.
const VICTIMS_SEARCHED: usize = 64;
/// The smallest table.
const SLOTS_MIN: usize = 8;

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
    evicted: u64,
}

impl Shard {
    pub(super) const fn new(max: usize) -> Self {
        Self { slots: Vec::new(), used: 0, grown: Vec::new(), free: Vec::new(), hand: 0, max, evicted: 0 }
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
        ((u128::from(fingerprint.low) * self.slots.len() as u128) >> 64) as usize
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
        slot.write(&state, pressure, place.unwrap_or_default());
        if let Some(place) = place {
            self.grown[place as usize] = Some(state);
        }
    }

    /// Puts a state back that was taken out and not changed.
    pub(super) fn put_back(&mut self, index: usize, state: State) {
        let pressure = self.slots[index].pressure();
        self.put(index, state, pressure);
    }

    /// Adds a counter that is not in the table.
    pub(super) fn insert(&mut self, fingerprint: Fingerprint, state: State, pressure: Pressure, now: u64) {
        self.sweep(SWEPT_PER_INSERT, now);
        if (self.used + 1) * 8 > self.slots.len() * 7 {
            self.rebuild(now);
        }
        let place = self.free.last().copied().unwrap_or(self.grown.len() as u32);
        let mut slot = Slot::VACANT;
        slot.fingerprint = fingerprint;
        slot.write(&state, pressure, place);
        if slot.place().is_some() {
            match self.free.pop() {
                Some(place) => self.grown[place as usize] = Some(state),
                None => self.grown.push(Some(state)),
            }
        }
        self.settle_in(slot);
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
            if dead(&slot) {
                self.free_place(slot);
            } else {
                self.settle_in(slot);
            }
        }
    }

    fn free_place(&mut self, slot: Slot) {
        if let Some(place) = slot.place() {
            self.grown[place as usize] = None;
            self.free.push(place);
        }
    }

    /// Empties a slot and closes the gap, so that probing needs no tombstones.
    pub(super) fn remove(&mut self, index: usize) {
        self.free_place(self.slots[index]);
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
            let slot = &self.slots[self.hand];
            if !slot.is_vacant() && slot.expires_at() <= now {
                self.remove(self.hand);
            }
        }
    }

    /// Whether `needed` new counters fit without anything having to go.
    pub(super) const fn has_room_for(&self, needed: usize) -> bool {
        self.used + needed <= self.max
    }

    /// Makes room for `needed` new counters; says whether it could.
    ///
    /// At the bound the dead go first, then the counter that has used least of
    /// its quota. One that is exhausted stays: it is limiting somebody, and a
    /// stranger's made-up keys, which have used little, go before it does.
    pub(super) fn make_room(&mut self, needed: usize, now: u64, keep: impl Fn(Fingerprint) -> bool) -> bool {
        while !self.has_room_for(needed) {
            self.sweep(VICTIMS_SEARCHED, now);
            if self.has_room_for(needed) {
                break;
            }
            let Some(victim) = self.victim(&keep) else { return false };
            self.remove(victim);
            self.evicted += 1;
        }
        true
    }

    fn victim(&self, keep: &impl Fn(Fingerprint) -> bool) -> Option<usize> {
        let size = self.slots.len();
        (0..VICTIMS_SEARCHED.min(size))
            .map(|step| (self.hand + step) % size)
            .filter(|index| {
                let slot = &self.slots[*index];
                !slot.is_vacant() && slot.pressure() != Pressure::EXHAUSTED && !keep(slot.fingerprint)
            })
            .min_by_key(|index| (self.slots[*index].pressure(), self.slots[*index].expires_at()))
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

    fn bucket(full_at: u64) -> State {
        State::TokenBucket(TokenBucket(Bucket { full_at, remainder: 0, denominator: 1 }))
    }

    /// Random inserts and removals against a plain map, on homes that crowd.
    #[test]
    fn the_table_agrees_with_a_map() {
        let mut shard = Shard::new(usize::MAX);
        let mut map: HashMap<Fingerprint, u64> = HashMap::new();
        let mut random = fastrand::Rng::with_seed(7);
        for step in 0..200_000u64 {
            let low = random.u64(0..40) << 58 | random.u64(0..20);
            let fingerprint = Fingerprint { high: low, low };
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
                    shard.insert(fingerprint, bucket(step + 1_000_000_000), Pressure::EXHAUSTED, step);
                    map.insert(fingerprint, step + 1_000_000_000);
                }
            }
            assert_eq!(shard.len(), map.len());
        }
    }

    #[test]
    fn the_dead_leave_without_a_sweep_of_the_whole() {
        let mut shard = Shard::new(usize::MAX);
        let mut random = fastrand::Rng::with_seed(8);
        for step in 0..100_000u64 {
            let low = random.u64(..);
            shard.insert(Fingerprint { high: low, low }, bucket(step + 100), Pressure::EXHAUSTED, step);
        }
        assert!(shard.len() < 1_000, "{} counters, 100 of them live", shard.len());
        assert!(shard.bytes() < 100_000, "{} bytes", shard.bytes());
    }

    #[test]
    fn at_the_bound_the_one_that_has_used_least_goes_and_its_own_never() {
        let quota = "16/h".parse().unwrap();
        let mut shard = Shard::new(4);
        let fingerprint = |n: u64| Fingerprint { high: n, low: n << 60 };
        for (n, left) in [(1, 1), (2, 15), (3, 4), (4, 0)] {
            shard.insert(fingerprint(n), bucket(1_000), Pressure::left(left, &quota), 0);
        }
        let gone =
            |shard: &Shard| (1..=4).filter(|n| shard.find(fingerprint(*n)).is_none()).collect::<Vec<_>>();
        assert!(shard.make_room(1, 0, |other| other == fingerprint(2)));
        assert_eq!(gone(&shard), [3], "the second has used less, but is part of the check");
        assert!(shard.make_room(2, 0, |_| false));
        assert_eq!(gone(&shard), [2, 3]);
        assert!(shard.make_room(3, 0, |_| false));
        assert_eq!(gone(&shard), [1, 2, 3]);
        assert!(!shard.make_room(4, 0, |_| false), "the last is limiting somebody");
        assert_eq!(shard.evicted(), 3);
        assert!(shard.make_room(4, 1_000, |_| false), "it is dead now");
    }

    #[test]
    fn places_of_logs_that_are_gone_are_used_again() {
        let mut shard = Shard::new(usize::MAX);
        for step in 0..1_000u64 {
            let fingerprint = Fingerprint { high: step, low: step << 54 };
            shard.insert(fingerprint, State::vacant(Algorithm::SlidingLog), Pressure::EXHAUSTED, 0);
            let index = shard.find(fingerprint).unwrap();
            shard.remove(index);
        }
        assert!(shard.grown.len() < 10, "{} places for one log", shard.grown.len());
    }
}
