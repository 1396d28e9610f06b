//! The decision itself: all charges of a check at one instant, all or nothing.
//!
//! Stores bring the states and the quotas in force, hold whatever locks they
//! need, and write back what comes out. Nothing here knows where states live.

use smallvec::SmallVec;

use crate::algorithm::{Attempt, Bucket, Counter, State, Status, TokenBucket, each, instant_of};
use crate::check::{Charge, Emergency, Level};
use crate::decision::{CounterNumber, Decision, GivenBack, Origin, Outcome, Verdict};
use crate::quota::{Algorithm, Quota};
use crate::time::{Timestamp, Wait};

/// A charge of a check with the quota in force and the state it is judged on.
///
/// Stores that keep more beside it implement `AsRef` and `AsMut` for what they
/// keep it in.
#[derive(Debug)]
pub struct Case<'c> {
    charge: &'c Charge<'c>,
    /// The quota in force, if overrides concern the charge.
    resolved: Option<(Quota, Level)>,
    state: State,
}

impl<'c> Case<'c> {
    /// `charge` on `state`, under the quota it carries or the `resolved` one.
    #[inline]
    pub const fn new(charge: &'c Charge<'c>, resolved: Option<(Quota, Level)>, state: State) -> Self {
        Self { charge, resolved, state }
    }

    /// The state, to be written back; a vacant one stays.
    #[inline]
    pub fn take_state(&mut self) -> State {
        const TAKEN: State =
            State::TokenBucket(TokenBucket(Bucket { full_at: 0, remainder: 0, denominator: 0, ahead: 0 }));
        std::mem::replace(&mut self.state, TAKEN)
    }

    #[inline]
    fn terms(&self) -> (&Quota, Level) {
        match &self.resolved {
            Some((quota, level)) => (quota, *level),
            None => (self.charge.quota, self.charge.level),
        }
    }

    #[inline]
    fn quota(&self) -> &Quota {
        self.terms().0
    }
}

impl<'c> AsRef<Case<'c>> for Case<'c> {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<'c> AsMut<Case<'c>> for Case<'c> {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// What [`judge`](judge()) judges: cases, or what stores keep them in.
pub trait AsCase<'c>: AsRef<Case<'c>> + AsMut<Case<'c>> {}

impl<'c, C: AsRef<Case<'c>> + AsMut<Case<'c>>> AsCase<'c> for C {}

/// Judges a check of a single charge: what most checks are.
///
/// The answer is written over `decision`, so a caller that keeps it pays for
/// no copy. With `peek` the state comes back as it went in; otherwise it may
/// have been healed even if the check is denied, and the caller writes it back.
#[inline]
pub fn judge_one(
    charge: &Charge<'_>,
    (quota, level): (&Quota, Level),
    state: &mut State,
    now: Timestamp,
    peek: bool,
    decision: &mut Decision,
) {
    each!(state, counter => {
        let now = instant_of(counter, now.as_micros());
        if counter.is_unwell(quota, now) || charge.emergency != Emergency::Off {
            return judge_odd(charge, (*quota, level), state, now, peek, decision);
        }
        let commit = charge.cost > 0 && !peek;
        let attempt = counter.attempt(quota, now, charge.cost.max(1), commit);
        if attempt.receipt.is_some() {
            counter.keep_for(charge.quota.window_micros());
        }
        answer(charge, (quota, level), now, &attempt, decision);
    });
}

/// Judges a check of a single charge if the quota has no room for it, whatever the charge makes of that, and says
/// whether it was so; otherwise nothing is judged.
///
/// Such a judgement changes no state, so a copy will do: for stores that can read a counter without keeping
/// others out. `state` is as it was afterwards.
#[inline]
pub fn judge_denied(
    charge: &Charge<'_>,
    (quota, level): (&Quota, Level),
    state: &mut State,
    now: Timestamp,
    decision: &mut Decision,
) -> bool {
    each!(state, counter => {
        let now = instant_of(counter, now.as_micros());
        if counter.is_unwell(quota, now) || charge.emergency != Emergency::Off {
            return false;
        }
        let attempt = counter.attempt(quota, now, charge.cost.max(1), false);
        if attempt.wait.is_none() {
            return false;
        }
        answer(charge, (quota, level), now, &attempt, decision);
        true
    })
}

/// Makes the decision of a single charge.
#[inline(always)] // Else its parts go through memory: the commonest decision of all.
fn answer(
    charge: &Charge<'_>,
    (quota, level): (&Quota, Level),
    now: u64,
    attempt: &Attempt,
    decision: &mut Decision,
) {
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
        *verdict = verdict_of(charge, quota, level, attempt);
    } else {
        decision.verdicts.clear();
        decision.verdicts.push(verdict_of(charge, quota, level, attempt));
    }
}

/// A single charge out of the ordinary.
#[cold]
fn judge_odd(
    charge: &Charge<'_>,
    terms: (Quota, Level),
    state: &mut State,
    now: u64,
    peek: bool,
    decision: &mut Decision,
) {
    let taken = std::mem::replace(state, State::vacant(Algorithm::TokenBucket));
    let mut case = [Case::new(charge, Some(terms), taken)];
    judge_many(&mut case, now, peek, Wait::NONE, decision);
    *state = case[0].take_state();
}

/// Judges `cases` together at `now` and charges all of them or none; for the
/// rest see [`judge_one`].
pub fn judge<'c>(cases: &mut [impl AsCase<'c>], now: Timestamp, peek: bool, decision: &mut Decision) {
    let now = shared_instant(now.as_micros(), |now| newest(cases, now));
    judge_vetoed(cases, now, peek, Wait::NONE, decision);
}

/// As [`judge`](judge()) at an instant that all agree on; denied for `veto` by something
/// that is no charge.
#[inline]
pub(crate) fn judge_vetoed<'c>(
    cases: &mut [impl AsCase<'c>],
    now: u64,
    peek: bool,
    veto: Wait,
    decision: &mut Decision,
) {
    if peek || !veto.is_none() || !charge_all(cases, now, decision) {
        judge_many(cases, now, peek, veto, decision);
    }
}

/// The newest instant that any of the states has seen, at least `now`.
#[inline]
pub(crate) fn newest<'c>(cases: &[impl AsCase<'c>], now: u64) -> u64 {
    cases.iter().map(|case| case.as_ref().state.instant(now)).max().unwrap_or(now)
}

/// One instant for all: the `newest` that any of the states has seen.
///
/// A state too far ahead of the clock does not count, but one that is not may
/// bring the others within reach; so ask until none objects.
#[inline]
pub(crate) fn shared_instant(server_now: u64, newest: impl Fn(u64) -> u64) -> u64 {
    let mut now = server_now;
    loop {
        let seen = newest(now);
        if seen == now {
            return now;
        }
        now = seen;
    }
}

/// Charges one after the other, hoping that all admit, which most checks do:
/// one pass instead of three. If one does not, or is out of the ordinary, puts
/// everything back and says so.
fn charge_all<'c>(cases: &mut [impl AsCase<'c>], now: u64, decision: &mut Decision) -> bool {
    let mut originals: SmallVec<[State; 4]> = SmallVec::new();
    let mut one_by_one = OneByOne::at(now, cases.len(), decision);
    for case in cases.iter_mut() {
        let Case { charge, resolved, state } = case.as_mut();
        let terms = match resolved {
            Some((quota, level)) => (&*quota, *level),
            None => (charge.quota, charge.level),
        };
        if !state.is_small() {
            put_back(cases, originals);
            return false;
        }
        originals.push(state.clone());
        if !one_by_one.charge(charge, terms, state) {
            put_back(cases, originals);
            return false;
        }
    }
    true
}

/// A check of several charges that are charged one by one, in the hope that all admit, which most checks do.
///
/// The states are the caller's, who writes them back only if every charge said yes. If one did not, the
/// states and the decision say nothing: the check is to be [judged](judge()) as a whole, on what was there before.
#[derive(Debug)]
pub struct OneByOne<'d> {
    now: u64,
    charged: usize,
    decision: &'d mut Decision,
}

impl<'d> OneByOne<'d> {
    /// A check of `charges` at `now`, whose decision is written over `decision`.
    #[inline]
    pub fn new(now: Timestamp, charges: usize, decision: &'d mut Decision) -> Self {
        Self::at(now.as_micros(), charges, decision)
    }

    #[inline]
    fn at(now: u64, charges: usize, decision: &'d mut Decision) -> Self {
        begin(decision, now);
        // Over the verdicts of the decision before, if there are as many.
        if decision.verdicts.len() != charges {
            decision.verdicts.clear();
        }
        Self { now, charged: 0, decision }
    }

    /// Charges the next one on its state under the quota in force; says whether it could. It cannot if the quota
    /// has no room, and if anything is out of the ordinary: a state that grows, a step of the clock, a switch.
    #[inline]
    pub fn charge(
        &mut self,
        charge: &Charge<'_>,
        (quota, level): (&Quota, Level),
        state: &mut State,
    ) -> bool {
        if charge.emergency != Emergency::Off || !state.is_small() {
            return false;
        }
        let (now, decision) = (self.now, &mut *self.decision);
        let attempt = each!(state, counter => {
            if instant_of(counter, now) != now || counter.is_unwell(quota, now) {
                return false;
            }
            counter.attempt(quota, now, charge.cost.max(1), charge.cost > 0)
        });
        if charge.can_deny() {
            if !attempt.wait.is_none() {
                return false;
            }
            decision.proceed_after = decision.proceed_after.max(attempt.proceed_after);
        }
        match decision.verdicts.get_mut(self.charged) {
            Some(verdict) => *verdict = verdict_of(charge, quota, level, &attempt),
            None => decision.verdicts.push(verdict_of(charge, quota, level, &attempt)),
        }
        self.charged += 1;
        true
    }
}

fn put_back<'c>(cases: &mut [impl AsCase<'c>], originals: impl IntoIterator<Item = State>) {
    for (case, original) in cases.iter_mut().zip(originals) {
        case.as_mut().state = original;
    }
}

fn judge_many<'c>(cases: &mut [impl AsCase<'c>], now: u64, peek: bool, veto: Wait, decision: &mut Decision) {
    let is_unwell = |case: &Case<'_>| case.state.is_unwell(case.quota(), now);
    if cases.iter().any(|case| is_unwell(case.as_ref())) {
        return judge_healed(cases, now, peek, veto, decision);
    }
    judge_well(cases, now, peek, veto, decision);
}

/// Heals what needs it, which is rare. After a peek, what was there before is
/// put back.
#[cold]
fn judge_healed<'c>(
    cases: &mut [impl AsCase<'c>],
    now: u64,
    peek: bool,
    veto: Wait,
    decision: &mut Decision,
) {
    let originals: Vec<State> =
        cases.iter().filter(|_| peek).map(|case| case.as_ref().state.clone()).collect();
    for case in cases.iter_mut() {
        let quota = *case.as_ref().quota();
        case.as_mut().state.heal(&quota, now);
    }
    judge_well(cases, now, peek, veto, decision);
    put_back(cases, originals);
}

fn judge_well<'c>(cases: &mut [impl AsCase<'c>], now: u64, peek: bool, veto: Wait, decision: &mut Decision) {
    begin(decision, now);
    decision.verdicts.clear();
    if !veto.is_none() {
        decision.outcome = Outcome::Deny;
        decision.retry_after = veto;
    }
    for case in cases.iter() {
        let case = case.as_ref();
        let (charge, (quota, level)) = (case.charge, case.terms());
        let wait = ruling(charge, || case.state.wait(quota, now, charge.cost.max(1)));
        if charge.can_deny() && !wait.is_none() {
            decision.outcome = Outcome::Deny;
            decision.retry_after = decision.retry_after.max(wait);
        }
        let attempt = Attempt { wait, proceed_after: 0, status: Status::default(), receipt: None };
        decision.verdicts.push(verdict_of(charge, quota, level, &attempt));
    }
    let admitted = decision.outcome == Outcome::Allow;
    for (case, verdict) in cases.iter_mut().zip(&mut decision.verdicts) {
        let Case { charge, state, .. } = case.as_mut();
        let quota = verdict.quota;
        let charged = admitted && is_chargeable(charge, verdict.retry_after);
        if charged && charge.can_deny() {
            decision.proceed_after = decision.proceed_after.max(state.proceed_after(&quota, now));
        }
        if charged && !peek {
            verdict.set_receipt(state.charge(&quota, now, charge.cost));
            state.keep_for(charge.quota.window_micros());
        }
        verdict.set_status(state.status(&quota, now));
    }
}

#[inline]
fn begin(decision: &mut Decision, now: u64) {
    decision.outcome = Outcome::Allow;
    decision.origin = Origin::Store;
    decision.at = Timestamp::from_micros(now);
    decision.retry_after = Wait::NONE;
    decision.proceed_after = 0;
    decision.tipped.clear();
    decision.shared.forget();
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
        held: false,
        index: charge.index,
        counter: CounterNumber::default(),
        given_back: GivenBack::default(),
        nonce: CounterNumber::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::name::Name;

    /// Stores put back what they looked at, so a peek must leave it as it was, also after a step of the clock.
    #[test]
    fn a_peek_leaves_a_state_that_needs_healing_as_it_was() {
        let (late, early) = (Timestamp::from_secs(1_000_000), Timestamp::from_secs(1_000));
        for algorithm in Algorithm::ALL {
            let quota = Quota::new(algorithm, 5, std::time::Duration::from_secs(60)).unwrap();
            let charge = Charge::new(Key::new(Name::new("healed").unwrap(), "ann").unwrap(), &quota);
            let (mut state, mut decision) = (State::vacant(algorithm), Decision::default());
            judge_one(&charge, (&quota, Level::Default), &mut state, late, false, &mut decision);
            let before = state.clone();
            judge_one(&charge, (&quota, Level::Default), &mut state, early, true, &mut decision);
            assert_eq!(state, before, "{algorithm}");
        }
    }
}
