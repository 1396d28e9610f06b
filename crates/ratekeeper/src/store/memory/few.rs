//! The short way of a check of a few charges: their counters are in use and all of them admit.

use ratekeeper_core::{Charge, Decision, OneByOne, State, Timestamp};
use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::lock::Guard;
use super::locked::{Locked, shard_index};
use super::shard::{Counter, RuleNumber, Shard};
use super::slot::Pressure;
use super::{INLINE, MemoryStore};

/// What came of the short way.
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
pub(super) enum Few<'a> {
    /// Everything was charged.
    Charged,
    /// Something was out of the ordinary, and nothing has changed; the shards are still locked.
    Found(SmallVec<[Counter; INLINE]>, Locked<'a>),
    /// The check is not one of a few charges, each in a shard of its own.
    Many,
}

/// The shards of a few charges, in the order of the charges.
type Shards<'a> = [Option<Guard<'a, Shard>>; INLINE];

impl MemoryStore {
    /// Charges counters that are all in use, each in a shard of its own, if all of them admit: what most checks
    /// of a few charges come to.
    #[inline]
    pub(super) fn charge_few(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        decision: &mut Decision,
    ) -> Few<'_> {
        if charges.len() > INLINE || charges.iter().any(|charge| self.overrides.concern(charge)) {
            return Few::Many;
        }
        let mut order = [(0, 0); INLINE];
        let order = &mut order[..charges.len()];
        let mut fingerprints = [Fingerprint { high: 0, low: 0 }; INLINE];
        for (index, charge) in charges.iter().enumerate() {
            fingerprints[index] = self.fingerprint(charge, charge.quota());
            order[index] = (shard_index(fingerprints[index]), index);
            // The shards are locked in ascending order, as everywhere.
            let mut place = index;
            while place > 0 && order[place - 1] > order[place] {
                order.swap(place - 1, place);
                place -= 1;
            }
        }
        if order.windows(2).any(|two| two[0].0 == two[1].0) {
            return Few::Many;
        }
        let mut shards: Shards<'_> = [const { None }; INLINE];
        for (shard, index) in order.iter() {
            shards[*index] = Some(self.shards[*shard].0.lock());
        }
        if charge_all(charges, &fingerprints, &mut shards, now, decision) {
            return Few::Charged;
        }
        let mut locked = Locked::default();
        for (shard, index) in order.iter() {
            shards[*index].take().into_iter().for_each(|guard| locked.push(*shard, guard));
        }
        let counter = |(charge, fingerprint): (&Charge<'_>, Fingerprint)| Counter {
            fingerprint,
            rule: RuleNumber::of(charge.key()),
        };
        Few::Found(charges.iter().zip(fingerprints).map(counter).collect(), locked)
    }
}

/// Charges all of them on copies of their states and writes these, or changes nothing.
#[inline]
fn charge_all(
    charges: &[Charge<'_>],
    fingerprints: &[Fingerprint; INLINE],
    shards: &mut Shards<'_>,
    now: Timestamp,
    decision: &mut Decision,
) -> bool {
    let mut written: SmallVec<[(usize, State); INLINE]> = SmallVec::new();
    let mut one_by_one = OneByOne::new(now, charges.len(), decision);
    for ((charge, fingerprint), shard) in charges.iter().zip(fingerprints).zip(shards.iter().flatten()) {
        let in_use = shard.in_use(*fingerprint, charge.quota().algorithm(), now.as_micros());
        let Some((slot, mut state)) = in_use else { return false };
        if !one_by_one.charge(charge, (charge.quota(), charge.quota_level()), &mut state) {
            return false;
        }
        written.push((slot, state));
    }
    decision.set_counters(fingerprints.iter().map(|fingerprint| fingerprint.key()));
    let shards = shards.iter_mut().flatten();
    for (((slot, state), shard), verdict) in written.into_iter().zip(shards).zip(decision.verdicts()) {
        shard.put(slot, state, Pressure::of(verdict));
    }
    true
}
