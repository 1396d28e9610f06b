//! Decisions that were told to somebody else, put together again from their parts:
//! by a client that reads one, or for a refund by somebody who kept the receipts.

use std::time::Duration;

use crate::algorithm::Receipt;
use crate::check::{Enforcement, Level};
use crate::decision::{CounterNumber, Decision, GivenBack, Origin, Outcome, Verdict};
use crate::name::Name;
use crate::quota::Quota;
use crate::time::{Timestamp, Wait};

/// What one quota said, in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictParts {
    /// The quota's name.
    pub name: Name,
    /// The quota in force, overrides included.
    pub quota: Quota,
    /// Who set it.
    pub level: Level,
    /// Whether it could have denied the check.
    pub enforcement: Enforcement,
    /// Units asked for.
    pub cost: u32,
    /// Units left.
    pub remaining: u32,
    /// Time until the quota is full again.
    pub reset_after: Duration,
    /// When this quota alone would let the same charge pass.
    pub retry_after: Wait,
    /// Proof of the charge, if something was charged.
    pub receipt: Option<Receipt>,
    /// Which item of the call it is about.
    pub index: u16,
    /// The store's number for the counter.
    pub counter: u64,
    /// The number of a receipt that left the process: the store then remembers how much was given back. 0
    /// for none: then the decision itself keeps count.
    pub nonce: u64,
}

impl VerdictParts {
    /// A quota that was asked for one unit and has said nothing yet.
    #[must_use]
    pub const fn new(name: Name, quota: Quota) -> Self {
        Self {
            name,
            quota,
            level: Level::Default,
            enforcement: Enforcement::Enforce,
            cost: 1,
            remaining: 0,
            reset_after: Duration::ZERO,
            retry_after: Wait::NONE,
            receipt: None,
            index: 0,
            counter: 0,
            nonce: 0,
        }
    }
}

impl From<VerdictParts> for Verdict {
    fn from(parts: VerdictParts) -> Self {
        let receipt = parts.receipt.unwrap_or_default();
        Self {
            name: parts.name,
            quota: parts.quota,
            reset_after: u64::try_from(parts.reset_after.as_micros()).unwrap_or(u64::MAX),
            retry_after: parts.retry_after,
            receipt_at: receipt.at,
            receipt_detail: receipt.detail,
            remaining: parts.remaining,
            cost: parts.cost,
            level: parts.level,
            enforcement: parts.enforcement,
            charged: parts.receipt.is_some(),
            held: false,
            index: parts.index,
            counter: CounterNumber(parts.counter),
            given_back: GivenBack::default(),
            nonce: CounterNumber(parts.nonce),
        }
    }
}

/// A decision in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionParts {
    /// Allowed or denied.
    pub outcome: Outcome,
    /// Where it came from.
    pub origin: Origin,
    /// The instant at which everything was judged.
    pub at: Timestamp,
    /// When the same check would pass.
    pub retry_after: Wait,
    /// How long an admitted request should hold back.
    pub proceed_after: Duration,
    /// What each quota said, in the order of the charges.
    pub verdicts: Vec<VerdictParts>,
}

impl From<DecisionParts> for Decision {
    fn from(parts: DecisionParts) -> Self {
        Self {
            outcome: parts.outcome,
            origin: parts.origin,
            at: parts.at,
            retry_after: parts.retry_after,
            proceed_after: u64::try_from(parts.proceed_after.as_micros()).unwrap_or(u64::MAX),
            verdicts: parts.verdicts.into_iter().map(Verdict::from).collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Charge, Check};
    use crate::key::Key;
    use crate::model::Model;

    #[test]
    fn a_decision_in_parts_is_the_same_decision_again() {
        let (mut model, now) = (Model::default(), Timestamp::from_secs(1_000));
        let quota: Quota = "1/min".parse().unwrap();
        let charge = Charge::new(Key::new(Name::new("parts").unwrap(), "k").unwrap(), &quota);
        for _ in 0..2 {
            let decision = model.check(&Check::one(&charge), now).unwrap();
            let verdicts = decision.verdicts().iter().map(|verdict| VerdictParts {
                level: verdict.level(),
                enforcement: verdict.enforcement(),
                cost: verdict.cost(),
                remaining: verdict.remaining(),
                reset_after: verdict.reset_after(),
                retry_after: verdict.retry_after(),
                receipt: verdict.receipt(),
                counter: verdict.counter(),
                ..VerdictParts::new(verdict.name(), *verdict.quota())
            });
            let parts = DecisionParts {
                outcome: decision.outcome(),
                origin: decision.origin(),
                at: decision.at(),
                retry_after: decision.retry_after(),
                proceed_after: decision.proceed_after(),
                verdicts: verdicts.collect(),
            };
            assert_eq!(Decision::from(parts), decision);
        }
    }
}
