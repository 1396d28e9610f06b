//! The decision itself: all charges of a check at one instant, all or nothing.
//!
//! Stores bring the states and the quotas in force, hold whatever locks they
//! need, and write back what comes out. Nothing here knows where states live.

use smallvec::SmallVec;

use crate::algorithm::{Attempt, Counter, State, Status, each, instant_of};
use crate::check::{Charge, Emergency, Level};
use crate::decision::{Decision, Origin, Outcome, Verdict};
use crate::quota::Quota;
use crate::time::{Timestamp, Wait};

/// A charge with the quota in force and the state it will be judged on.
#[derive(Debug)]
pub struct Case<'s, 'c> {
    charge: &'s Charge<'c>,
    quota: &'s Quota,
    level: Level,
    state: &'s mut State,
}

impl<'s, 'c> Case<'s, 'c> {
    /// `charge` under `quota`, which `level` set, on `state`.
    #[inline]
    pub fn new(charge: &'s Charge<'c>, quota: &'s Quota, level: Level, state: &'s mut State) -> Self {
        Self { charge, quota, level, state }
    }
}

/// Judges a check of a single charge: what most checks are.
///
/// The answer is written over `decision`, so a caller that keeps it pays for
/// no copy. With `peek` the state comes back as it went in; otherwise it may
/// have been healed even if the check is denied, and the caller writes it back.
#[inline]
pub fn judge_one(case: Case<'_, '_>, now: Timestamp, peek: bool, decision: &mut Decision) {
    let Case { charge, quota, level, state } = case;
    each!(state, counter => {
        let now = instant_of(counter, now.as_micros());
        if counter.is_unwell(quota, now) || charge.emergency != Emergency::Off {
            return judge_many(&mut [Case { charge, quota, level, state }], now, peek, decision);
        }
        let commit = charge.cost > 0 && !peek;
        let attempt = counter.attempt(quota, now, charge.cost.max(1), commit);
        begin(decision, now);
        if charge.can_deny() {
            decision.proceed_after = attempt.proceed_after;
            if !attempt.wait.is_none() {
                decision.outcome = Outcome::Deny;
                decision.retry_after = attempt.wait;
            }
        }
        // Over the verdict of the decision before, where there is one: in place
        // is cheaper than built and moved.
        if let [verdict] = decision.verdicts.as_mut_slice() {
            *verdict = verdict_of(charge, quota, level, &attempt);
        } else {
            decision.verdicts.clear();
            decision.verdicts.push(verdict_of(charge, quota, level, &attempt));
        }
    });
}

/// Judges `cases` together at `now` and charges all of them or none; for the
/// rest see [`judge_one`].
pub fn judge(cases: &mut [Case<'_, '_>], now: Timestamp, peek: bool, decision: &mut Decision) {
    let now = shared_instant(cases, now.as_micros());
    if peek || !charge_all(cases, now, decision) {
        judge_many(cases, now, peek, decision);
    }
}

/// One instant for all: the newest any of the states has seen.
///
/// A state too far ahead of the clock does not count, but one that is not may
/// bring the others within reach; so ask until nobody objects.
fn shared_instant(cases: &[Case<'_, '_>], server_now: u64) -> u64 {
    let mut now = server_now;
    loop {
        let newest = cases.iter().map(|case| case.state.instant(now)).max().unwrap_or(now);
        if newest == now {
            return now;
        }
        now = newest;
    }
}

/// Charges one after the other, hoping that all admit, which most checks do:
/// one pass instead of three. If one does not, or is out of the ordinary, puts
/// everything back and says so.
fn charge_all(cases: &mut [Case<'_, '_>], now: u64, decision: &mut Decision) -> bool {
    begin(decision, now);
    decision.verdicts.clear();
    let mut originals: SmallVec<[State; 4]> = SmallVec::new();
    for case in cases.iter_mut() {
        let Case { charge, quota, level, .. } = *case;
        let ordinary = charge.emergency == Emergency::Off && case.state.is_small();
        let attempt = ordinary.then(|| {
            originals.push(case.state.clone());
            each!(&mut *case.state, counter => {
                let well = !counter.is_unwell(quota, now);
                well.then(|| counter.attempt(quota, now, charge.cost.max(1), charge.cost > 0))
            })
        });
        match attempt.flatten() {
            Some(attempt) if attempt.wait.is_none() || !charge.can_deny() => {
                if charge.can_deny() {
                    decision.proceed_after = decision.proceed_after.max(attempt.proceed_after);
                }
                decision.verdicts.push(verdict_of(charge, quota, level, &attempt));
            }
            _ => {
                cases.iter_mut().zip(originals).for_each(|(case, original)| *case.state = original);
                return false;
            }
        }
    }
    true
}

fn judge_many(cases: &mut [Case<'_, '_>], now: u64, peek: bool, decision: &mut Decision) {
    if cases.iter().any(|case| case.state.is_unwell(case.quota, now)) {
        return judge_healed(cases, now, peek, decision);
    }
    judge_well(cases, now, peek, decision);
}

/// Heals what needs it, which is rare. After a peek, what was there before is
/// put back.
#[cold]
fn judge_healed(cases: &mut [Case<'_, '_>], now: u64, peek: bool, decision: &mut Decision) {
    let originals: Vec<State> = cases.iter().filter(|_| peek).map(|case| case.state.clone()).collect();
    for case in cases.iter_mut() {
        case.state.heal(case.quota, now);
    }
    judge_well(cases, now, peek, decision);
    for (case, original) in cases.iter_mut().zip(originals) {
        *case.state = original;
    }
}

fn judge_well(cases: &mut [Case<'_, '_>], now: u64, peek: bool, decision: &mut Decision) {
    begin(decision, now);
    decision.verdicts.clear();
    for case in cases.iter() {
        let charge = case.charge;
        let wait = ruling(charge, || case.state.wait(case.quota, now, charge.cost.max(1)));
        if charge.can_deny() && !wait.is_none() {
            decision.outcome = Outcome::Deny;
            decision.retry_after = decision.retry_after.max(wait);
        }
        let attempt = Attempt { wait, proceed_after: 0, status: Status::default(), receipt: None };
        decision.verdicts.push(verdict_of(charge, case.quota, case.level, &attempt));
    }
    let admitted = decision.outcome == Outcome::Allow;
    for (case, verdict) in cases.iter_mut().zip(&mut decision.verdicts) {
        let (quota, charge) = (case.quota, case.charge);
        let charged = admitted && is_chargeable(charge, verdict.retry_after);
        each!(&mut *case.state, counter => {
            if charged && charge.can_deny() {
                decision.proceed_after = decision.proceed_after.max(counter.proceed_after(quota, now));
            }
            if charged && !peek {
                verdict.set_receipt(counter.charge(quota, now, charge.cost));
            }
            verdict.set_status(counter.status(quota, now));
        });
    }
}

#[inline]
fn begin(decision: &mut Decision, now: u64) {
    decision.outcome = Outcome::Allow;
    decision.origin = Origin::Store;
    decision.at = Timestamp::from_micros(now);
    decision.retry_after = Wait::NONE;
    decision.proceed_after = 0;
}

/// What an operator's switch says, or the counter if it is off.
#[inline]
fn ruling(charge: &Charge<'_>, counted: impl FnOnce() -> Wait) -> Wait {
    match charge.emergency {
        Emergency::Off => counted(),
        Emergency::Lift => Wait::NONE,
        Emergency::Block => Wait::NEVER,
    }
}

/// Whether an admitted check charges this: shadow charges apply only if they
/// alone would admit, lifted ones not at all.
#[inline]
fn is_chargeable(charge: &Charge<'_>, wait: Wait) -> bool {
    charge.cost > 0 && wait.is_none() && charge.emergency == Emergency::Off
}

#[inline]
fn verdict_of(charge: &Charge<'_>, quota: &Quota, level: Level, attempt: &Attempt) -> Verdict {
    let receipt = attempt.receipt.unwrap_or_default();
    Verdict {
        name: charge.key.scope(),
        quota: *quota,
        reset_after: attempt.status.reset_after,
        retry_after: attempt.wait,
        receipt_at: receipt.at,
        receipt_detail: receipt.detail,
        remaining: attempt.status.remaining,
        cost: charge.cost,
        level: if charge.emergency == Emergency::Off { level } else { Level::Emergency },
        enforcement: charge.enforcement,
        charged: attempt.receipt.is_some(),
    }
}
