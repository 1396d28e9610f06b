//! What a request has met, for whoever counts, shows or refunds it.

use ratekeeper_core::{Charges, Decision, DecisionParts, InvalidInput, Level, Name, Quota, VerdictParts};

use super::limiter::Matched;
use crate::engine::Demand;

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
