//! The policy of a service and a store, joined: the thing a program asks.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Decision, Field, InvalidInput, Labels, Name, Override, OverrideScope, Settled};

use super::apply::{Ask, NotApplied};
use super::book::{Policies, Service};
use super::compile::Policy;
use super::request::{Facts, Needs};
use super::template::Subject;
use crate::engine::{Admission, Demand, Engine, Held, Outages, Started};
use crate::store::memory::MemoryStore;
use crate::store::{Store, StoreError};

/// Limits of policies, for any number of services on one store.
///
/// ```
/// use ratekeeper::MemoryStore;
/// use ratekeeper::policy::{Ask, Format, Policies, PolicyLimiter, PolicySpec, RequestFacts};
///
/// let policy = r#"
///     service = "search"
///     [[rules]]
///     name = "per-user"
///     keys = "user:{identity.user}"
///     quota = "2/s"
/// "#;
/// let policies = Policies::builder().build()?;
/// policies.install("policy.toml", PolicySpec::read("policy.toml", Format::Toml, policy.as_bytes()), None)?;
/// let search = PolicyLimiter::new(MemoryStore::new(), policies).service("search")?;
///
/// let request = RequestFacts::new("GET", "/").claim("user", "ann");
/// let decision = search.check_now(&Ask::request(&request))?;
/// assert_eq!(decision.verdicts()[0].remaining(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PolicyLimiter {
    engine: Arc<Engine>,
    policies: Policies,
}

impl PolicyLimiter {
    /// A limiter on `store`.
    pub fn new(store: impl Store + 'static, policies: Policies) -> Self {
        Self::on(Arc::new(store), policies)
    }

    /// A limiter on a store that others use as well.
    #[must_use]
    pub fn on(store: Arc<dyn Store>, policies: Policies) -> Self {
        Self { engine: Arc::new(Engine::new(store)), policies }
    }

    /// A limiter on the store that the policy of a service names; in memory, if it
    /// names none. A policy that names another one later is warned about and counts
    /// where it did: a running service does not move its counters.
    ///
    /// # Errors
    /// If the service has no policy, or its store cannot be opened.
    pub fn for_service(policies: Policies, service: &str) -> Result<Self, InvalidInput> {
        let none =
            || InvalidInput::new(Field::Store, format!("no policy of `{service}`"), "one that is in force");
        let policy = policies.policy(service).ok_or_else(none)?;
        let store = match policy.store() {
            Some(url) => url.open()?,
            None => Arc::new(MemoryStore::new()),
        };
        Ok(Self::on(store, policies))
    }

    /// The same, counting what rules with `scope = "process"` limit in `process`.
    #[must_use]
    pub fn counting_in(self, process: Arc<MemoryStore>) -> Self {
        let engine = Engine::with_process(Arc::clone(self.engine.store()), process);
        Self { engine: Arc::new(engine), ..self }
    }

    /// The limits of a service. It may have no policy yet: then it is not limited, and a warning says so at once, with the
    /// services there are, because its name may be mistyped. Where there is one policy,
    /// [`only_service`](Self::only_service) needs no name.
    ///
    /// # Errors
    /// If there are too many services, or it has no policy and
    /// [`PoliciesBuilder::refuse_unknown_services`](super::PoliciesBuilder::refuse_unknown_services) was said.
    pub fn service(&self, name: &str) -> Result<ServiceLimiter, InvalidInput> {
        let is_known = self.policies.policy(name).is_some();
        if !is_known {
            self.policies.expect(name)?;
        }
        let service = self.policies.entry(name)?;
        if !is_known {
            service.is_told();
        }
        Ok(ServiceLimiter { engine: Arc::clone(&self.engine), service })
    }

    /// The limits of a service that is known already: for names that come from
    /// requests, which must not make services up.
    #[must_use]
    pub fn known_service(&self, name: &str) -> Option<ServiceLimiter> {
        Some(ServiceLimiter { engine: Arc::clone(&self.engine), service: self.policies.find(name)? })
    }

    /// The limits of the service that has a policy, if exactly one has. If every policy is
    /// gone again, limits that let everything pass.
    #[must_use]
    pub fn only_service(&self) -> Option<ServiceLimiter> {
        Some(ServiceLimiter { engine: Arc::clone(&self.engine), service: self.policies.only()? })
    }

    /// Makes a reservation's charge the `actual` amount, or with `None` undoes it,
    /// whichever service it was made for; see [`ServiceLimiter::settle`].
    ///
    /// # Errors
    /// If the amount is beyond 10^9, or the store could not answer.
    pub async fn settle(&self, id: &str, actual: Option<u64>) -> Result<Settled, StoreError> {
        self.engine.settle(id, actual).await
    }

    /// Sets an override of a quota of any policy in force; see [`ServiceLimiter::set_override`].
    ///
    /// # Errors
    /// As [`ServiceLimiter::set_override`].
    pub async fn set_override(&self, scope: OverrideScope<'_>, to: Override) -> Result<(), StoreError> {
        let policies = self.policies.all_in_force();
        let quotas = policies.iter().flat_map(|policy| policy.overridable());
        self.engine.set_override(scope, to, quotas).await
    }

    /// Judges one unit of a service for a key that the program made itself: the
    /// entry for exactly this key in `custom` holds, or else the general limit.
    ///
    /// # Errors
    /// As [`ServiceLimiter::check`].
    pub async fn check(&self, service: &str, key: &str) -> Result<Decision, InvalidInput> {
        // Names of services may come from anywhere: those without a policy take no place.
        let Some(service) = self.policies.find(service) else {
            return self.policies.expect(service).map(|()| self.engine.unlimited());
        };
        ServiceLimiter { engine: Arc::clone(&self.engine), service }.check(&Ask::key(key)).await
    }

    /// The policies it obeys.
    #[must_use]
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The store, for its overrides, switches and clock.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &**self.engine.store()
    }

    /// What decides, for charges that no policy is about.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// How many requests were decided without the store so far.
    #[must_use]
    pub fn outages(&self) -> Outages {
        self.engine.outages()
    }
}

/// The limits of one service.
///
/// Every call sees one policy, whole, however often it is replaced meanwhile.
/// A service without a policy is not limited.
#[derive(Clone, Debug)]
pub struct ServiceLimiter {
    pub(super) engine: Arc<Engine>,
    service: Arc<Service>,
}

impl ServiceLimiter {
    /// What decides, for charges that no policy is about.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What must be known of a request before it can be judged.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.service.current().as_ref().map_or_else(Needs::default, |policy| policy.needs())
    }

    /// What must be known of this very request: what the rules need that could
    /// apply to it, as far as method, path and route tell.
    #[must_use]
    pub fn needs_of(&self, facts: &dyn Facts) -> Needs {
        match &*self.service.current() {
            Some(policy) if policy.needs() != Needs::default() => policy.needs_of(facts),
            _ => Needs::default(),
        }
    }

    /// Whether the body of this very request must be known: what is asked of every request.
    #[must_use]
    #[inline]
    pub fn needs_body_of(&self, facts: &dyn Facts) -> bool {
        match &*self.service.current() {
            Some(policy) => policy.needs().body && policy.needs_of(facts).body,
            None => false,
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Option<Arc<Policy>> {
        self.service.current().as_ref().map(Arc::clone)
    }

    /// Sets an override of a quota of the policy in force: of `service/rule` if the rule has one quota, or of
    /// `service/rule.rpm`. Where a rule has an endpoint for its overrides, it is that, with `.rpm` if it has several.
    ///
    /// # Errors
    /// If it is the endpoint of rules of several quotas alone, if its limit or window is out of bounds, or if the store
    /// could not answer.
    pub async fn set_override(&self, scope: OverrideScope<'_>, to: Override) -> Result<(), StoreError> {
        let policy = self.policy();
        let quotas = policy.iter().flat_map(|policy| policy.overridable());
        self.engine.set_override(scope, to, quotas).await
    }

    /// What a request asks for: the rules that apply to it. Nothing is charged yet. All verbs are methods of it,
    /// with an id if wanted, async or not; those of `ServiceLimiter` are short for it.
    #[must_use]
    pub fn demand(&self, ask: &Ask<'_>) -> Demand<'static> {
        #[allow(clippy::redundant_closure_for_method_calls, reason = "the method is of one lifetime alone")]
        self.with_demand(ask, |_| None, |demand| demand.into_owned())
    }

    /// The rules of the policy in force that do not limit a request, and why. The others are in its demand.
    #[must_use]
    pub fn not_applied(&self, ask: &Ask<'_>) -> Vec<(Name, NotApplied)> {
        let Some(policy) = self.policy() else { return Vec::new() };
        let store = self.engine.store();
        let switches = store.control().switches();
        policy.not_applied(ask, switches.as_deref().map(|switches| (switches, store.now())))
    }

    /// Hands the demand of a request on while it borrows from the policy in force: to `now`, which only looks at it,
    /// because it is large, and to `later` if that has no answer.
    #[inline]
    fn with_demand<T>(
        &self,
        ask: &Ask<'_>,
        now: impl FnOnce(&Demand<'_>) -> Option<T>,
        later: impl FnOnce(Demand<'_>) -> T,
    ) -> T {
        let current = self.service.current();
        let Some(policy) = current.as_ref() else {
            self.service.is_unlimited();
            let demand = Demand::new(Held::Borrowed(&self.engine), 1, []);
            return now(&demand).unwrap_or_else(|| later(demand));
        };
        let store = self.engine.store();
        let switches = store.control().switches();
        let switched = switches.as_deref().map(|switches| (switches, store.now()));
        let mut demand = Policy::demand(&self.engine, ask);
        policy.apply(ask, switched, &mut demand);
        match now(&demand) {
            Some(answer) => {
                demand.take_subjects(Subject::recycle);
                answer
            }
            None => later(demand),
        }
    }

    /// Judges a request and charges it.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn check(&self, ask: &Ask<'_>) -> Result<Decision, InvalidInput> {
        match self.start_check(ask) {
            Ok(answer) => answer,
            Err(demand) => demand.check().await,
        }
    }

    /// The answer without I/O, or what has to be awaited.
    fn start_check(&self, ask: &Ask<'_>) -> Result<Result<Decision, InvalidInput>, Box<Demand<'static>>> {
        let now = |demand: &Demand<'_>| {
            let mut decision = Decision::default();
            Some(Ok(demand.try_check(&mut decision)?.map(|()| decision)))
        };
        self.with_demand(ask, now, |demand| Err(Box::new(demand.into_owned())))
    }

    /// [`ServiceLimiter::check`] for stores that need no I/O, outside of async code.
    ///
    /// # Errors
    /// As [`Demand::check`]; also if the store does need I/O.
    pub fn check_now(&self, ask: &Ask<'_>) -> Result<Decision, InvalidInput> {
        let now = |demand: &Demand<'_>| Some(demand.now().check());
        self.with_demand(ask, now, |demand| demand.now().check())
    }

    /// Judges a request and charges it, and keeps hold of what is to be given back
    /// when the request is over.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn admit(&self, ask: &Ask<'_>) -> Result<Admission, InvalidInput> {
        match self.start(ask) {
            Started::Done(answer) => answer,
            Started::Waits(demand) => demand.admit().await,
        }
    }

    /// [`ServiceLimiter::admit`], unless the store needs I/O for it: then nothing
    /// has happened yet.
    #[inline]
    pub fn try_admit(&self, ask: &Ask<'_>) -> Option<Result<Admission, InvalidInput>> {
        match self.start(ask) {
            Started::Done(answer) => Some(answer),
            Started::Waits(_) => None,
        }
    }

    /// [`ServiceLimiter::admit`] as far as it gets without I/O.
    #[inline]
    pub fn start(&self, ask: &Ask<'_>) -> Started<'static> {
        let now = |demand: &Demand<'_>| {
            if demand.needs_io() {
                return None;
            }
            let mut decision = Admission::blank();
            let answer = demand.try_check(&mut decision)?;
            Some(Started::Done(answer.map(|()| Admission::new(demand, decision))))
        };
        self.with_demand(ask, now, |demand| Started::Waits(Box::new(demand.into_owned())))
    }

    /// Reports what a request would meet, and changes nothing.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn peek(&self, ask: &Ask<'_>) -> Result<Decision, InvalidInput> {
        self.demand(ask).peek().await
    }

    /// One sentence on what a request would meet now, and a line for every quota that applies.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn explain(&self, ask: &Ask<'_>) -> Result<String, InvalidInput> {
        self.demand(ask).explain(Labels::default()).await
    }

    /// Charges what is asked as an estimate under `id`; see [`Demand::reserve`].
    ///
    /// # Errors
    /// As [`Demand::reserve`].
    pub async fn reserve(&self, ask: &Ask<'_>, id: &str, hold: Duration) -> Result<Decision, InvalidInput> {
        self.demand(ask).reserve(id, hold).await
    }

    /// Makes a reservation's charge the `actual` amount, in the rules that do
    /// not say themselves what a request costs. What is above the estimate is
    /// charged whether or not there is room.
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

    /// [`ServiceLimiter::settle`] without async.
    ///
    /// # Errors
    /// As [`ServiceLimiter::settle`]; also if the store needs I/O. Then nothing was settled.
    pub fn settle_now(&self, id: &str, actual: u64) -> Result<Settled, StoreError> {
        self.engine.settle_now(id, Some(actual))
    }

    /// [`ServiceLimiter::cancel`] without async.
    ///
    /// # Errors
    /// As [`ServiceLimiter::cancel`]; also if the store needs I/O. Then nothing was cancelled.
    pub fn cancel_now(&self, id: &str) -> Result<Settled, StoreError> {
        self.engine.settle_now(id, None)
    }

    /// Waits until a request is allowed; see [`Demand::until_allowed`].
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn until_allowed(&self, ask: &Ask<'_>, patience: Duration) -> Result<Decision, InvalidInput> {
        self.demand(ask).until_allowed(patience).await
    }

    /// Forgets the counters of a request, and its penalties; says how many there were.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn reset(&self, ask: &Ask<'_>) -> Result<usize, StoreError> {
        self.demand(ask).reset().await
    }
}
