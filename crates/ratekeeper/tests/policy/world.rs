//! Where the tests of policies at work take place: a policy, a store, and a
//! clock that is turned by hand.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratekeeper::bounds::SECRET_BYTES;
use ratekeeper::policy::{
    Ask, Policies, PoliciesBuilder, PolicyLimiter, PolicySpec, RequestFacts, RuleStatus, ServiceLimiter,
};
use ratekeeper::{
    Algorithm, Audit, Charge, Check, Control, Decision, Key, ManualClock, MemoryStore, Override,
    OverrideScope, Overrides, Reservation, Settled, Store, StoreError, StoreErrorKind, StoreFuture, Switch,
    Timestamp,
};

/// One instance of a service.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<Watched>,
    pub(crate) limiter: PolicyLimiter,
    pub(crate) service: ServiceLimiter,
}

impl World {
    /// A service under the policy in `text`, in TOML.
    pub(crate) fn of(text: &str) -> Self {
        Self::set_up(crate::toml(text).unwrap_or_else(|problems| panic!("{problems}")), without_mode())
    }

    /// A service under one of the example policies.
    pub(crate) fn example(file: &str) -> Self {
        let path = crate::root().join("examples/policies").join(file);
        Self::set_up(crate::read(&path).unwrap_or_else(|problems| panic!("{problems}")), without_mode())
    }

    pub(crate) fn set_up(spec: PolicySpec, builder: PoliciesBuilder) -> Self {
        let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
        let shared = Arc::new(MemoryStore::with_clock(1_000_000, Arc::new(clock.clone())));
        Self::on(&clock, (shared, false), spec, builder)
    }

    /// Another instance of the same service, with a memory of its own.
    pub(crate) fn beside(&self, text: &str) -> Self {
        let store = (Arc::clone(&self.store.inner), self.store.is_far);
        Self::on(&self.clock, store, crate::toml(text).unwrap(), without_mode())
    }

    /// A service under the policy in `text`, on a store that says it needs I/O, although it answers at once.
    pub(crate) fn far(text: &str) -> Self {
        let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
        let shared = Arc::new(MemoryStore::with_clock(1_000_000, Arc::new(clock.clone())));
        Self::on(&clock, (shared, true), crate::toml(text).unwrap(), without_mode())
    }

    fn on(
        clock: &ManualClock,
        (shared, is_far): (Arc<MemoryStore>, bool),
        spec: PolicySpec,
        builder: PoliciesBuilder,
    ) -> Self {
        let process = Arc::new(MemoryStore::with_clock(1_000_000, Arc::new(clock.clone())));
        let policies = builder.build().unwrap();
        let name = spec.service.clone();
        policies.install("policy.toml", Ok(spec), None).unwrap_or_else(|problems| panic!("{problems}"));
        let store = Arc::new(Watched::new(shared, is_far));
        let limiter = PolicyLimiter::on(Arc::clone(&store) as Arc<dyn Store>, policies).counting_in(process);
        let service = limiter.service(&name).unwrap();
        Self { clock: clock.clone(), store, limiter, service }
    }

    pub(crate) fn policies(&self) -> &Policies {
        self.limiter.policies()
    }

    pub(crate) fn install(&self, text: &str) {
        self.policies().install("policy.toml", crate::toml(text), None).unwrap();
    }

    pub(crate) fn ask(&self, facts: &RequestFacts) -> Decision {
        now(self.service.check(&Ask::request(facts))).unwrap()
    }

    pub(crate) fn allows(&self, facts: &RequestFacts) -> bool {
        self.ask(facts).is_allowed()
    }

    pub(crate) fn peek(&self, facts: &RequestFacts) -> Decision {
        now(self.service.peek(&Ask::request(facts))).unwrap()
    }

    /// How many such requests pass before one is denied, and who denies it.
    pub(crate) fn until_denied(&self, facts: &RequestFacts) -> (usize, &'static str) {
        for passed in 0..100_000 {
            let decision = self.ask(facts);
            if !decision.is_allowed() {
                return (passed, strictest(&decision));
            }
        }
        panic!("it is not limited");
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(crate) fn wait(&self, seconds: u64) {
        self.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn status(&self, rule: &str) -> RuleStatus {
        let rules = self.policies().status().into_iter().flat_map(|service| service.rules);
        rules.into_iter().find(|status| status.name == rule).unwrap()
    }

    pub(crate) fn switch(&self, rule: &str, switch: &str) {
        let switch: Switch = switch.parse().unwrap();
        now(self.store.control().set_switch(rule, switch)).unwrap();
    }

    pub(crate) fn override_project(&self, endpoint: &str, (org, project): (&str, &str), limit: u64) {
        let scope = OverrideScope::project(endpoint, org, project).unwrap();
        now(self.store.overrides().set(scope, Override::limit(limit))).unwrap();
    }

    pub(crate) fn override_organisation(&self, endpoint: &str, org: &str, limit: u64) {
        let scope = OverrideScope::organisation(endpoint, org).unwrap();
        now(self.store.overrides().set(scope, Override::limit(limit))).unwrap();
    }
}

/// Policies that say their modes themselves, whatever the environment says.
pub(crate) fn without_mode() -> PoliciesBuilder {
    Policies::builder().mode(None)
}

/// The quota that matters most, by its name.
pub(crate) fn strictest(decision: &Decision) -> &'static str {
    decision.strictest().map_or("nobody", |verdict| verdict.name().label())
}

/// What is left, by quota.
pub(crate) fn left(decision: &Decision) -> Vec<(&'static str, u32)> {
    decision.verdicts().iter().map(|verdict| (verdict.name().label(), verdict.remaining())).collect()
}

/// A request of a user.
pub(crate) fn by(user: &str) -> RequestFacts {
    RequestFacts::new("GET", "/").claim("user", user.to_owned())
}

/// What a future says that does not have to wait.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).unwrap()
}

/// A store that notes what it is asked.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) inner: Arc<MemoryStore>,
    calls: AtomicUsize,
    subjects: Mutex<BTreeSet<String>>,
    /// Whether it is out of reach.
    pub(crate) is_away: AtomicBool,
    /// Whether it says that it needs I/O.
    is_far: bool,
}

impl Watched {
    fn new(inner: Arc<MemoryStore>, is_far: bool) -> Self {
        let (calls, subjects) = (AtomicUsize::new(0), Mutex::default());
        Self { inner, calls, subjects, is_away: AtomicBool::new(false), is_far }
    }

    /// One that fails every check, without I/O.
    pub(crate) fn away() -> Arc<Self> {
        let store = Self::new(Arc::default(), false);
        store.is_away.store(true, Ordering::SeqCst);
        Arc::new(store)
    }

    /// How often it was asked since the last time.
    pub(crate) fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }

    /// Everything that stood in a key so far, owners of overrides included.
    pub(crate) fn subjects(&self) -> BTreeSet<String> {
        self.subjects.lock().unwrap().clone()
    }

    fn note(&self, check: &Check<'_>) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut subjects = self.subjects.lock().unwrap();
        for charge in check.charges() {
            subjects.insert(String::from_utf8_lossy(charge.key().subject()).into_owned());
            let scope = charge.override_scope().into_iter();
            let parts = scope.flat_map(|scope| [Some(scope.organisation_id()), scope.project_id()]);
            subjects.extend(parts.flatten().map(str::to_owned));
        }
        if self.is_away.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "it is away"));
        }
        Ok(())
    }
}

impl Store for Watched {
    fn needs_io(&self) -> bool {
        self.is_far
    }

    fn try_check(&self, check: &Check<'_>, decision: &mut Decision) -> Option<Result<(), StoreError>> {
        match self.note(check) {
            Ok(()) => self.inner.try_check(check, decision),
            Err(error) => Some(Err(error)),
        }
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        match self.note(check) {
            Ok(()) => self.inner.check(check),
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }

    fn reserve<'a>(&'a self, check: &'a Check<'a>, by: &'a Reservation<'a>) -> StoreFuture<'a, Decision> {
        match self.note(check) {
            Ok(()) => self.inner.reserve(check, by),
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }

    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.inner.settle(id, actual)
    }

    fn refund<'a>(
        &'a self,
        check: &'a Check<'a>,
        decision: &'a Decision,
        units: u32,
    ) -> StoreFuture<'a, u64> {
        match self.note(check) {
            Ok(()) => self.inner.refund(check, decision, units),
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }

    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]> {
        self.inner.shared_secret()
    }

    fn number_of(&self, charge: &Charge<'_>) -> u64 {
        self.inner.number_of(charge)
    }

    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.inner.reset(key, algorithm)
    }

    fn overrides(&self) -> &dyn Overrides {
        self.inner.overrides()
    }

    fn control(&self) -> &dyn Control {
        self.inner.control()
    }

    fn audit(&self) -> &dyn Audit {
        self.inner.audit()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
