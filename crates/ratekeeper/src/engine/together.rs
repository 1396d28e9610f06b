//! Several demands as one: what a call asks that is about several requests at once.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    Algorithm, COST_BEYOND, Decision, DecisionParts, Field, InvalidInput, Level, Origin, Receipt,
    VerdictParts,
};

use super::outage::{Away as _, ByRules, Undecided};
use super::{Asked, Demand, Held, LimitSet, Limits};
use crate::store::{StoreError, StoreErrorKind};

impl Demand<'_> {
    /// Marks all charges as those of the item at `index` of a call: verdicts repeat it
    /// ([`Verdict::index`](ratekeeper_core::Verdict::index)).
    #[must_use]
    pub fn at_index(mut self, index: u16) -> Self {
        self.rules.iter_mut().for_each(|asked| asked.index = index);
        self
    }

    /// Replaces the quotas of every rule that applies by one of this limit and window, with the algorithm that the
    /// rule has: for callers that are told of the limit with the request. An override that is set for the subject stands
    /// above it.
    #[must_use]
    pub fn limited_to(mut self, limit: u64, window: Duration) -> Self {
        for asked in &mut self.rules {
            let Some((name, quota)) = asked.limits.quotas().first() else { continue };
            let quotas = [(*name, quota.overridden(limit, Some(window)))].into();
            asked.limits = Limits::Set(Held::Owned(Arc::new(LimitSet { quotas, level: Level::Custom })));
        }
        self
    }

    /// [`Demand::check`] for a caller who waits no longer than `patience`. Then the rules say what becomes of the request,
    /// as in an outage; it may have been charged.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn check_within(&self, patience: Duration) -> Result<Decision, InvalidInput> {
        let checked = tokio::time::timeout(patience, self.check()).await;
        checked.unwrap_or_else(|_| {
            let error = StoreError::new(StoreErrorKind::Timeout, "the caller waits no longer");
            ByRules::decide(self, error, &Undecided::All, false)
        })
    }
}

impl Demand<'_> {
    /// Gives up to `units` of each quota back without a decision to refund: of what counts in the window that is now, or of
    /// what a bucket owes, and never more than counts. Whoever may do that can lift limits. Says how many units that was.
    ///
    /// # Errors
    /// If a quota keeps more than a count (`sliding_window`, `sliding_log`, `concurrency`), or a store could not answer.
    pub async fn give_back(&self, units: u32) -> Result<u64, StoreError> {
        let seen = self.standing().await?;
        let mut parts = Vec::with_capacity(seen.verdicts().len());
        for verdict in seen.verdicts() {
            let at = seen.at().after(verdict.reset_after()).as_micros();
            parts.push(VerdictParts {
                cost: units,
                level: verdict.level(),
                receipt: Some(Receipt { at, detail: 0 }),
                counter: verdict.counter(),
                ..VerdictParts::new(verdict.name(), *verdict.quota())
            });
            let algorithm = verdict.quota().algorithm();
            if !matches!(algorithm, Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket)
            {
                let expected =
                    "fixed_window, token_bucket or leaky_bucket: others need the decision that charged them";
                return Err(InvalidInput::new(Field::Algorithm, algorithm.as_str(), expected).into());
            }
        }
        let charged = DecisionParts { at: seen.at(), verdicts: parts, ..DecisionParts::default() };
        let charged = Decision::from(charged);
        if seen.origin() == Origin::Store { self.try_refund(&charged, units).await } else { Ok(0) }
    }
}

impl<'a> Demand<'a> {
    /// Both demands as one check: all charges of both, or none. A rule that applies to both for the same subject is
    /// asked once, for the costs of both, and keeps the index of the first.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.replaced.extend_from_slice(&other.replaced);
        for asked in other.rules {
            match self.rules.iter_mut().find(|known| known.is_same(&asked)) {
                Some(known) => known.cost = (known.cost + asked.cost).min(COST_BEYOND.into()),
                None => self.rules.push(asked),
            }
        }
        self.leave_out_replaced();
        if other.is_beyond_budget {
            self.rules.clear();
            self.is_beyond_budget = true;
        }
        self
    }

    /// Leaves out the rules that a rule of another demand replaces, for demands of one call that are judged apart.
    #[must_use]
    pub fn beside(mut self, other: &Demand<'_>) -> Self {
        self.replaced.extend_from_slice(&other.replaced);
        self.leave_out_replaced();
        self
    }

    /// Whether a rule applies that replaces others.
    #[must_use]
    pub fn replaces(&self) -> bool {
        !self.replaced.is_empty()
    }

    /// Whether a rule of a group applies of which one that admits is enough: then it has to be judged together with the
    /// others of its group.
    #[must_use]
    pub fn is_any_of(&self) -> bool {
        self.rules.iter().any(|asked| asked.terms.any_of.is_some())
    }
}

impl Asked<'_> {
    /// Whether both count the same.
    fn is_same(&self, other: &Self) -> bool {
        let (Limits::Set(own), Limits::Set(others)) = (&self.limits, &other.limits) else { return false };
        let is_alike = own.quotas == others.quotas && own.level == others.level;
        is_alike
            && self.terms.name == other.terms.name
            && self.subject == other.subject
            && self.owner == other.owner
    }
}
