//! A request that has been looked at, and everything that can be asked about it then.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    Charges, Decision, DecisionParts, Enforcement, InvalidInput, LIMIT_MAX, Level, Name, Origin, Quota,
    Reservation, VerdictParts,
};
use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

use super::apply::Applied;
use super::compile::Policy;
use super::hold::{Admission, Hold};
#[cfg(doc)]
use super::limiter::ServiceLimiter;
use super::penalty::Denials;
use crate::engine::{Demand, Engine, until_allowed};
use crate::limiter::estimated;
use crate::store::StoreError;

/// A request that has been looked at: which rules of which policy apply, and
/// under which keys. It outlives the request, so that what it was charged can be
/// given back when its response has been sent.
#[derive(Clone, Debug)]
pub struct Matched {
    pub(super) engine: Arc<Engine>,
    /// `None` if there is no policy.
    pub(super) applied: Option<Applied<Arc<Policy>>>,
    /// Units asked for, for rules that do not say themselves what a request costs.
    pub(super) units: u64,
}

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

    async fn reserve_as(&self, reservation: &Reservation<'_>) -> Result<Decision, InvalidInput> {
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

    /// [`Matched::refund`] for whoever kept only what was told of the decision:
    /// `told` finds what was charged under the name of a quota, and `origin` says who
    /// counted it.
    ///
    /// # Errors
    /// As [`Matched::refund`]; and if the store could not be asked.
    pub async fn refund_told(
        &self,
        told: impl Fn(Name, &Quota) -> Option<VerdictParts>,
        origin: Origin,
        units: u32,
    ) -> Result<(), StoreError> {
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
        let decision = DecisionParts { origin, verdicts: verdicts.collect(), ..DecisionParts::default() };
        self.engine.refund_or_fail(&part, &decision.into(), units).await
    }
}

// What it is charged, and what is given back.
impl Matched {
    /// Whether any rule applies at all. If none does, there is nothing to tell
    /// anybody.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.applied.as_ref().is_some_and(|applied| !applied.rules.is_empty())
    }

    /// Whether something it would be charged has to be given back when the request is
    /// over: a quota for requests that are under way.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.applied.as_ref().is_some_and(Applied::holds)
    }

    /// Whether a rule could deny it, rather than only watch.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        let rules = self.applied.iter().flat_map(|applied| &applied.rules);
        rules.into_iter().any(|rule| rule.enforcement == Enforcement::Enforce)
    }

    /// Judges the request and charges it.
    ///
    /// # Errors
    /// As [`ServiceLimiter::check`].
    pub async fn check(&self) -> Result<Decision, InvalidInput> {
        self.check_with(Denials::Count).await
    }

    async fn check_with(&self, denials: Denials) -> Result<Decision, InvalidInput> {
        let Some(applied) = &self.applied else { return Ok(self.engine.unlimited()) };
        if let Some(denied) = self.engine.penalised(applied)? {
            return Ok(denied);
        }
        let decision = self.engine.check(applied).await?;
        self.engine.followed_up(applied, decision, denials).await
    }

    /// Judges the request and charges it, and keeps hold of what is to be given
    /// back when the request is over.
    ///
    /// # Errors
    /// As [`ServiceLimiter::check`].
    pub async fn admit(self) -> Result<Admission, InvalidInput> {
        match Handle::try_current() {
            // Whoever asks may go away between the charge and the answer. The task goes on, and what
            // nobody takes from it is dropped, which gives places back.
            Ok(runtime) if self.holds() => {
                let engine = Arc::clone(&self.engine);
                match runtime.spawn(self.admit_here().instrument(Span::current())).await {
                    Ok(answer) => answer,
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    // The runtime ends, and with it everything that could be limited.
                    Err(_) => Ok(Admission { decision: Box::new(engine.unlimited()), hold: None }),
                }
            }
            _ => self.admit_here().await,
        }
    }

    async fn admit_here(self) -> Result<Admission, InvalidInput> {
        let decision = self.check().await?;
        let holds = decision.is_allowed() && self.holds();
        let hold = holds.then(|| Hold::new(self, decision.clone()));
        Ok(Admission { decision: Box::new(decision), hold })
    }

    /// Tells what the request would meet, and changes nothing.
    ///
    /// # Errors
    /// As [`ServiceLimiter::check`].
    pub async fn peek(&self) -> Result<Decision, InvalidInput> {
        let Some(applied) = &self.applied else { return Ok(self.engine.unlimited()) };
        let decision = self.engine.peek(applied).await?;
        Ok(applied.judged(decision))
    }

    /// See [`ServiceLimiter::reserve`].
    ///
    /// # Errors
    /// As there.
    pub async fn reserve(&self, id: &str, hold: Duration) -> Result<Decision, InvalidInput> {
        self.reserve_as(&estimated(self.units, id, hold)?).await
    }

    /// See [`ServiceLimiter::until_allowed`].
    ///
    /// # Errors
    /// As [`ServiceLimiter::check`].
    pub async fn until_allowed(&self, patience: Duration) -> Result<Decision, InvalidInput> {
        let refund = async |decision| self.refund(&decision, LIMIT_MAX).await;
        until_allowed(patience, || self.check_with(Denials::Forgiven), refund).await
    }

    /// See [`ServiceLimiter::reset`].
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

    /// Gives up to `units` of each charge of a decision on it back.
    ///
    /// # Errors
    /// As [`ServiceLimiter::check`]. An outage is no error: what cannot be given
    /// back comes back with time.
    pub async fn refund(&self, decision: &Decision, units: u32) -> Result<(), InvalidInput> {
        match &self.applied {
            Some(applied) => self.engine.refund(&applied.told(), decision, units).await,
            None => Ok(()),
        }
    }

    /// Gives back what is only held while the request is under way: its places in
    /// quotas for concurrency.
    ///
    /// # Errors
    /// As [`Matched::refund`].
    pub async fn release(&self, decision: &Decision) -> Result<(), InvalidInput> {
        match &self.applied {
            Some(applied) => {
                let held = decision.clone().without(|verdict| !verdict.is_at_latest());
                self.engine.refund(&applied.held(), &held, LIMIT_MAX).await
            }
            None => Ok(()),
        }
    }
}
