//! Rules and a store, joined: the thing a program asks.

mod rule;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    CHARGES_MAX, Charge, Charges, Check, Decision, Enforcement, Field, InvalidInput, Key, LIMIT_MAX, Name,
    Origin, Outcome, OverrideScope, Quota, Reservation, Settled, Verdict,
};
use smallvec::SmallVec;

use self::rule::Compiled;
pub use self::rule::{BuildError, OnOutage, Owner, Rule};
use crate::control::{Mode, Switch, Switches};
use crate::store::memory::MemoryStore;
use crate::store::{Store, StoreError};

/// Rules that apply to a request without allocating.
const INLINE: usize = 4;
/// Keys a process counts for itself while the store is away.
const LOCAL_KEYS_MAX: usize = 1_000_000;
/// How often to look whether a holder has come back.
const RELEASE_POLL: Duration = Duration::from_millis(20);
/// Waiting is lengthened by up to this share of itself, so that those who were
/// denied together do not come back together. Never shortened: earlier would be
/// denied again.
const JITTER: f64 = 0.1;

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
    store: Arc<dyn Store>,
    rules: Box<[Compiled<R>]>,
    /// Counts while the store cannot, for rules that want it.
    local: MemoryStore,
    outages: OutageCounters,
}

/// How many requests were decided without the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// They went on, uncounted.
    pub allowed: u64,
    /// They were denied.
    pub denied: u64,
    /// This process decided with its own share.
    pub local: u64,
}

#[derive(Debug, Default)]
struct OutageCounters {
    allowed: AtomicU64,
    denied: AtomicU64,
    local: AtomicU64,
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
        let local = MemoryStore::with_max_keys(LOCAL_KEYS_MAX);
        Ok(Limiter { store: self.store, rules: rules.into(), local, outages: OutageCounters::default() })
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
        &*self.store
    }

    /// How many requests were decided without the store so far.
    #[must_use]
    pub fn outages(&self) -> Outages {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let OutageCounters { allowed, denied, local } = &self.outages;
        Outages { allowed: read(allowed), denied: read(denied), local: read(local) }
    }

    /// Judges a request and charges it one unit.
    ///
    /// A denial is a decision, and so is what a rule says to an outage.
    ///
    /// # Errors
    /// Only if the request itself cannot be judged: a key that is empty or too
    /// long, or an override that fits no quota.
    pub async fn check(&self, request: &R) -> Result<Decision, InvalidInput> {
        self.check_cost(request, 1).await
    }

    /// Judges a request and charges it `cost` units. Rules that count requests
    /// ([`Rule::per_request`]) charge one.
    ///
    /// # Errors
    /// As [`Limiter::check`]; also if the cost is beyond 10^9.
    pub async fn check_cost(&self, request: &R, cost: u64) -> Result<Decision, InvalidInput> {
        let mut decision = Decision::default();
        let applied = self.apply(request);
        let charges = applied.charges(cost)?;
        let Ok(check) = charges.check() else { return Ok(self.unlimited()) };
        let outcome = match self.store.try_check(&check, &mut decision) {
            Some(outcome) => outcome.map(|()| decision),
            None => self.store.check(&check).await,
        };
        self.answer(&applied, cost, outcome)
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
        let wrong =
            || InvalidInput::new(Field::Check, "a store that needs I/O", "`check` instead of `check_now`");
        self.at_once(request, cost, &mut decision).unwrap_or_else(|| Err(wrong()))?;
        Ok(decision)
    }

    /// Decides, unless the store needs I/O for it. The decision is written over
    /// the caller's, because it is large.
    #[inline]
    fn at_once(&self, request: &R, cost: u64, decision: &mut Decision) -> Option<Result<(), InvalidInput>> {
        let applied = self.apply(request);
        let charges = match applied.charges(cost) {
            Ok(charges) => charges,
            Err(error) => return Some(Err(error)),
        };
        let Ok(check) = charges.check() else {
            *decision = self.unlimited();
            return Some(Ok(()));
        };
        Some(self.store.try_check(&check, decision)?.or_else(|error| {
            *decision = self.outage(&applied, cost, error)?;
            Ok(())
        }))
    }

    /// Tells what a request would meet, and changes nothing.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn peek(&self, request: &R) -> Result<Decision, InvalidInput> {
        let applied = self.apply(request);
        let charges = applied.charges(1)?;
        let Ok(check) = charges.check() else { return Ok(self.unlimited()) };
        self.answer(&applied, 0, self.store.check(&check.peek()).await)
    }

    /// One sentence on what a request would meet now, and a line for every
    /// quota that applies.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn explain(&self, request: &R) -> Result<String, InvalidInput> {
        let decision = self.peek(request).await?;
        let lines = decision.verdicts().iter().map(|verdict| {
            let (name, left, level) = (verdict.name(), verdict.remaining(), verdict.level().as_str());
            format!(
                "\n- {name}: {left} of {} left, {} (set by: {level})",
                verdict.quota().capacity(),
                verdict.quota()
            )
        });
        Ok(std::iter::once(decision.explain()).chain(lines).collect())
    }

    /// Gives up to `units` of each charge of an earlier decision back.
    ///
    /// # Errors
    /// As [`Limiter::check`]. An outage is no error: what cannot be given back
    /// comes back with time.
    pub async fn refund(&self, request: &R, decision: &Decision, units: u32) -> Result<(), InvalidInput> {
        let applied = self.apply(request);
        let charges = applied.charges(1)?;
        let Ok(check) = charges.check() else { return Ok(()) };
        let result = self.store.refund(&check, decision, units).await;
        result.err().and_then(StoreError::into_input).map_or(Ok(()), Err)
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
        let reservation = Reservation::hold(id, hold)?;
        if estimate == 0 {
            return Err(InvalidInput::new(
                Field::Cost,
                "an estimate of 0",
                "at least 1: nothing cannot be settled",
            ));
        }
        let applied = self.apply(request);
        let charges = applied.charges(estimate)?;
        let Ok(check) = charges.check() else { return Ok(self.unlimited()) };
        self.answer(&applied, estimate, self.store.reserve(&check, &reservation).await)
    }

    /// Makes a reservation's charge the `actual` amount. What is above the
    /// estimate is charged whether or not there is room.
    ///
    /// # Errors
    /// If the amount is beyond 10^9, or the store could not answer.
    pub async fn settle(&self, id: &str, actual: u64) -> Result<Settled, StoreError> {
        let bounded = u32::try_from(actual).ok().filter(|actual| *actual <= LIMIT_MAX);
        let expected = || format!("a whole number from 0 to {LIMIT_MAX}");
        let actual = bounded.ok_or_else(|| InvalidInput::new(Field::Cost, actual, expected()))?;
        self.store.settle(id.as_bytes(), Some(actual)).await
    }

    /// Undoes a reservation's charge.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn cancel(&self, id: &str) -> Result<Settled, StoreError> {
        self.store.settle(id.as_bytes(), None).await
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
        let mut left = patience;
        loop {
            let decision = self.check(request).await?;
            if decision.is_allowed() {
                if decision.proceed_after() > left {
                    self.refund(request, &decision, 1).await?;
                    return Ok(decision.given_up());
                }
                tokio::time::sleep(decision.proceed_after()).await;
                return Ok(decision);
            }
            let mut wait = decision.retry_after().duration();
            if !left.is_zero() && decision.strictest().is_some_and(Verdict::is_at_latest) {
                // Only an upper bound: a holder may come back any moment.
                wait = wait.map(|wait| wait.min(RELEASE_POLL).min(left));
            }
            let Some(wait) = wait.filter(|wait| !wait.is_zero() && *wait <= left) else {
                return Ok(decision);
            };
            let wait = wait.mul_f64(1.0 + JITTER * fastrand::f64()).min(left);
            tokio::time::sleep(wait).await;
            left = left.saturating_sub(wait);
        }
    }

    /// Forgets the counters of a request; says how many there were.
    ///
    /// # Errors
    /// If a key is empty or too long, or the store could not answer.
    pub async fn reset(&self, request: &R) -> Result<usize, StoreError> {
        let applied = self.apply(request);
        let mut forgotten = 0;
        for charge in applied.charges(1)?.check().iter().flat_map(Check::charges) {
            forgotten += usize::from(self.store.reset(charge.key(), charge.quota().algorithm()).await?);
        }
        Ok(forgotten)
    }

    /// The rules that apply to a request, each with the key it found.
    #[inline]
    fn apply<'r>(&'r self, request: &'r R) -> Applied<'r, R> {
        let switches = self.store.control().switches();
        let applied = self.rules.iter().filter_map(|rule| {
            let switch = switches.as_ref().map(|switches| self.switch_of(switches, rule));
            if switch.is_some_and(|switch| switch.mode == Some(Mode::Off)) {
                return None;
            }
            let subject = (rule.key)(request)?;
            let owner = rule.owner.as_ref().and_then(|owner| owner(request));
            Some(AppliedRule { rule, subject, owner, switch })
        });
        Applied(applied.collect())
    }

    #[cold]
    fn switch_of(&self, switches: &Switches, rule: &Compiled<R>) -> Switch {
        switches.of_rule(rule.name.as_str(), self.store.now())
    }

    fn unlimited(&self) -> Decision {
        Decision::without_store(Outcome::Allow, Origin::Unlimited, self.store.now())
    }

    fn answer(
        &self,
        applied: &Applied<'_, R>,
        cost: u64,
        result: Result<Decision, StoreError>,
    ) -> Result<Decision, InvalidInput> {
        result.or_else(|error| self.outage(applied, cost, error))
    }

    /// What the rules say to a store that could not answer: one that denies is
    /// enough, then those that count for themselves decide. A call that no store
    /// could answer is the caller's error.
    #[cold]
    fn outage(
        &self,
        applied: &Applied<'_, R>,
        cost: u64,
        error: StoreError,
    ) -> Result<Decision, InvalidInput> {
        if let Some(input) = error.into_input() {
            return Err(input);
        }
        let without_store = |outcome, counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
            Decision::without_store(outcome, Origin::Outage, self.store.now())
        };
        let strictest = applied.0.iter().map(|applied| applied.rule.on_outage).max();
        match strictest.unwrap_or_default() {
            OnOutage::Deny => Ok(without_store(Outcome::Deny, &self.outages.denied)),
            OnOutage::Allow => Ok(without_store(Outcome::Allow, &self.outages.allowed)),
            OnOutage::Local => {
                let charges = applied.local_charges(cost)?;
                let Ok(check) = charges.check() else { return Ok(self.unlimited()) };
                match self.local.decide(&check) {
                    Ok(decision) => {
                        self.outages.local.fetch_add(1, Ordering::Relaxed);
                        Ok(decision.from_origin(Origin::Outage))
                    }
                    // Full of keys that limit somebody: then even this is away.
                    Err(_) => Ok(without_store(Outcome::Allow, &self.outages.allowed)),
                }
            }
        }
    }
}

/// The rules that apply to one request.
struct Applied<'r, R: ?Sized>(SmallVec<[AppliedRule<'r, R>; INLINE]>);

struct AppliedRule<'r, R: ?Sized> {
    rule: &'r Compiled<R>,
    subject: Cow<'r, str>,
    owner: Option<Owner<'r>>,
    /// What operators have set for the rule, if anything is set at all.
    switch: Option<Switch>,
}

impl<R: ?Sized> AppliedRule<'_, R> {
    #[inline]
    fn charge<'a>(&'a self, name: Name, quota: &'a Quota, cost: u64) -> Result<Charge<'a>, InvalidInput> {
        let key = Key::new(name, self.subject.as_ref())?;
        let mut charge = Charge::new(key, quota).enforcement(self.rule.enforcement);
        if let Some(switch) = self.switch {
            charge = switched(charge, switch);
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

/// The charge as operators want it.
#[cold]
fn switched(charge: Charge<'_>, switch: Switch) -> Charge<'_> {
    let in_ramp = switch.enforce_percent.is_none_or(|percent| charge.key().is_within(percent));
    let enforcement = match switch.mode {
        Some(Mode::Monitor) => Enforcement::Shadow,
        _ if !in_ramp => Enforcement::Shadow,
        Some(Mode::On) => Enforcement::Enforce,
        _ => charge.enforced(),
    };
    charge.enforcement(enforcement).emergency(switch.emergency)
}

impl<R: ?Sized> Applied<'_, R> {
    /// This process's share of the rules that count for themselves in an outage.
    fn local_charges(&self, cost: u64) -> Result<Charges<'_>, InvalidInput> {
        let mut charges = Charges::new();
        for applied in self.0.iter().filter(|applied| applied.rule.on_outage == OnOutage::Local) {
            for (name, quota) in &applied.rule.share {
                charges.push(applied.charge(*name, quota, cost)?)?;
            }
        }
        Ok(charges)
    }

    /// One charge for every quota of every rule.
    #[inline]
    fn charges(&self, cost: u64) -> Result<Charges<'_>, InvalidInput> {
        let mut charges = Charges::new();
        for applied in &self.0 {
            for (name, quota) in &applied.rule.quotas {
                let mut charge = applied.charge(*name, quota, cost)?;
                if let Some(owner) = &applied.owner {
                    charge = charge.overridable(owner.scope(name.as_str())?);
                }
                charges.push(charge)?;
            }
        }
        Ok(charges)
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
        f.debug_struct("Limiter").field("store", &self.store).field("rules", &rules).finish()
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
