//! Rules in code and a store, joined: the front end for closures.

mod rule;

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    CHARGES_MAX, Decision, Emergency, Enforcement, Field, InvalidInput, Key, Labels, Name, Override,
    OverrideScope, Quota, Settled,
};

use self::rule::Compiled;
pub use self::rule::{BuildError, Owner, Rule};
use crate::control::{Mode, Switched, Switches};
use crate::engine::{Asked, Demand, Engine, Held, Limits, Outages, Overridable};
use crate::store::{Store, StoreError};

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
    engine: Arc<Engine>,
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
    /// [`OnOutage::Local`](crate::OnOutage::Local) give this process that fraction of their quotas.
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
                rule: compiled.terms.name.to_string(),
                source: InvalidInput::new(Field::Name, got, expected),
            };
            // A rule `api.rpm` beside the tier rpm of a rule `api` could not be
            // told from it.
            let mut quotas = compiled.limits.quotas.iter();
            if let Some((twice, _)) = quotas.find(|(name, _)| !names.insert(name.as_str())) {
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
        Ok(Limiter { engine: Arc::new(Engine::new(self.store)), rules: rules.into() })
    }
}

/// Whether modes and switches have a say in which rules apply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Modes {
    Obeyed,
    /// What was charged can be given back whatever the modes are by now.
    Ignored,
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
        &**self.engine.store()
    }

    /// Sets an override of a quota of these rules: of `rule` if that has one quota, or of `rule.rpm`.
    ///
    /// # Errors
    /// If it names a rule of several quotas alone, if its limit or window is out of bounds, or if the store could
    /// not answer.
    pub async fn set_override(&self, scope: OverrideScope<'_>, to: Override) -> Result<(), StoreError> {
        let quotas = self.rules.iter().flat_map(|rule| {
            let named = |(quota, _): &(Name, Quota)| Overridable {
                rule: quota.rule(),
                quota: *quota,
                endpoint: None,
            };
            rule.limits.quotas.iter().map(named)
        });
        self.engine.set_override(scope, to, quotas).await
    }

    /// What decides, for charges that no rule is about.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// How many requests were decided without the store so far.
    #[must_use]
    pub fn outages(&self) -> Outages {
        self.engine.outages()
    }

    /// What a request asks for: one unit of every rule that applies. All verbs are methods of it, with a
    /// cost and an id if wanted, async or not; those of `Limiter` are short for it.
    #[inline]
    pub fn demand<'r>(&'r self, request: &'r R) -> Demand<'r> {
        self.asked(request, 1, Modes::Obeyed)
    }

    /// The same whatever the modes of rules are: what an earlier decision charged can be given back and
    /// forgotten although a rule was switched off meanwhile.
    pub fn demand_in_any_mode<'r>(&'r self, request: &'r R) -> Demand<'r> {
        self.asked(request, 1, Modes::Ignored)
    }

    /// Judges a request and charges it one unit.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn check(&self, request: &R) -> Result<Decision, InvalidInput> {
        self.check_cost(request, 1).await
    }

    /// Judges a request and charges it `cost` units. Rules that count requests
    /// ([`Rule::per_request`]) charge one.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn check_cost(&self, request: &R, cost: u64) -> Result<Decision, InvalidInput> {
        let demand = self.asked(request, cost, Modes::Obeyed);
        let mut decision = Decision::default();
        match demand.try_check(&mut decision) {
            Some(answer) => answer.map(|()| decision),
            None => demand.check().await,
        }
    }

    /// [`Limiter::check`] for stores that need no I/O, outside of async code.
    ///
    /// # Errors
    /// As [`Demand::check`]; also if the store does need I/O.
    #[inline]
    pub fn check_now(&self, request: &R) -> Result<Decision, InvalidInput> {
        let mut decision = Decision::default();
        self.check_cost_into(request, 1, &mut decision)?;
        Ok(decision)
    }

    /// [`Limiter::check_now`] at a cost, written over a decision that the caller keeps, because it is large.
    ///
    /// # Errors
    /// As [`Limiter::check_now`]; `decision` then says nothing.
    #[inline]
    pub fn check_cost_into(
        &self,
        request: &R,
        cost: u64,
        decision: &mut Decision,
    ) -> Result<(), InvalidInput> {
        // Of one rule, no list is made.
        if let [rule] = &*self.rules
            && let Some(asked) =
                self.asked_of(rule, request, cost, (Modes::Obeyed, self.switches().as_deref()))
        {
            return self.engine.check_one(asked, cost, decision);
        }
        self.asked(request, cost, Modes::Obeyed).now().check_into(decision)
    }

    /// Reports what a request would meet, and changes nothing.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn peek(&self, request: &R) -> Result<Decision, InvalidInput> {
        self.demand(request).peek().await
    }

    /// One sentence on what a request would meet now, and a line for every quota that applies.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn explain(&self, request: &R) -> Result<String, InvalidInput> {
        self.demand(request).explain(Labels::default()).await
    }

    /// Gives up to `units` of each charge of an earlier decision back, also of rules that were switched
    /// off meanwhile; says how many in all.
    ///
    /// # Errors
    /// As [`Demand::refund`].
    pub async fn refund(&self, request: &R, decision: &Decision, units: u32) -> Result<u64, InvalidInput> {
        self.demand_in_any_mode(request).refund(decision, units).await
    }

    /// Charges an estimate under `id`; see [`Demand::reserve`].
    ///
    /// # Errors
    /// As [`Demand::reserve`].
    pub async fn reserve(
        &self,
        request: &R,
        estimate: u64,
        id: &str,
        hold: Duration,
    ) -> Result<Decision, InvalidInput> {
        self.asked(request, estimate, Modes::Obeyed).reserve(id, hold).await
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

    /// [`Limiter::settle`] without async.
    ///
    /// # Errors
    /// As [`Limiter::settle`]; also if the store needs I/O. Then nothing was settled.
    pub fn settle_now(&self, id: &str, actual: u64) -> Result<Settled, StoreError> {
        self.engine.settle_now(id, Some(actual))
    }

    /// [`Limiter::cancel`] without async.
    ///
    /// # Errors
    /// As [`Limiter::cancel`]; also if the store needs I/O. Then nothing was cancelled.
    pub fn cancel_now(&self, id: &str) -> Result<Settled, StoreError> {
        self.engine.settle_now(id, None)
    }

    /// Waits until a request is allowed; see [`Demand::until_allowed`].
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn until_allowed(&self, request: &R, patience: Duration) -> Result<Decision, InvalidInput> {
        self.demand(request).until_allowed(patience).await
    }

    /// Forgets the counters of a request, also of rules that are switched off; says how many there were.
    ///
    /// # Errors
    /// If a key is empty or too long, or the store could not answer.
    pub async fn reset(&self, request: &R) -> Result<usize, StoreError> {
        self.demand_in_any_mode(request).reset().await
    }

    /// What operators have switched, if anything.
    #[inline]
    fn switches(&self) -> Option<Arc<Switches>> {
        self.engine.store().control().switches()
    }

    /// The rules that apply to a request, each with the key it found.
    #[inline]
    fn asked<'r>(&'r self, request: &'r R, cost: u64, modes: Modes) -> Demand<'r> {
        let switches = self.switches().filter(|_| modes == Modes::Obeyed);
        let asked = |rule| self.asked_of(rule, request, cost, (modes, switches.as_deref()));
        Demand::new(Held::Borrowed(&self.engine), cost, self.rules.iter().filter_map(asked))
    }

    /// A rule with the key it found, if it applies.
    #[inline]
    fn asked_of<'r>(
        &'r self,
        rule: &'r Compiled<R>,
        request: &'r R,
        cost: u64,
        (modes, switches): (Modes, Option<&Switches>),
    ) -> Option<Asked<'r>> {
        let switch = switches.map(|all| all.of_rule(rule.terms.name.as_str(), self.engine.store().now()));
        let mode = if modes == Modes::Obeyed { rule.mode_for(request, switch.as_ref()) } else { Mode::On };
        if mode == Mode::Off {
            return None;
        }
        let subject = (rule.key)(request)?;
        let enforcement = match switch {
            Some(switch) => rule.enforcement_under(&switch, mode, &subject),
            None if mode == Mode::Monitor => Enforcement::Shadow,
            None => rule.enforcement,
        };
        Some(Asked {
            terms: Held::Borrowed(&rule.terms),
            limits: Limits::Set(Held::Borrowed(&rule.limits)),
            plan: None,
            subject,
            owner: rule.owner_of(request),
            cost: if rule.per_request { 1 } else { cost },
            is_flat: rule.per_request,
            enforcement,
            emergency: switch.map_or(Emergency::Off, |switch| switch.emergency),
        })
    }
}

impl<R: ?Sized> Compiled<R> {
    /// What it does with a request, at most.
    #[inline]
    fn mode_for(&self, request: &R, switch: Option<&Switched>) -> Mode {
        let asked = self.mode.as_ref().map_or(Mode::On, |mode| mode(request));
        switch.map_or(asked, |switch| self.mode_under(switch).max(asked))
    }

    /// Its mode as operators have switched it.
    #[cold]
    fn mode_under(&self, switch: &Switched) -> Mode {
        let watches = self.enforcement == Enforcement::Shadow;
        switch.mode(watches.then_some(Mode::Monitor), Mode::On)
    }

    /// Whether operators want it enforced for this subject.
    #[cold]
    fn enforcement_under(&self, switch: &Switched, mode: Mode, subject: &str) -> Enforcement {
        let within = |percent| Key::new(self.terms.name, subject).is_ok_and(|key| key.is_within(percent));
        let in_ramp = switch.enforce_percent.is_none_or(within);
        if mode == Mode::On && in_ramp { Enforcement::Enforce } else { Enforcement::Shadow }
    }
}

impl<R: ?Sized> fmt::Debug for Limiter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<&str> = self.rules.iter().map(|rule| rule.terms.name.as_str()).collect();
        f.debug_struct("Limiter").field("store", self.engine.store()).field("rules", &rules).finish()
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
