//! The decision of a check: which shards to lock, in which order, and what is written back.

use ratekeeper_core::{
    Algorithm, Charge, Check, Decision, Level, Quota, State, Timestamp, judge, judge_denied, judge_one,
    resolve, too_many_windows,
};
use smallvec::SmallVec;

use super::few::Few;
use super::locked::{Locked, Part, full, shard_index};
use super::shard::{Counter, Room, RuleNumber};
use super::slot::Pressure;
use super::{INLINE, MemoryStore, Resolved, SHARDS};
use crate::store::{StoreError, StoreErrorKind};

/// The algorithm of a charge that has a counter for its window alone under the quota in force.
pub(super) fn windowed(charge: &Charge<'_>, resolved: Option<&(Quota, Level)>) -> Option<Algorithm> {
    let quota = resolved.map_or(charge.quota(), |(quota, _)| quota);
    (charge.window_number(quota) > 0).then(|| quota.algorithm())
}

impl MemoryStore {
    #[inline]
    pub(super) fn decide_into(&self, check: &Check<'_>, decision: &mut Decision) -> Result<(), StoreError> {
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
    pub(super) fn decide_one(
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
            decision.set_counters([fingerprint.key()]);
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
            decision.set_counters([fingerprint.key()]);
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
        decision.set_counters([fingerprint.key()]);
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
        decision.set_counters(counters.iter().map(|counter| counter.fingerprint.key()));
        shards.write_back(&mut parts, decision, now, peek);
        match has_room {
            true => Ok(shards.room()),
            false if decision.is_allowed() => Err(full()),
            false => Ok(Room::None),
        }
    }

    /// Locks the shards of all `counters`, each once, in ascending order:
    /// two checks that share shards can never wait for each other in a ring.
    pub(super) fn lock_all(&self, counters: &[Counter]) -> Locked<'_> {
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
}
