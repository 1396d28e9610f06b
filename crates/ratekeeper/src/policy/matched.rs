//! What a request has met, for whoever counts, shows or refunds it.

use std::time::Duration;

use ratekeeper_core::{
    Charges, Decision, DecisionParts, InvalidInput, Level, Name, Quota, Reservation, VerdictParts,
};

use super::limiter::Matched;
use super::penalty::Denials;
use crate::engine::Demand;
use crate::limiter::estimated;
use crate::store::StoreError;

/// A rule that applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchedRule<'a> {
    /// The rule.
    pub rule: Name,
    /// The plan that set its limits, if one did.
    pub plan: Option<&'a str>,
    /// What set its limits: the rule itself, a plan, an entry for exactly this key.
    pub level: Level,
    /// The key it counts under. It may be somebody's secret.
    pub subject: &'a str,
}

impl Matched {
    /// The rules that apply.
    pub fn rules(&self) -> impl Iterator<Item = MatchedRule<'_>> {
        self.applied.iter().flat_map(|applied| {
            applied.rules.iter().map(|rule| MatchedRule {
                rule: applied.rule(rule).name,
                plan: rule.plan(),
                level: applied.limits(rule).level,
                subject: rule.subject.as_str(),
            })
        })
    }

    /// [`Matched::check`], unless the store needs I/O for it: then nothing has
    /// happened yet. The decision is written over the caller's, because it is large.
    #[inline]
    pub fn try_check(&self, decision: &mut Decision) -> Option<Result<(), InvalidInput>> {
        match &self.applied {
            Some(applied) => self.engine.decide_now(applied, decision),
            None => {
                *decision = self.engine.unlimited();
                Some(Ok(()))
            }
        }
    }

    /// Judges the request and charges it once, however often it is sent within `keep`
    /// under the same id.
    ///
    /// # Errors
    /// As [`Matched::check`]; also if the id or `keep` is out of bounds, or the id was
    /// used for another request.
    pub async fn check_once(&self, id: &str, keep: Duration) -> Result<Decision, InvalidInput> {
        self.reserve_as(&Reservation::once(id, keep)?).await
    }

    /// [`ServiceLimiter::reserve`](super::ServiceLimiter::reserve) for a request that has
    /// been looked at; `estimate` is the cost that was asked for.
    ///
    /// # Errors
    /// As there.
    pub async fn reserve(&self, estimate: u64, id: &str, hold: Duration) -> Result<Decision, InvalidInput> {
        self.reserve_as(&estimated(estimate, id, hold)?).await
    }

    pub(super) async fn reserve_as(&self, reservation: &Reservation<'_>) -> Result<Decision, InvalidInput> {
        let Some(applied) = &self.applied else { return Ok(self.engine.unlimited()) };
        if let Some(denied) = self.engine.penalised(applied)? {
            return Ok(denied);
        }
        // Asked before, and not in the same check: whoever sends the same id again
        // must not be told of a penalty that has ended.
        if let Some(denied) = self.engine.found_penalised(applied).await? {
            return Ok(denied);
        }
        let decision = self.engine.reserve(&applied.told(), reservation).await?;
        self.engine.followed_up(applied, decision, Denials::Count).await
    }

    /// Forgets the counters of the request, and its penalties; says how many there were.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn reset(&self) -> Result<usize, StoreError> {
        match &self.applied {
            Some(applied) => {
                Ok(self.engine.reset(&applied.told()).await? + self.engine.pardon(applied).await?)
            }
            None => Ok(0),
        }
    }

    /// [`Matched::refund`] for whoever kept only what was told of the decision:
    /// `told` finds what was charged under the name of a quota.
    ///
    /// # Errors
    /// As [`Matched::refund`].
    pub async fn refund_told(
        &self,
        told: impl Fn(Name, &Quota) -> Option<VerdictParts>,
        units: u32,
    ) -> Result<(), InvalidInput> {
        let Some(applied) = &self.applied else { return Ok(()) };
        let part = applied.told();
        let (own, shared) = (part.own()?, part.shared()?);
        // In the order in which decisions tell of them: this process's part first.
        let charges = |charges: &Charges<'_>| {
            charges.check().map_or_else(
                |_| Vec::new(),
                |check| {
                    check.charges().iter().map(|charge| (charge.key().scope(), *charge.quota())).collect()
                },
            )
        };
        let all = charges(&own).into_iter().chain(charges(&shared));
        let verdicts = all.map(|(name, quota)| told(name, &quota).unwrap_or(VerdictParts::new(name, quota)));
        let decision = DecisionParts { verdicts: verdicts.collect(), ..DecisionParts::default() };
        self.engine.refund(&part, &decision.into(), units).await
    }
}
