//! The whole decision contract over a plain map: the reference.
//!
//! Slow and simple on purpose. Every store is compared with it over random
//! histories, and the vectors run on it first.

use std::collections::HashMap;

use crate::algorithm::State;
use crate::check::{Charge, Check};
use crate::decision::{Decision, GiveBack};
use crate::error::InvalidInput;
use crate::judge::Case;
use crate::key::Key;
use crate::ledger::{Begin, Held, Ledger, Reservation, Settled};
use crate::overrides::{Override, OverrideScope, resolve};
use crate::penalty::{CounterChange, Penalty, PenaltyCase, judge_penal};
use crate::quota::Algorithm;
use crate::time::Timestamp;

/// The name's number, subject and algorithm; without a name, the counter of a
/// [shared scope](Charge::shared_scope).
type Counter = (Option<u64>, Box<[u8]>, Algorithm);
type OverrideId = (String, String, Option<String>);

/// A rate limiter without threads, bounds or speed.
#[derive(Debug, Default)]
pub struct Model {
    counters: HashMap<Counter, State>,
    overrides: HashMap<OverrideId, Override>,
    ledger: Ledger<Counter>,
    /// Units that were given back under the numbers of receipts.
    given_back: HashMap<(Counter, u64), u32>,
}

fn counter(charge: &Charge<'_>, algorithm: Algorithm) -> Counter {
    let key = charge.key();
    let name = charge.shared_scope().is_none().then(|| key.scope_id());
    (name, key.subject().into(), algorithm)
}

fn override_id(scope: OverrideScope<'_>) -> OverrideId {
    (scope.endpoint().into(), scope.organisation_id().into(), scope.project_id().map(Into::into))
}

impl Model {
    /// Judges a check.
    pub fn check(&mut self, check: &Check<'_>, now: Timestamp) -> Decision {
        let mut cases = Vec::new();
        for charge in check.charges() {
            let terms = resolve(charge, now, |scope| self.overrides.get(&override_id(scope)));
            let algorithm = charge.quota().algorithm();
            let known = self.counters.get(&counter(charge, algorithm)).cloned();
            cases.push(Case::new(charge, Some(terms), known.unwrap_or_else(|| State::vacant(algorithm))));
        }
        let mut decision = Decision::default();
        let mut penalties: Vec<PenaltyCase<'_>> =
            check.penalties().iter().map(|penalty| self.penalty_case(penalty)).collect();
        judge_penal(&mut cases, &mut penalties, now, check.is_peek(), &mut decision);
        if !check.is_peek() {
            for (charge, case) in check.charges().iter().zip(&mut cases) {
                let id = counter(charge, charge.quota().algorithm());
                self.counters.insert(id, case.take_state());
            }
            penalties.iter().for_each(|case| self.penalise(case, &mut decision));
        }
        decision.set_counters(check.charges().iter().map(|charge| charge.key().digest()));
        decision
    }

    fn penalty_case<'c>(&self, penalty: &'c Penalty<'c>) -> PenaltyCase<'c> {
        PenaltyCase::new(
            penalty,
            penalty.counters().map(|(key, quota)| {
                let algorithm = quota.algorithm();
                let known = self.counters.get(&(Some(key.scope_id()), key.subject().into(), algorithm));
                known.cloned().unwrap_or_else(|| State::vacant(algorithm))
            }),
        )
    }

    /// Writes what a decision means for a penalty.
    fn penalise(&mut self, case: &PenaltyCase<'_>, decision: &mut Decision) {
        let strike = case.strike(decision);
        strike.iter().for_each(|strike| decision.struck(case, strike));
        for ((key, quota), change) in case.penalty().counters().zip(case.changes(strike.as_ref())) {
            let id = (Some(key.scope_id()), key.subject().into(), quota.algorithm());
            match change {
                CounterChange::Keep => None,
                CounterChange::Write(state) => self.counters.insert(id, state),
                CounterChange::Forget => self.counters.remove(&id),
            };
        }
    }

    /// Judges a check under an idempotency id, perhaps as a reservation.
    ///
    /// # Errors
    /// If the id was used for another check.
    pub fn reserve(
        &mut self,
        check: &Check<'_>,
        reservation: &Reservation<'_>,
        now: Timestamp,
    ) -> Result<Decision, InvalidInput> {
        match self.ledger.begin(reservation, check, now)? {
            Begin::Repeat(decision) => Ok(*decision),
            Begin::New | Begin::Full => {
                let decision = self.check(check, now);
                let held = check.charges().iter().zip(decision.verdicts());
                let held = held.filter_map(|(charge, verdict)| {
                    Held::new(counter(charge, charge.quota().algorithm()), charge, verdict)
                });
                self.ledger.record(reservation, check, &decision, held.collect());
                Ok(decision)
            }
        }
    }

    /// Settles a reservation at `actual` units, or cancels it with `None`.
    pub fn settle(&mut self, id: &[u8], actual: Option<u32>, now: Timestamp) -> Settled {
        match self.ledger.close(id, now) {
            Err(answer) => answer,
            Ok(held) => {
                for charge in held {
                    if charge.adds(actual) {
                        let vacant = State::vacant(charge.counter.2);
                        self.counters.entry(charge.counter.clone()).or_insert(vacant);
                    }
                    if let Some(state) = self.counters.get_mut(&charge.counter) {
                        charge.settle(state, now, actual);
                    }
                }
                Settled::Done
            }
        }
    }

    /// Gives up to `units` of each charge of an admitted check back; says how many in all.
    pub fn refund(&mut self, check: &Check<'_>, decision: &Decision, units: u32, now: Timestamp) -> u64 {
        let charges = decision.given_back_to(check, units, |charge| charge.key().digest());
        charges.map(|back| u64::from(self.give_back(&back, now.as_micros()))).sum()
    }

    fn give_back(&mut self, back: &GiveBack<'_, '_>, now: u64) -> u32 {
        let quota = back.verdict.quota();
        let counter = counter(back.charge, quota.algorithm());
        let Some(state) = self.counters.get_mut(&counter) else { return 0 };
        let units = match back.note {
            Some(note) if note.until <= now => 0,
            Some(note) => {
                let given = self.given_back.get(&(counter.clone(), note.nonce)).copied().unwrap_or(0);
                back.units.min(note.cost.saturating_sub(given))
            }
            None => back.units,
        };
        let now = state.instant(now);
        if units == 0 || !state.refund(quota, now, units, back.receipt) {
            return 0;
        }
        if let Some(note) = back.note {
            *self.given_back.entry((counter, note.nonce)).or_default() += units;
        }
        units
    }

    /// Forgets a counter, and the shared one that the key may stand for.
    pub fn reset(&mut self, key: Key<'_>, algorithm: Algorithm) {
        for name in [Some(key.scope_id()), None] {
            self.counters.remove(&(name, key.subject().into(), algorithm));
        }
    }

    /// Sets an override, or removes it with `None`.
    ///
    /// # Errors
    /// If the override could be valid for no quota.
    pub fn set_override(
        &mut self,
        scope: OverrideScope<'_>,
        to: Option<Override>,
    ) -> Result<(), InvalidInput> {
        match to {
            Some(found) => {
                found.validate()?;
                self.overrides.insert(override_id(scope), found);
            }
            None => {
                self.overrides.remove(&override_id(scope));
            }
        }
        Ok(())
    }
}
