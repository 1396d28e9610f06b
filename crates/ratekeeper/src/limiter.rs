//! Rules and a store, joined: the thing a program asks.

mod rule;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    CHARGES_MAX, Charge, Charges, Decision, Enforcement, Field, InvalidInput, Key, Name, OverrideScope,
    Quota, Reservation, Settled,
};
use smallvec::SmallVec;

use self::rule::Compiled;
#[cfg(feature = "policy")]
pub(crate) use self::rule::share_of;
pub use self::rule::{BuildError, OnOutage, Owner, Rule};
use crate::control::{Mode, Switched, Switches};
use crate::engine::{Demand, Engine, Outages, until_allowed};
use crate::store::{Store, StoreError};

/// Rules that apply to a request without allocating.
const INLINE: usize = 4;
/// Limits of several rules, decided together for each request.
///
/// All rules that apply are one check: every quota of every rule has room and
/// all are charged, or nothing is charged anywhere and the decision names the
/// strictest.
///
/// ```
/// use ratekeeper::{Limiter, MemoryStore, Rule};
///
/// struct Request { ip: String, user: String }
///
/// let limiter = Limiter::builder(MemoryStore::new())
///     .rule(Rule::new("per-ip", |request: &Request| Some(request.ip.as_str().into())).quotas("100/s"))
///     .rule(Rule::new("per-user", |request: &Request| Some(request.user.as_str().into())).quotas("10/s burst 20"))
///     .rule(Rule::global("global").quotas("10000/s"))
///     .build()?;
///
/// let decision = limiter.check_now(&Request { ip: "192.0.2.7".into(), user: "ann".into() })?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.verdicts().len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Limiter<R: ?Sized> {
    engine: Engine,
    rules: Box<[Compiled<R>]>,
}

/// Collects the rules of a [`Limiter`].
#[derive(Debug)]
pub struct LimiterBuilder<R: ?Sized> {
    store: Arc<dyn Store>,
    rules: Vec<Rule<R>>,
    instances: u32,
}

impl<R: ?Sized> LimiterBuilder<R> {
    /// How many processes share the limits. While the store is away, rules with
    /// [`OnOutage::Local`] give this process that fraction of their quotas.
    #[must_use]
    pub fn instances(self, instances: NonZeroU32) -> Self {
        Self { instances: instances.get(), ..self }
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: Rule<R>) -> Self {
        self.rules.push(rule);
        self
    }

    /// Checks all rules.
    ///
    /// # Errors
    /// The first rule that cannot be used, and why. Nothing is half-built.
    pub fn build(self) -> Result<Limiter<R>, BuildError> {
        let mut rules: Vec<Compiled<R>> = Vec::with_capacity(self.rules.len());
        let mut names: HashSet<&'static str> = HashSet::new();
        for rule in self.rules {
            let compiled = rule.compile(self.instances)?;
            let wrong = |got: String, expected: String| BuildError {
                rule: compiled.name.to_string(),
                source: InvalidInput::new(Field::Name, got, expected),
            };
            // A rule `api.rpm` beside the tier rpm of a rule `api` could not be
            // told from it.
            if let Some((twice, _)) = compiled.quotas.iter().find(|(name, _)| !names.insert(name.as_str())) {
                return Err(wrong(
                    format!("a second quota named {twice}"),
                    "a name of its own for each".into(),
                ));
            }
            if names.len() > CHARGES_MAX {
                return Err(wrong(
                    "one quota too many".into(),
                    format!("at most {CHARGES_MAX} quotas in all rules"),
                ));
            }
            rules.push(compiled);
        }
        Ok(Limiter { engine: Engine::new(self.store), rules: rules.into() })
    }
}

impl<R: ?Sized> Limiter<R> {
    /// A limiter without rules yet, on `store`.
    pub fn builder(store: impl Store + 'static) -> LimiterBuilder<R> {
        Self::builder_on(Arc::new(store))
    }

    /// A limiter on a store that others use as well.
    pub fn builder_on(store: Arc<dyn Store>) -> LimiterBuilder<R> {
        LimiterBuilder { store, rules: Vec::new(), instances: 1 }
    }

    /// The store, for its overrides and its clock.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.engine.store
    }

    /// How many requests were decided without the store so far.
    #[must_use]
    pub fn outages(&self) -> Outages {
        self.engine.outages()
    }

    /// Judges a request and charges it one unit.
    ///
    /// A denial is a decision, and so is what a rule says to an outage.
    ///
    /// # Errors
    /// Only if the request itself cannot be judged: a key that is empty or too
    /// long.
    pub async fn check(&self, request: &R) -> Result<Decision, InvalidInput> {
        self.check_cost(request, 1).await
    }

    /// Judges a request and charges it `cost` units. Rules that count requests
    /// ([`Rule::per_request`]) charge one.
    ///
    /// # Errors
    /// As [`Limiter::check`]; also if the cost is beyond 10^9.
    pub async fn check_cost(&self, request: &R, cost: u64) -> Result<Decision, InvalidInput> {
        self.engine.check(&self.apply(request, cost)).await
    }

    /// [`Limiter::check`] for stores that need no I/O, outside of async code.
    ///
    /// # Errors
    /// As [`Limiter::check`]; also if the store does need I/O.
    #[inline]
    pub fn check_now(&self, request: &R) -> Result<Decision, InvalidInput> {
        self.check_cost_now(request, 1)
    }

    /// [`Limiter::check_cost`] for stores that need no I/O.
    ///
    /// # Errors
    /// As [`Limiter::check_cost`]; also if the store does need I/O.
    #[inline]
    pub fn check_cost_now(&self, request: &R, cost: u64) -> Result<Decision, InvalidInput> {
        let mut decision = Decision::default();
        self.check_cost_into(request, cost, &mut decision)?;
        Ok(decision)
    }

    /// [`Limiter::check_cost_now`], written over a decision that the caller keeps, because it is large.
    ///
    /// # Errors
    /// As [`Limiter::check_cost_now`]; `decision` then says nothing.
    #[inline]
    pub fn check_cost_into(
        &self,
        request: &R,
        cost: u64,
        decision: &mut Decision,
    ) -> Result<(), InvalidInput> {
        let wrong =
            || InvalidInput::new(Field::Check, "a store that needs I/O", "`check` instead of `check_now`");
        let applied = self.apply(request, cost);
        self.engine.try_check(&applied, decision).unwrap_or_else(|| Err(wrong()))
    }

    /// Tells what a request would meet, and changes nothing.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn peek(&self, request: &R) -> Result<Decision, InvalidInput> {
        self.engine.peek(&self.apply(request, 1)).await
    }

    /// One sentence on what a request would meet now, and a line for every
    /// quota that applies.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn explain(&self, request: &R) -> Result<String, InvalidInput> {
        Ok(explained(&self.peek(request).await?))
    }

    /// Gives up to `units` of each charge of an earlier decision back.
    ///
    /// # Errors
    /// As [`Limiter::check`]. An outage is no error: what cannot be given back
    /// comes back with time.
    pub async fn refund(&self, request: &R, decision: &Decision, units: u32) -> Result<(), InvalidInput> {
        self.engine.refund(&self.apply(request, 1), decision, units).await
    }

    /// Charges an estimate under `id` that is settled or cancelled within
    /// `hold`, or else lapses and stays charged. Sent again under the same id,
    /// it is charged once.
    ///
    /// # Errors
    /// As [`Limiter::check_cost`]; also if the id or `hold` is out of bounds,
    /// or the id was used for another request.
    pub async fn reserve(
        &self,
        request: &R,
        estimate: u64,
        id: &str,
        hold: Duration,
    ) -> Result<Decision, InvalidInput> {
        let reservation = estimated(estimate, id, hold)?;
        self.engine.reserve(&self.apply(request, estimate), &reservation).await
    }

    /// Makes a reservation's charge the `actual` amount. What is above the
    /// estimate is charged whether or not there is room.
    ///
    /// # Errors
    /// If the amount is beyond 10^9, or the store could not answer.
    pub async fn settle(&self, id: &str, actual: u64) -> Result<Settled, StoreError> {
        self.engine.settle(id, Some(actual)).await
    }

    /// Undoes a reservation's charge.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn cancel(&self, id: &str) -> Result<Settled, StoreError> {
        self.engine.settle(id, None).await
    }

    /// Waits until a request is allowed, for at most `patience` in all, and
    /// then also as long as a leaky bucket asks it to hold back.
    ///
    /// Waits are as long as the decision says and a little longer, at random,
    /// so that those who wait do not come back all at once. If `patience` would
    /// not suffice, the denial is returned at once and nothing stays charged.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn until_allowed(&self, request: &R, patience: Duration) -> Result<Decision, InvalidInput> {
        let applied = self.apply(request, 1);
        let refund = async |decision| self.engine.refund(&applied, &decision, 1).await;
        until_allowed(patience, || self.engine.check(&applied), refund).await
    }

    /// Forgets the counters of a request; says how many there were.
    ///
    /// # Errors
    /// If a key is empty or too long, or the store could not answer.
    pub async fn reset(&self, request: &R) -> Result<usize, StoreError> {
        self.engine.reset(&self.apply(request, 1)).await
    }

    /// The rules that apply to a request, each with the key it found.
    #[inline]
    fn apply<'r>(&'r self, request: &'r R, cost: u64) -> Applied<'r, R> {
        let switches = self.engine.store.control().switches();
        let applied = self.rules.iter().filter_map(|rule| {
            let switch = switches.as_ref().map(|switches| self.switch_of(switches, rule));
            if switch.is_some_and(|switch| rule.mode_under(&switch) == Mode::Off) {
                return None;
            }
            let asked = rule.mode.as_ref().map_or(Mode::On, |mode| mode(request));
            if asked == Mode::Off {
                return None;
            }
            let subject = (rule.key)(request)?;
            let owner = rule.owner.as_ref().and_then(|owner| owner(request));
            let endpoints = owner.as_ref().map(|owner| rule.endpoints(owner)).unwrap_or_default();
            Some(AppliedRule { rule, subject, owner, endpoints, switch, asked })
        });
        Applied { rules: applied.collect(), cost }
    }

    #[cold]
    fn switch_of(&self, switches: &Switches, rule: &Compiled<R>) -> Switched {
        switches.of_rule(rule.name.as_str(), self.engine.store.now())
    }
}

/// A decision in words: a sentence, and a line for every quota.
pub(crate) fn explained(decision: &Decision) -> String {
    let lines = decision.verdicts().iter().map(|verdict| {
        let (name, left, level) = (verdict.name(), verdict.remaining(), verdict.level().as_str());
        let (capacity, quota) = (verdict.quota().capacity(), verdict.quota());
        format!("\n- {name}: {left} of {capacity} left, {quota} (set by: {level})")
    });
    std::iter::once(decision.explain()).chain(lines).collect()
}

/// A reservation that can be settled.
pub(crate) fn estimated(estimate: u64, id: &str, hold: Duration) -> Result<Reservation<'_>, InvalidInput> {
    if estimate == 0 {
        let expected = "at least 1: nothing cannot be settled";
        return Err(InvalidInput::new(Field::Cost, "an estimate of 0", expected));
    }
    Reservation::hold(id, hold)
}

/// The rules that apply to one request.
struct Applied<'r, R: ?Sized> {
    rules: SmallVec<[AppliedRule<'r, R>; INLINE]>,
    cost: u64,
}

struct AppliedRule<'r, R: ?Sized> {
    rule: &'r Compiled<R>,
    subject: Cow<'r, str>,
    owner: Option<Owner<'r>>,
    /// Of each quota, where the owner's does not do for all.
    endpoints: Box<[String]>,
    /// What operators have set for the rule, if anything is set at all.
    switch: Option<Switched>,
    /// The most that the request lets the rule do.
    asked: Mode,
}

impl<R: ?Sized> AppliedRule<'_, R> {
    #[inline]
    fn charge<'a>(&'a self, name: Name, quota: &'a Quota, cost: u64) -> Result<Charge<'a>, InvalidInput> {
        let key = Key::new(name, self.subject.as_ref())?;
        let mut charge = Charge::new(key, quota).enforcement(self.rule.enforcement);
        if let Some(switch) = self.switch {
            charge = switched(charge, &switch, self.rule.mode_under(&switch).max(self.asked));
        } else if self.asked == Mode::Monitor {
            charge = charge.enforcement(Enforcement::Shadow);
        }
        if self.rule.per_request {
            Ok(charge.flat())
        } else if cost != 1 {
            charge.cost(cost)
        } else {
            Ok(charge)
        }
    }
}

impl<R: ?Sized> AppliedRule<'_, R> {
    /// Whether it does more than watch.
    fn is_enforced(&self) -> bool {
        let mut charges = self.rule.quotas.iter().map(|(name, quota)| self.charge(*name, quota, 1));
        charges.any(|charge| charge.is_ok_and(|charge| charge.enforced() == Enforcement::Enforce))
    }
}

/// The charge as operators want it.
#[cold]
fn switched<'c>(charge: Charge<'c>, switch: &Switched, mode: Mode) -> Charge<'c> {
    let in_ramp = switch.enforce_percent.is_none_or(|percent| charge.key().is_within(percent));
    let enforced = mode == Mode::On && in_ramp;
    let enforcement = if enforced { Enforcement::Enforce } else { Enforcement::Shadow };
    charge.enforcement(enforcement).emergency(switch.emergency)
}

impl<R: ?Sized> Demand for Applied<'_, R> {
    /// One charge for every quota of every rule.
    #[inline]
    fn shared(&self) -> Result<Charges<'_>, InvalidInput> {
        let mut charges = Charges::new();
        for applied in &self.rules {
            for (index, (name, quota)) in applied.rule.quotas.iter().enumerate() {
                let mut charge = applied.charge(*name, quota, self.cost)?;
                if let Some(owner) = &applied.owner {
                    let endpoint = applied.endpoints.get(index).map(String::as_str);
                    let endpoint = endpoint.or(owner.endpoint.as_deref()).unwrap_or(name.as_str());
                    charge = charge.overridable(owner.scope(endpoint)?);
                }
                charges.push(charge)?;
            }
        }
        Ok(charges)
    }

    fn share(&self) -> Result<Charges<'_>, InvalidInput> {
        let mut charges = Charges::new();
        for applied in self.rules.iter().filter(|applied| applied.rule.on_outage == OnOutage::Local) {
            for (name, quota) in &applied.rule.share {
                charges.push(applied.charge(*name, quota, self.cost)?)?;
            }
        }
        Ok(charges)
    }

    /// A rule that only watches this request denies it in an outage as little as ever.
    fn on_outage(&self) -> OnOutage {
        let can_deny =
            |applied: &&AppliedRule<'_, R>| applied.rule.on_outage != OnOutage::Deny || applied.is_enforced();
        let heard = self.rules.iter().filter(can_deny);
        heard.map(|applied| applied.rule.on_outage).max().unwrap_or_default()
    }
}

impl Owner<'_> {
    fn scope<'s>(&'s self, endpoint: &'s str) -> Result<OverrideScope<'s>, InvalidInput> {
        match &self.project {
            Some(project) => OverrideScope::project(endpoint, &self.organisation, project),
            None => OverrideScope::organisation(endpoint, &self.organisation),
        }
    }
}

impl<R: ?Sized> fmt::Debug for Limiter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<&str> = self.rules.iter().map(|rule| rule.name.as_str()).collect();
        f.debug_struct("Limiter").field("store", &self.engine.store).field("rules", &rules).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, MemoryStore};
    use ratekeeper_core::Timestamp;

    /// The store's clock stands still, so every wait is in vain.
    #[tokio::test(start_paused = true)]
    async fn waits_are_never_shorter_than_told_and_end_with_patience() {
        let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
        let store = MemoryStore::with_clock(1, Arc::new(clock));
        let rule = Rule::global("all").quotas("1/s");
        let limiter: Limiter<str> = Limiter::builder(store).rule(rule).build().unwrap();
        assert!(limiter.check("a").await.unwrap().is_allowed());
        let start = tokio::time::Instant::now();
        let waiting = limiter.until_allowed("a", Duration::from_millis(3_500));
        let decision = tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it gives up");
        assert!(!decision.unwrap().is_allowed());
        let three_waits = Duration::from_secs(3)..Duration::from_millis(3_310);
        assert!(three_waits.contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}
