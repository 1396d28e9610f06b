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
use crate::quota::{Algorithm, Quota, WINDOWS_MAX, too_many_windows};
use crate::time::Timestamp;

/// The name's number, subject, algorithm, [window](Quota::window_number) and whether it is with the
/// [long](Charge::is_long) ones; without a name, the counter of a [shared scope](Charge::shared_scope). That and the
/// gate of a penalty have one counter for all windows: 0 stands for them. Logs and leases have the window of the rule
/// or plan.
type Counter = (Option<u64>, Box<[u8]>, Algorithm, u64, bool);
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

/// The counter of a charge under the quota in force.
fn counter(charge: &Charge<'_>, quota: &Quota) -> Counter {
    let key = charge.key();
    let name = charge.shared_scope().is_none().then(|| key.scope_id());
    (name, key.subject().into(), quota.algorithm(), charge.window_number(quota), charge.is_long())
}

/// Whether a counter is that of a key in any window, or the shared one that it may stand for.
fn is_of(id: &Counter, key: Key<'_>, algorithm: Algorithm) -> bool {
    let is_named = id.0.is_none_or(|name| name == key.scope_id());
    is_named && *id.1 == *key.subject() && id.2 == algorithm
}

fn override_id(scope: OverrideScope<'_>) -> OverrideId {
    (scope.endpoint().into(), scope.organisation_id().into(), scope.project_id().map(Into::into))
}

impl Model {
    /// Judges a check.
    ///
    /// # Errors
    /// If it would count a key in a window too many.
    pub fn check(&mut self, check: &Check<'_>, now: Timestamp) -> Result<Decision, InvalidInput> {
        let mut cases = Vec::new();
        let mut ids = Vec::new();
        for charge in check.charges() {
            let terms = resolve(charge, now, |scope| self.overrides.get(&override_id(scope)));
            let id = counter(charge, &terms.0);
            let known = self.counters.get(&id).cloned();
            cases.push(Case::new(charge, Some(terms), known.unwrap_or_else(|| State::vacant(id.2))));
            ids.push(id);
        }
        self.has_room_for(&ids, now)?;
        let mut decision = Decision::default();
        let mut penalties: Vec<PenaltyCase<'_>> =
            check.penalties().iter().map(|penalty| self.penalty_case(penalty)).collect();
        judge_penal(&mut cases, &mut penalties, now, check.is_peek(), &mut decision);
        if !check.is_peek() {
            for (id, case) in ids.into_iter().zip(&mut cases) {
                self.counters.insert(id, case.take_state());
            }
            penalties.iter().for_each(|case| self.penalise(case, &mut decision));
        }
        decision.set_counters(check.charges().iter().map(|charge| charge.key().digest()));
        Ok(decision)
    }

    /// Refuses a window too many of a quota and key, in which something counts or would. What keeps all that came
    /// is kept apart under each algorithm, the rest together.
    fn has_room_for(&self, ids: &[Counter], now: Timestamp) -> Result<(), InvalidInput> {
        let is_live =
            |id: &Counter| self.counters.get(id).is_some_and(|state| state.expires_at() > now.as_micros());
        for id in ids.iter().filter(|id| id.3 > 0 && !is_live(id)) {
            // Logs are kept apart from leases, and both from the rest.
            let is_beside = |other: &Counter| other.2 == id.2 || !(other.2.keeps_all() || id.2.keeps_all());
            let same =
                |other: &&Counter| (other.0, &other.1, other.4) == (id.0, &id.1, id.4) && is_beside(other);
            let live = self.counters.keys().filter(same).filter(|other| other.3 > 0 && is_live(other));
            if live.count() >= WINDOWS_MAX {
                return Err(too_many_windows());
            }
        }
        Ok(())
    }

    fn penalty_case<'c>(&self, penalty: &'c Penalty<'c>) -> PenaltyCase<'c> {
        PenaltyCase::new(
            penalty,
            penalty.counters().map(|(key, quota, window)| {
                let algorithm = quota.algorithm();
                let id = (Some(key.scope_id()), key.subject().into(), algorithm, window, false);
                self.counters.get(&id).cloned().unwrap_or_else(|| State::vacant(algorithm))
            }),
        )
    }

    /// Writes what a decision means for a penalty.
    fn penalise(&mut self, case: &PenaltyCase<'_>, decision: &mut Decision) {
        let strike = case.strike(decision);
        strike.iter().for_each(|strike| decision.struck(case, strike));
        for ((key, quota, window), change) in case.penalty().counters().zip(case.changes(strike.as_ref())) {
            let id = (Some(key.scope_id()), key.subject().into(), quota.algorithm(), window, false);
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
                let mut decision = self.check(check, now)?;
                if reservation.held_for().is_some() {
                    decision.set_held();
                }
                let held = check.charges().iter().zip(decision.verdicts());
                let held = held.filter_map(|(charge, verdict)| {
                    Held::new(counter(charge, verdict.quota()), charge, verdict)
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
        let counter = counter(&back.charge_made(), quota);
        let Some(state) = self.counters.get_mut(&counter) else { return 0 };
        let (before, units) = match back.note {
            Some(note) if note.until <= now => (0, 0),
            Some(note) => {
                let given = self.given_back.get(&(counter.clone(), note.nonce)).copied().unwrap_or(0);
                (given, back.units.min(note.cost.saturating_sub(given)))
            }
            None => (0, back.units),
        };
        let now = state.instant(now);
        let given = state.refund(quota, now, units, back.receipt.less(before, quota));
        if let Some(note) = back.note.filter(|_| given > 0) {
            *self.given_back.entry((counter, note.nonce)).or_default() += given;
        }
        given
    }

    /// Forgets a counter in all its windows, and the shared one that the key may stand for. Says whether
    /// something counted in it.
    pub fn reset(&mut self, key: Key<'_>, algorithm: Algorithm, now: Timestamp) -> bool {
        let mut counted = false;
        self.counters.retain(|id, state| {
            let is_one = is_of(id, key, algorithm);
            counted |= is_one && state.expires_at() > now.as_micros();
            !is_one
        });
        counted
    }

    /// Whether [`Model::reset`] would forget a state that says nothing any more: a store may have
    /// forgotten it already.
    #[must_use]
    pub fn has_expired(&self, key: Key<'_>, algorithm: Algorithm, now: Timestamp) -> bool {
        let is_over = |state: &State| state.expires_at() <= now.as_micros();
        self.counters.iter().any(|(id, state)| is_of(id, key, algorithm) && is_over(state))
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
