//! Checks with penalties: their counters are locked together with those of the
//! charges, so a strike and the gate that it shuts are one step with the denial.

use ratekeeper_core::{
    Check, CounterChange, Decision, Penalty, PenaltyCase, Quota, State, Timestamp, judge_penal,
};
use smallvec::SmallVec;

use super::decide::windowed;
use super::fingerprint::Window;
use super::locked::{Locked, Part, full};
use super::shard::{Counter, Room, RuleNumber};
use super::slot::Pressure;
use super::{INLINE, MemoryStore};
use crate::store::StoreError;

/// The counters of a penalty, in the order of [`Penalty::counters`].
type Counters<'c> = SmallVec<[(Counter, &'c Quota); 3]>;

impl MemoryStore {
    /// Judges a check with penalties.
    #[inline(never)]
    pub(super) fn decide_penal<'c>(
        &self,
        check: &Check<'c>,
        now: Timestamp,
        decision: &mut Decision,
    ) -> Result<Room, StoreError> {
        let (charges, peek) = (check.charges(), check.is_peek());
        let counters: Vec<Counters<'c>> =
            check.penalties().iter().map(|penalty| self.counters_of(penalty)).collect();
        let resolved = self.resolved(charges, now);
        let mut own: Vec<Counter> = self.counters(charges, &resolved).to_vec();
        own.extend(counters.iter().flatten().map(|(counter, _)| counter));
        let charged = &own[..charges.len()];
        let mut shards = self.lock_all(&own);
        let windowed = |index: usize| windowed(&charges[index], resolved.get(index));
        shards.has_windows_for(charged, windowed, now)?;
        // Without room for what is new, what is there can still deny.
        let has_room = peek || shards.make_room(charged, &own, now);
        let mut parts: SmallVec<[Part<'_>; INLINE]> = SmallVec::new();
        let places = shards.places(charged);
        for (index, (charge, place)) in charges.iter().zip(places).enumerate() {
            parts.push(shards.part(charged[index], place, charge, resolved.get(index).copied()));
        }
        let pairs = check.penalties().iter().zip(&counters);
        let mut cases: Vec<PenaltyCase<'_>> =
            pairs.map(|(penalty, counters)| shards.case(penalty, counters)).collect();
        judge_penal(&mut parts, &mut cases, now, peek || !has_room, decision);
        decision.set_counters(charged.iter().map(|counter| counter.fingerprint.key()));
        shards.write_back(&mut parts, decision, now, peek || !has_room);
        if !has_room && decision.is_allowed() {
            return Err(full());
        }
        if peek {
            return Ok(Room::Found);
        }
        for (case, counters) in cases.iter().zip(&counters) {
            if !shards.penalise(case, counters, &own, now, decision) {
                // The denial stands; that it was not counted is told as any want of room.
                self.fullness.refused(now, &full());
            }
        }
        Ok(if has_room { shards.room() } else { Room::None })
    }

    fn counters_of<'c>(&self, penalty: &Penalty<'c>) -> Counters<'c> {
        let counters = penalty.counters();
        let counter = |(key, quota, window): (_, &'c Quota, _)| {
            let fingerprint = self.fingerprinter.counter(key, quota.algorithm(), Window::short(window));
            (Counter { fingerprint, rule: RuleNumber::of(key) }, quota)
        };
        counters.map(counter).collect()
    }
}

impl Locked<'_> {
    /// A penalty with the states of its counters.
    fn case<'c>(&mut self, penalty: &'c Penalty<'c>, counters: &Counters<'_>) -> PenaltyCase<'c> {
        let states = counters.iter().map(|(Counter { fingerprint, .. }, quota)| {
            let (shard, algorithm) = (self.of(*fingerprint), quota.algorithm());
            let place = shard.find(*fingerprint);
            place.map_or_else(|| State::vacant(algorithm), |place| shard.take(place, algorithm))
        });
        PenaltyCase::new(penalty, states)
    }

    /// Writes what a decision means for a penalty. If there is no room for that, the decision
    /// is no strike; says whether there was.
    fn penalise(
        &mut self,
        case: &PenaltyCase<'_>,
        counters: &Counters<'_>,
        own: &[Counter],
        now: Timestamp,
        decision: &mut Decision,
    ) -> bool {
        let strike = case.strike(decision);
        let changes = case.changes(strike.as_ref());
        let written = counters.iter().zip(&changes).filter_map(|((counter, _), change)| {
            matches!(change, CounterChange::Write(_)).then_some(*counter)
        });
        let written: SmallVec<[Counter; 3]> = written.collect();
        let has_room = self.make_room(&written, own, now);
        let changes = if has_room { changes } else { case.changes(None) };
        for ((counter, quota), change) in counters.iter().zip(changes) {
            self.change(*counter, quota, change, now);
        }
        if let Some(strike) = strike.filter(|_| has_room) {
            decision.struck(case, &strike);
        }
        has_room
    }

    fn change(&mut self, counter: Counter, quota: &Quota, change: CounterChange, now: Timestamp) {
        let shard = self.of(counter.fingerprint);
        let place = shard.find(counter.fingerprint);
        match change {
            CounterChange::Keep => {}
            CounterChange::Forget => place.into_iter().for_each(|place| shard.remove(place)),
            CounterChange::Write(state) => {
                let status = state.status(quota, state.instant(now.as_micros()));
                let pressure = Pressure::left(status.remaining, quota);
                match place {
                    Some(place) => shard.put(place, state, pressure),
                    None => shard.insert(counter, state, pressure, now.as_micros()),
                }
            }
        }
    }
}
