//! The shards of one check, locked together, and its charges on their way
//! through them.

use ratekeeper_core::{Algorithm, Case, Charge, Decision, Level, Quota, State, Timestamp, too_many_windows};
use smallvec::SmallVec;

use super::INLINE;
use super::fingerprint::Fingerprint;
use super::lock::Guard;
use super::shard::{Counter, Room, RuleNumber, Shard};
use super::slot::Pressure;
use crate::store::StoreError;

/// Where a counter of the check is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Which of the locked shards.
    shard: usize,
    /// Its slot there, if there is one.
    slot: Option<usize>,
}

/// Where the counters of a check are, until one is added or goes.
pub(super) type Places = SmallVec<[Place; INLINE]>;

/// One charge of a check on its way through the store.
pub(super) struct Part<'c> {
    counter: Counter,
    place: Place,
    case: Case<'c>,
}

impl<'c> AsRef<Case<'c>> for Part<'c> {
    #[inline]
    fn as_ref(&self) -> &Case<'c> {
        &self.case
    }
}

impl<'c> AsMut<Case<'c>> for Part<'c> {
    #[inline]
    fn as_mut(&mut self) -> &mut Case<'c> {
        &mut self.case
    }
}

/// The locked shards of one check.
#[derive(Default)]
pub(super) struct Locked<'a> {
    shards: SmallVec<[(usize, Guard<'a, Shard>); INLINE]>,
    /// Exhausted counters that had to go to make room.
    exhausted: u64,
}

impl<'a> Locked<'a> {
    /// Adds a shard; they come in ascending order.
    pub(super) fn push(&mut self, index: usize, shard: Guard<'a, Shard>) {
        self.shards.push((index, shard));
    }

    pub(super) fn of(&mut self, fingerprint: Fingerprint) -> &mut Shard {
        let shard = self.position(fingerprint);
        &mut self.shards[shard].1
    }

    #[inline]
    fn position(&self, fingerprint: Fingerprint) -> usize {
        let index = shard_index(fingerprint);
        let position = self.shards.iter().position(|(locked, _)| *locked == index);
        position.expect("every shard of the check is locked")
    }

    /// Finds counters.
    #[inline]
    pub(super) fn places(&self, counters: &[Counter]) -> Places {
        let places = counters.iter().map(|Counter { fingerprint, .. }| {
            let shard = self.position(*fingerprint);
            Place { shard, slot: self.shards[shard].1.find(*fingerprint) }
        });
        places.collect()
    }

    /// Whether counters are there that all say something.
    #[inline]
    pub(super) fn are_live(&self, places: &[Place], now: Timestamp) -> bool {
        let is_live = |place: &Place| {
            place.slot.is_some_and(|slot| self.shards[place.shard].1.is_live(slot, now.as_micros()))
        };
        places.iter().all(is_live)
    }

    /// What it took to make room so far, where there was any.
    pub(super) const fn room(&self) -> Room {
        if self.exhausted > 0 { Room::AtTheExpenseOf(self.exhausted) } else { Room::Found }
    }

    /// Makes room for those of the counters to be `written` that are new, at the expense of
    /// none of the check's `own`; says whether it could.
    pub(super) fn make_room(&mut self, written: &[Counter], own: &[Counter], now: Timestamp) -> bool {
        for (index, shard) in &mut self.shards {
            if shard.has_room_for(written.len()) {
                continue;
            }
            let is_here = |counter: &&Counter| shard_index(counter.fingerprint) == *index;
            let is_new = |counter: &&Counter| shard.find(counter.fingerprint).is_none();
            let new = written.iter().filter(is_here).filter(is_new).map(|counter| counter.rule);
            let new: SmallVec<[RuleNumber; INLINE]> = new.collect();
            let kept = own.iter().filter(is_here).filter(|counter| !is_new(counter)).count();
            // A check that the shard could never hold pushes nothing out.
            if new.is_empty() {
                continue;
            }
            if !shard.can_hold(kept + new.len()) {
                return false;
            }
            let is_own = |other| own.iter().any(|counter| counter.fingerprint == other);
            match shard.make_room(&new, now.as_micros(), is_own) {
                Room::None => return false,
                Room::Found => {}
                Room::AtTheExpenseOf(exhausted) => self.exhausted += exhausted,
            }
        }
        true
    }

    /// Reads the counter of a charge. A state that grows is taken out.
    #[inline]
    pub(super) fn part<'c>(
        &mut self,
        counter: Counter,
        place: Place,
        charge: &'c Charge<'c>,
        resolved: Option<(Quota, Level)>,
    ) -> Part<'c> {
        let algorithm = charge.quota().algorithm();
        let state = match place.slot {
            Some(slot) => self.shards[place.shard].1.take(slot, algorithm),
            None => State::vacant(algorithm),
        };
        Part { counter, place, case: Case::new(charge, resolved, state) }
    }

    /// Writes the counters of a judged check: first those that are there, then
    /// the new ones, which may move the others.
    pub(super) fn write_back(
        &mut self,
        parts: &mut [Part<'_>],
        decision: &Decision,
        now: Timestamp,
        peek: bool,
    ) {
        let mut any_new = false;
        for (part, verdict) in parts.iter_mut().zip(decision.verdicts()) {
            let Some(slot) = part.place.slot else {
                any_new |= verdict.receipt().is_some();
                continue;
            };
            let state = part.case.take_state();
            let shard = &mut self.shards[part.place.shard].1;
            if peek { shard.put_back(slot, state) } else { shard.put(slot, state, Pressure::of(verdict)) }
        }
        if !any_new {
            return;
        }
        for (part, verdict) in parts.iter_mut().zip(decision.verdicts()) {
            if part.place.slot.is_none() && verdict.receipt().is_some() {
                let (state, pressure) = (part.case.take_state(), Pressure::of(verdict));
                self.of(part.counter.fingerprint).insert(part.counter, state, pressure, now.as_micros());
            }
        }
    }

    /// Refuses a window too many of a key.
    ///
    /// `has_window` says whether the counter at an index has a window of its own.
    pub(super) fn has_windows_for(
        &mut self,
        counters: &[Counter],
        windowed: impl Fn(usize) -> Option<Algorithm>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        for (index, Counter { fingerprint, .. }) in counters.iter().enumerate() {
            let (shard, now) = (self.of(*fingerprint), now.as_micros());
            let is_live = shard.find(*fingerprint).is_some_and(|index| shard.is_live(index, now));
            let has_room = |algorithm| shard.has_window_for(*fingerprint, algorithm, now);
            if !is_live && !windowed(index).is_none_or(has_room) {
                return Err(too_many_windows().into());
            }
        }
        Ok(())
    }

    /// Makes sure there is a counter, unless the check's own do not fit together.
    pub(super) fn ensure(&mut self, own: &[Counter], counter: Counter, quota: &Quota, now: Timestamp) {
        let missing = self.of(counter.fingerprint).find(counter.fingerprint).is_none();
        if missing && self.make_room(&[counter], own, now) {
            let (vacant, pressure) =
                (State::vacant(quota.algorithm()), Pressure::left(quota.capacity(), quota));
            self.of(counter.fingerprint).insert(counter, vacant, pressure, now.as_micros());
        }
    }

    /// Changes a counter that exists; one that does not has nothing to change.
    pub(super) fn update(
        &mut self,
        fingerprint: Fingerprint,
        quota: &Quota,
        now: Timestamp,
        change: impl FnOnce(&mut State),
    ) {
        let shard = self.of(fingerprint);
        let Some(index) = shard.find(fingerprint) else { return };
        let mut state = shard.take(index, quota.algorithm());
        change(&mut state);
        let status = state.status(quota, state.instant(now.as_micros()));
        shard.put(index, state, Pressure::left(status.remaining, quota));
    }
}

/// Which shard a counter is in.
#[inline]
pub(super) fn shard_index(fingerprint: Fingerprint) -> usize {
    (fingerprint.high >> 56) as usize
}

/// The only want of room for counters that there is: others go for a new one, but not those of the same check.
#[cold]
pub(super) fn full() -> StoreError {
    StoreError::capacity(
        "the memory store has no room for the counters of this check together; raise its max_keys",
    )
}
