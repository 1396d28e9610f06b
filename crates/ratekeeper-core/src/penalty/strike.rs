//! What becomes of the counters of a penalty, as pure functions.

use crate::algorithm::State;
use crate::check::{Enforcement, Level};
use crate::decision::{Decision, Outcome, Verdict};
use crate::judge::{AsCase, judge_vetoed, newest, shared_instant};
use crate::penalty::Penalty;
use crate::quota::{Algorithm, Quota};
use crate::time::{Timestamp, Wait};

/// A penalty with the states it is judged on.
#[derive(Clone, Debug)]
pub struct PenaltyCase<'c> {
    penalty: &'c Penalty<'c>,
    gate: State,
    strikes: State,
    offences: State,
    is_healed: bool,
    /// Whether this gate has denied the check.
    denies: bool,
    /// Whether no gate has.
    may_strike: bool,
}

/// What becomes of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterChange {
    /// It stays as it is.
    Keep,
    /// It has this state.
    Write(State),
    /// It is gone.
    Forget,
}

/// What a strike does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strike {
    /// It is counted, and penalties take more.
    Counted {
        /// The strikes, this one included.
        strikes: State,
    },
    /// It is one too many: the strikes are forgotten and the gate is shut.
    Tipped {
        /// The gate, shut.
        gate: State,
        /// The offences, this one included as far as there is room to count it.
        offences: State,
    },
    /// It is one too many, but the gate is shut already, which a rule that only watches
    /// lets happen: the strikes are forgotten. One offence, not two.
    Repeated,
}

impl<'c> PenaltyCase<'c> {
    /// `penalty` on the states of its counters, in the order of [`Penalty::counters`].
    pub fn new(penalty: &'c Penalty<'c>, states: impl IntoIterator<Item = State>) -> Self {
        let mut states = states.into_iter();
        let mut next = |algorithm| states.next().unwrap_or_else(|| State::vacant(algorithm));
        Self {
            gate: next(Algorithm::FixedWindow),
            strikes: next(Algorithm::FixedWindow),
            offences: next(Algorithm::TokenBucket),
            penalty,
            is_healed: false,
            denies: false,
            may_strike: false,
        }
    }

    /// The penalty.
    #[must_use]
    pub const fn penalty(&self) -> &'c Penalty<'c> {
        self.penalty
    }

    /// Whether its gate has denied the check that was judged.
    #[must_use]
    pub const fn denies(&self) -> bool {
        self.denies
    }

    /// The newest instant that its counters have seen.
    fn newest(&self, now: u64) -> u64 {
        self.gate.instant(now).max(self.strikes.instant(now))
    }

    /// For how long the gate denies; it is healed first.
    fn veto(&mut self, now: u64) -> Wait {
        let quota = self.penalty.gate.1;
        if self.gate.is_unwell(quota, now) {
            self.gate.heal(quota, now);
            self.is_healed = true;
        }
        match self.penalty.enforcement {
            Enforcement::Enforce => self.gate.wait(quota, now, 1),
            Enforcement::Shadow => Wait::NONE,
        }
    }

    /// Whether a charge of the rule found no room.
    fn is_over(&self, decision: &Decision) -> bool {
        let own = decision.verdicts.get(self.penalty.charges.clone()).unwrap_or_default();
        own.iter().any(|verdict| !verdict.is_admitted() && verdict.cost > 0)
    }

    /// The strike that the decision of [`judge_penal`] is for its rule, if it is one.
    /// Peeks are none, which the caller knows.
    #[must_use]
    pub fn strike(&self, decision: &Decision) -> Option<Strike> {
        if !self.penalty.counts || !self.may_strike || !self.is_over(decision) {
            return None;
        }
        let (now, quota) = (decision.at.as_micros(), self.penalty.strikes.1);
        let mut strikes = self.strikes.clone();
        strikes.heal(quota, now);
        let has_room = charged(&mut strikes, quota, now);
        Some(match strikes.status(quota, now).remaining {
            1.. if has_room => Strike::Counted { strikes },
            _ => self.sentence(now),
        })
    }

    /// The gate is shut for as long as the number of offences says.
    fn sentence(&self, now: u64) -> Strike {
        let mut offences = self.offences.clone();
        let so_far = self.penalty.offences.map_or(0, |(_, quota)| {
            offences.heal(quota, now);
            let so_far = quota.limit().saturating_sub(offences.status(quota, now).remaining);
            // Nothing left is the longest, again and again.
            charged(&mut offences, quota, now);
            so_far as usize
        });
        let sentences = self.penalty.sentences;
        let sentence = sentences.get(so_far).or(sentences.last()).unwrap_or(self.penalty.gate.1);
        let mut gate = self.gate.clone();
        if charged(&mut gate, sentence, now) { Strike::Tipped { gate, offences } } else { Strike::Repeated }
    }

    /// What is to be written of its counters, in the order of [`Penalty::counters`], unless
    /// the check is a peek. A gate that the clock stepped behind is healed, as any counter.
    #[must_use]
    pub fn changes(&self, strike: Option<&Strike>) -> [CounterChange; 3] {
        use CounterChange::{Forget, Keep, Write};
        let write = |state: &State| Write(state.clone());
        let gate = if self.is_healed { write(&self.gate) } else { Keep };
        match strike {
            None => [gate, Keep, Keep],
            Some(Strike::Counted { strikes }) => [gate, write(strikes), Keep],
            Some(Strike::Tipped { gate, offences }) => [write(gate), Forget, write(offences)],
            Some(Strike::Repeated) => [gate, Forget, Keep],
        }
    }

    fn verdict(&self, gate: &State, now: u64) -> Verdict {
        let (name, quota) = self.penalty.gate;
        let status = gate.status(quota, now);
        Verdict {
            name,
            quota: *quota,
            reset_after: status.reset_after,
            retry_after: gate.wait(quota, now, 1),
            receipt_at: 0,
            receipt_detail: 0,
            remaining: status.remaining,
            cost: 1,
            level: Level::Default,
            enforcement: self.penalty.enforcement,
            charged: false,
            held: false,
            index: 0,
            counter: crate::decision::CounterNumber::default(),
            given_back: crate::decision::GivenBack::default(),
            nonce: crate::decision::CounterNumber::default(),
        }
    }
}

/// Charges one unit if there is room; says whether there was.
fn charged(state: &mut State, quota: &Quota, now: u64) -> bool {
    let has_room = state.wait(quota, now, 1).is_none();
    if has_room {
        state.charge(quota, now, 1);
    }
    has_room
}

/// As [`judge`](crate::judge()), with the gates of penalties, which deny if they are shut.
/// What the decision means for the penalties [`PenaltyCase::strike`] says.
pub fn judge_penal<'c>(
    cases: &mut [impl AsCase<'c>],
    penalties: &mut [PenaltyCase<'_>],
    now: Timestamp,
    peek: bool,
    decision: &mut Decision,
) {
    let now = shared_instant(now.as_micros(), |now| {
        penalties.iter().map(|case| case.newest(now)).fold(newest(cases, now), u64::max)
    });
    let veto = penalties.iter_mut().map(|case| case.veto(now)).max().unwrap_or(Wait::NONE);
    judge_vetoed(cases, now, peek, veto, decision);
    for case in penalties {
        case.may_strike = veto.is_none();
        case.denies = !case.veto(now).is_none();
        if case.denies {
            decision.verdicts.push(case.verdict(&case.gate, now));
        }
    }
}

impl Decision {
    /// Takes note of a strike that is committed: names the penalty that it led to, and
    /// denies for as long as that lasts.
    pub fn struck(&mut self, case: &PenaltyCase<'_>, strike: &Strike) {
        let Strike::Tipped { gate, .. } = strike else { return };
        self.tipped.push(case.penalty.gate.0);
        // What the rule let pass has passed; the next request finds the gate shut.
        if self.outcome == Outcome::Deny && case.penalty.enforcement == Enforcement::Enforce {
            let verdict = case.verdict(gate, self.at.as_micros());
            self.retry_after = self.retry_after.max(verdict.retry_after);
            self.verdicts.push(verdict);
        }
    }
}
