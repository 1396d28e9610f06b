//! The shards of one check, locked together, and its charges on their way
//! through them.

use ratekeeper_core::{Case, Charge, Decision, Level, Quota, State, Timestamp};
use smallvec::SmallVec;

use super::INLINE;
use super::fingerprint::Fingerprint;
use super::lock::Guard;
use super::shard::Shard;
use super::slot::Pressure;
use crate::store::StoreError;

/// One charge of a check on its way through the store.
pub(super) struct Part<'c> {
    fingerprint: Fingerprint,
    /// Where its counter is, if there is one.
    place: Option<usize>,
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
pub(super) struct Locked<'a>(SmallVec<[(usize, Guard<'a, Shard>); INLINE]>);

impl<'a> Locked<'a> {
    /// Adds a shard; they come in ascending order.
    pub(super) fn push(&mut self, index: usize, shard: Guard<'a, Shard>) {
        self.0.push((index, shard));
    }

    pub(super) fn of(&mut self, fingerprint: Fingerprint) -> &mut Shard {
        let index = shard_index(fingerprint);
        let place = self.0.iter().position(|(locked, _)| *locked == index);
        &mut self.0[place.expect("every shard of the check is locked")].1
    }

    /// Makes room for those of the counters to be `written` that are new, at the expense of
    /// none of the check's `own`; says whether it could.
    pub(super) fn make_room(&mut self, written: &[Fingerprint], own: &[Fingerprint], now: Timestamp) -> bool {
        for (index, shard) in &mut self.0 {
            if shard.has_room_for(written.len()) {
                continue;
            }
            let here = written.iter().filter(|counter| shard_index(**counter) == *index);
            let needed = here.filter(|counter| shard.find(**counter).is_none()).count();
            if needed > 0 && !shard.make_room(needed, now.as_micros(), |other| own.contains(&other)) {
                return false;
            }
        }
        true
    }

    /// Reads the counter of a charge. A state that grows is taken out.
    #[inline]
    pub(super) fn part<'c>(
        &mut self,
        fingerprint: Fingerprint,
        charge: &'c Charge<'c>,
        resolved: Option<(Quota, Level)>,
    ) -> Part<'c> {
        let (shard, algorithm) = (self.of(fingerprint), charge.quota().algorithm());
        let place = shard.find(fingerprint);
        let state = match place {
            Some(place) => shard.take(place, algorithm),
            None => State::vacant(algorithm),
        };
        Part { fingerprint, place, case: Case::new(charge, resolved, state) }
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
            let Some(place) = part.place else {
                any_new |= verdict.receipt().is_some();
                continue;
            };
            let state = part.case.take_state();
            let shard = self.of(part.fingerprint);
            if peek { shard.put_back(place, state) } else { shard.put(place, state, Pressure::of(verdict)) }
        }
        if !any_new {
            return;
        }
        for (part, verdict) in parts.iter_mut().zip(decision.verdicts()) {
            if part.place.is_none() && verdict.receipt().is_some() {
                let (state, pressure) = (part.case.take_state(), Pressure::of(verdict));
                self.of(part.fingerprint).insert(part.fingerprint, state, pressure, now.as_micros());
            }
        }
    }

    /// Makes sure there is a counter, unless the store is full.
    pub(super) fn ensure(
        &mut self,
        own: &[Fingerprint],
        fingerprint: Fingerprint,
        quota: &Quota,
        now: Timestamp,
    ) {
        let shard = self.of(fingerprint);
        let missing = shard.find(fingerprint).is_none();
        if missing && shard.make_room(1, now.as_micros(), |other| own.contains(&other)) {
            let vacant = State::vacant(quota.algorithm());
            shard.insert(fingerprint, vacant, Pressure::left(quota.capacity(), quota), now.as_micros());
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

#[cold]
pub(super) fn full() -> StoreError {
    StoreError::capacity(
        "the memory store is full, and no counter nearby can go without letting somebody off; raise its max_keys",
    )
}
