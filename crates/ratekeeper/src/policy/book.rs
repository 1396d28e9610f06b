//! The policies in force, one for each service, and what became of the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use ratekeeper_core::{Field, InvalidInput, Level, Name};

use super::apply::AskedModes;
use super::compile::{CompileOptions, KeyFunction, Policy};
use super::problem::Problems;
use super::spec::PolicySpec;
use super::status::{LOADS_MAX, PolicyLoad, ServiceStatus, SourceStatus};
use super::template::KeyHashing;
use crate::control::Mode;
use crate::engine::{OnOutage, Scope};
use crate::fence::Fence;

/// How many services a process can have policies for.
pub const SERVICES_MAX: usize = 10_000;
/// How many services without a policy are logged by name: names may come from requests.
const UNKNOWN_SERVICES_MAX: usize = 64;
/// How many services an error lists as those that have a policy.
const LISTED_SERVICES_MAX: usize = 8;
/// How much of a digest is kept: enough to tell two policies apart.
const DIGEST_DIGITS: usize = 16;

/// The policies in force. Clones are the same book.
///
/// Sources put policies in; whoever asks finds one policy, whole, for each
/// request. A document that is wrong is refused whole: it is logged once,
/// counted, shown in the status, and the last good policy stays.
///
/// ```
/// use ratekeeper::policy::{Format, Policies, PolicySpec};
///
/// let policies = Policies::builder().build()?;
/// let document = br#"{"service": "search", "rules": [{"name": "all", "keys": "all", "quota": "100/s"}]}"#;
/// policies.install("search.json", PolicySpec::read("search.json", Format::Json, document), None)?;
/// assert!(policies.status_of("search").unwrap().in_force);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Policies(Arc<Book>);

struct Book {
    options: CompileOptions,
    services: RwLock<BTreeMap<String, Arc<Service>>>,
    sources: Mutex<BTreeMap<String, SourceStatus>>,
    refuses_unknown: bool,
    fence: Fence,
    /// Services that were asked for and are none, as far as they were logged.
    unknown: Mutex<BTreeSet<String>>,
}

/// One service, whose policy may come and go.
pub(super) struct Service {
    name: String,
    current: ArcSwapOption<Policy>,
    history: Mutex<History>,
    /// Whether it was logged that nothing is limited.
    is_unlimited_logged: AtomicBool,
}

#[derive(Default)]
struct History {
    source: Option<String>,
    since: Option<SystemTime>,
    installed: u64,
    refused: u64,
    last_refusal: Option<String>,
    loads: VecDeque<PolicyLoad>,
}

impl History {
    fn note(&mut self, source: &str, digest: Option<String>, refusal: Option<String>) {
        if self.loads.len() >= LOADS_MAX {
            self.loads.pop_front();
        }
        let (at, source) = (SystemTime::now(), source.to_owned());
        self.loads.push_back(PolicyLoad { at, source, digest, refusal });
    }
}

/// A digest of what a policy says.
fn digest_of(spec: &PolicySpec) -> String {
    blake3::hash(format!("{spec:?}").as_bytes()).to_hex()[..DIGEST_DIGITS].to_owned()
}

/// Collects what a program adds to its policies.
#[derive(Debug, Default)]
pub struct PoliciesBuilder {
    options: CompileOptions,
    mode: Option<Option<Mode>>,
    refuses_unknown: bool,
    fence: Fence,
}

impl PoliciesBuilder {
    /// How many processes share the limits. While the store is away, rules with
    /// `on_outage = "local"` give this process that fraction of their quotas.
    #[must_use]
    pub fn instances(mut self, instances: NonZeroU32) -> Self {
        self.options.instances = instances;
        self
    }

    /// How keys are hashed where a policy says `hash_keys`: with a secret, if
    /// they could be guessed.
    #[must_use]
    pub fn hashing(mut self, hashing: KeyHashing) -> Self {
        self.options.hashing = hashing;
        self
    }

    /// The mode of all services, instead of what the environment says
    /// (`RATE_LIMIT_MODE`); `None` leaves it to the policies.
    #[must_use]
    pub fn mode(mut self, mode: Option<Mode>) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Makes a service without a policy an error, which is how a mistyped name is found:
    /// [`PolicyLimiter::service`](super::PolicyLimiter::service) and
    /// [`PolicyLimiter::check`](super::PolicyLimiter::check) refuse it. Otherwise it is not limited, and a
    /// log line says so once.
    #[must_use]
    pub fn refuse_unknown_services(mut self, refuse: bool) -> Self {
        self.refuses_unknown = refuse;
        self
    }

    /// Runs `around` around every change, in whatever thread a source makes it: for processes that fork while other
    /// threads run, whose children would find locks held for ever. It must run what it is given, once.
    #[must_use]
    pub fn fence(mut self, around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.fence = Fence::new(around);
        self
    }

    /// Whether counters are on several servers, such as the nodes of a cluster: [`StoreUrl::is_parted`] of the store.
    /// Rules with overrides whose keys do not name the organisation are then refused.
    ///
    /// [`StoreUrl::is_parted`]: crate::StoreUrl::is_parted
    #[must_use]
    pub fn parted(mut self, parted: bool) -> Self {
        self.options.parted = parted;
        self
    }

    /// Finds the key of the rule of that name, which has `caller_key`.
    #[must_use]
    pub fn key_function(mut self, rule: impl Into<String>, function: KeyFunction) -> Self {
        self.options.key_functions.insert(rule.into(), function);
        self
    }

    /// The book, still empty.
    ///
    /// # Errors
    /// If `RATE_LIMIT_MODE` is set to something that is no mode.
    pub fn build(mut self) -> Result<Policies, InvalidInput> {
        self.options.mode = match self.mode {
            Some(mode) => mode,
            None => Mode::from_environment()?,
        };
        Ok(Policies(Arc::new(Book {
            options: self.options,
            services: RwLock::default(),
            sources: Mutex::default(),
            refuses_unknown: self.refuses_unknown,
            fence: self.fence,
            unknown: Mutex::default(),
        })))
    }
}

impl Policies {
    /// Sets up a book.
    #[must_use]
    pub fn builder() -> PoliciesBuilder {
        PoliciesBuilder::default()
    }

    /// Puts what was read from `source` into force, whole; or refuses it whole.
    /// `service` is whose document it is, if that is known even of a wrong one.
    ///
    /// # Errors
    /// What is wrong with it. The last good policy stays.
    pub fn install(
        &self,
        source: &str,
        read: Result<PolicySpec, Problems>,
        service: Option<&str>,
    ) -> Result<(), Problems> {
        self.0.fence.around(|| self.install_now(source, read, service))
    }

    fn install_now(
        &self,
        source: &str,
        read: Result<PolicySpec, Problems>,
        service: Option<&str>,
    ) -> Result<(), Problems> {
        let name = read.as_ref().map(|spec| spec.service.clone()).ok();
        let name = name.as_deref().or(service);
        let service = name.map(|name| self.entry(name)).transpose();
        let service = service.map_err(|error| {
            let problems = Problems::of(source, [error.into()]);
            self.refuse(source, &problems);
            problems
        })?;
        let before = service.as_ref().and_then(|service| service.current.load_full());
        let digest = read.as_ref().map(digest_of).ok();
        let compiled =
            read.and_then(|spec| Policy::compile_after(&spec, source, &self.0.options, before.as_deref()));
        match (compiled, service) {
            (Ok(policy), Some(service)) => {
                if before.is_some_and(|before| before.store() != policy.store()) {
                    tracing::warn!(
                        source,
                        service = service.name,
                        "another `store` takes effect with a restart"
                    );
                }
                service.install(source, policy, digest);
                self.put_right(source);
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            (Err(problems), service) => {
                match service {
                    Some(service) => service.refuse(source, &problems, digest),
                    None => self.refuse(source, &problems),
                }
                Err(problems)
            }
        }
    }

    /// What would be wrong with what was read from `source`. Nothing comes into force, and nothing is logged.
    #[cfg(feature = "watch")]
    pub(crate) fn rehearse(&self, source: &str, spec: &PolicySpec) -> Result<(), Problems> {
        self.0.fence.around(|| {
            let before = self.find(&spec.service).and_then(|service| service.current.load_full());
            Policy::compile_after(spec, source, &self.0.options, before.as_deref()).map(drop)
        })
    }

    /// Takes the policy of a service away, because its document is gone from
    /// `source`: the service is not limited any more. A policy that has come from
    /// elsewhere since stays.
    pub fn withdraw(&self, source: &str, service: &str) {
        self.0.fence.around(|| self.withdraw_now(source, service));
    }

    fn withdraw_now(&self, source: &str, service: &str) {
        let Some(service) = self.find(service) else { return };
        let mut history = service.history();
        if history.source.as_deref() == Some(source) && service.current.swap(None).is_some() {
            (history.source, history.since, history.last_refusal) = (None, None, None);
            service.is_unlimited_logged.store(true, Ordering::Relaxed);
            tracing::warn!(source, service = service.name, "the policy is gone; nothing is limited");
        }
    }

    /// Notes that a source cannot be reached. What it gave before stays.
    pub fn source_failed(&self, source: &str, reason: &str) {
        self.note(source, |status| {
            status.failures += 1;
            if status.failure.as_deref() != Some(reason) {
                tracing::warn!(source, reason, "policies cannot be read; those in force stay");
                status.failure = Some(reason.to_owned());
            }
        });
    }

    /// What was wrong at a source is not any more.
    fn put_right(&self, source: &str) {
        if let Some(status) = self.sources().get_mut(source) {
            status.last_refusal = None;
        }
    }

    /// Notes a document of nobody knows whom.
    fn refuse(&self, source: &str, problems: &Problems) {
        self.note(source, |status| {
            status.refused += 1;
            let reason = problems.to_string();
            if status.last_refusal.as_ref() != Some(&reason) {
                tracing::warn!(source, reason, "a policy was refused");
                status.last_refusal = Some(reason);
            }
        });
    }

    /// Notes that a source answers.
    pub fn source_answered(&self, source: &str) {
        self.note(source, |status| {
            if status.failure.take().is_some() {
                tracing::info!(source, "policies can be read again");
            }
        });
    }

    /// Changes the status of a source, unless there are too many.
    fn note(&self, source: &str, change: impl FnOnce(&mut SourceStatus)) {
        self.0.fence.around(|| self.note_now(source, change));
    }

    fn note_now(&self, source: &str, change: impl FnOnce(&mut SourceStatus)) {
        let mut sources = self.sources();
        if sources.len() >= SERVICES_MAX && !sources.contains_key(source) {
            return;
        }
        let new = || SourceStatus { source: source.to_owned(), ..SourceStatus::default() };
        change(sources.entry(source.to_owned()).or_insert_with(new));
    }

    /// The policy of a service, if one is in force.
    #[must_use]
    pub fn policy(&self, service: &str) -> Option<Arc<Policy>> {
        self.find(service)?.current.load_full()
    }

    /// Notes that a service is asked for. One without a policy is logged, once for each name up to a bound, or
    /// refused: its name may be mistyped.
    ///
    /// # Errors
    /// If it has no policy, and [`PoliciesBuilder::refuse_unknown_services`] was said.
    pub fn expect(&self, service: &str) -> Result<(), InvalidInput> {
        if self.policy(service).is_some() {
            return Ok(());
        }
        if self.0.refuses_unknown {
            let got = format!("service {service:?}, which has no policy");
            return Err(InvalidInput::new(Field::Name, got, format!("one of {}", self.listed())));
        }
        let mut unknown = self.0.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if unknown.len() < UNKNOWN_SERVICES_MAX && unknown.insert(service.to_owned()) {
            let (known, is_last) = (self.listed(), unknown.len() == UNKNOWN_SERVICES_MAX);
            tracing::warn!(service, known, "a service without a policy is asked for; nothing is limited");
            if is_last {
                tracing::warn!("further services without a policy are not logged by name");
            }
        }
        Ok(())
    }

    /// The services with a policy, in words.
    fn listed(&self) -> String {
        let services = self.services();
        let mut known = services.values().filter(|service| service.current.load().is_some());
        let mut words: Vec<String> =
            known.by_ref().take(LISTED_SERVICES_MAX).map(|service| format!("{:?}", service.name)).collect();
        match (words.is_empty(), known.count()) {
            (true, _) => return "none, because no policy is in force".to_owned(),
            (false, 0) => {}
            (false, more) => words.push(format!("{more} more")),
        }
        words.join(", ")
    }

    /// Whose policies came from where.
    #[cfg(feature = "watch")]
    pub(super) fn in_force(&self) -> Vec<(String, String)> {
        let services = self.services();
        let known = services.values().filter(|service| service.current.load().is_some());
        known.filter_map(|service| Some((service.history().source.clone()?, service.name.clone()))).collect()
    }

    /// How the policies are doing, by service.
    #[must_use]
    pub fn status(&self) -> Vec<ServiceStatus> {
        self.status_in(None)
    }

    /// The same, with the modes of the rules as they are if `mode` is that of all services
    /// just now; see [`Ask::service_mode`](super::Ask::service_mode).
    #[must_use]
    pub fn status_in(&self, mode: Option<Mode>) -> Vec<ServiceStatus> {
        self.services().values().map(|service| service.status(mode)).collect()
    }

    /// How the policy of one service is doing.
    #[must_use]
    pub fn status_of(&self, service: &str) -> Option<ServiceStatus> {
        self.find(service).map(|service| service.status(None))
    }

    /// How the sources are doing.
    #[must_use]
    pub fn sources_status(&self) -> Vec<SourceStatus> {
        self.sources().values().cloned().collect()
    }

    /// Shows the limits of every rule in force to `show`: those of the rule itself, those
    /// for exactly one key, if it has any, and those of every plan. That is what a
    /// [`DemandRule`](crate::DemandRule) can be told apart by.
    pub fn each_limit(&self, mut show: impl FnMut(Name, Level, Option<&str>)) {
        let policies: Vec<_> =
            self.services().values().filter_map(|service| service.current.load_full()).collect();
        for rule in policies.iter().flat_map(|policy| policy.rules.iter()) {
            show(rule.name, Level::Default, None);
            if !rule.exact.is_empty() {
                show(rule.name, Level::Custom, None);
            }
            for plan in rule.plans.iter().flat_map(|plans| plans.by_name.keys()) {
                show(rule.name, Level::Plan, Some(&**plan));
            }
        }
    }

    /// The service of that name, whether it has a policy yet or not.
    pub(super) fn entry(&self, name: &str) -> Result<Arc<Service>, InvalidInput> {
        if let Some(known) = self.find(name) {
            return Ok(known);
        }
        let mut services = self.0.services.write().unwrap_or_else(PoisonError::into_inner);
        if services.len() >= SERVICES_MAX && !services.contains_key(name) {
            let expected = format!("at most {SERVICES_MAX} services");
            return Err(InvalidInput::new(Field::Name, format!("one more: `{name}`"), expected));
        }
        let new = || Arc::new(Service::new(name));
        Ok(Arc::clone(services.entry(name.to_owned()).or_insert_with(new)))
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<Service>> {
        self.services().get(name).cloned()
    }

    /// The policies of all services.
    pub(super) fn all_in_force(&self) -> Vec<Arc<Policy>> {
        self.services().values().filter_map(|service| service.current.load_full()).collect()
    }

    /// The service whose policy is in force, if there is exactly one. Without any, one of
    /// those that have none any more: nothing limits any of them.
    pub(super) fn only(&self) -> Option<Arc<Service>> {
        let services = self.services();
        let mut in_force = services.values().filter(|service| service.current.load().is_some());
        let only = in_force.next().or_else(|| services.values().next())?;
        in_force.next().is_none().then(|| Arc::clone(only))
    }

    fn services(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Arc<Service>>> {
        self.0.services.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn sources(&self) -> MutexGuard<'_, BTreeMap<String, SourceStatus>> {
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            current: ArcSwapOption::empty(),
            history: Mutex::default(),
            is_unlimited_logged: AtomicBool::new(false),
        }
    }

    /// Notes that it was logged that nothing is limited.
    pub(super) fn is_told(&self) {
        self.is_unlimited_logged.store(true, Ordering::Relaxed);
    }

    /// Logs once that it is asked for and has no policy: its name may be mistyped.
    #[cold]
    pub(super) fn is_unlimited(&self) {
        if !self.is_unlimited_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                service = self.name,
                "a service without a policy is asked for; nothing is limited"
            );
        }
    }

    /// The policy in force, held for as long as one request needs it.
    #[inline]
    pub(super) fn current(&self) -> arc_swap::Guard<Option<Arc<Policy>>> {
        self.current.load()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn install(&self, source: &str, policy: Policy, digest: Option<String>) {
        let mut history = self.history();
        for warning in policy.warnings() {
            let warning = warning.to_string();
            tracing::warn!(
                source,
                service = self.name,
                warning,
                "a policy has something that is hardly meant"
            );
        }
        tracing::info!(source, service = self.name, rules = policy.rules.len(), "a policy is in force");
        self.current.store(Some(Arc::new(policy)));
        history.installed += 1;
        history.note(source, digest, None);
        history.last_refusal = None;
        (history.source, history.since) = (Some(source.to_owned()), Some(SystemTime::now()));
    }

    fn refuse(&self, source: &str, problems: &Problems, digest: Option<String>) {
        let mut history = self.history();
        history.refused += 1;
        let reason = problems.to_string();
        // The same document read again is no news.
        if history.last_refusal.as_ref() != Some(&reason) {
            let stays = self.current.load().is_some();
            // As text, which every log puts into quotation marks: it has lines of its own.
            tracing::warn!(source, service = self.name, stays, reason, "a policy was refused");
            history.note(source, digest, Some(reason.clone()));
            history.last_refusal = Some(reason);
        }
    }

    fn status(&self, outside: Option<Mode>) -> ServiceStatus {
        let modes = AskedModes { outside, ..AskedModes::default() };
        let policy = self.current.load_full();
        let rules = policy.iter().flat_map(|policy| policy.rules.iter());
        let history = self.history();
        ServiceStatus {
            service: self.name.clone(),
            in_force: policy.is_some(),
            source: history.source.clone(),
            since: history.since,
            installed: history.installed,
            refused: history.refused,
            last_refusal: history.last_refusal.clone(),
            loads: history.loads.iter().cloned().collect(),
            warnings: policy.as_ref().map_or_else(Vec::new, |policy| policy.warnings().to_vec()),
            rules: rules
                .map(|rule| {
                    let (mode, terms) = (rule.mode_under(None, modes), &rule.terms);
                    let is_asked = terms.scope == Scope::Shared && mode == Mode::On;
                    let denies_in_outage = is_asked && terms.on_outage == OnOutage::Deny;
                    terms.counters.status(rule.name.label(), mode, denies_in_outage)
                })
                .collect(),
        }
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.services().keys()).finish()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}
