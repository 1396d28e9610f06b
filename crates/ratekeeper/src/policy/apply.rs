//! From a request to the charges of the rules that apply to it.

use std::ops::Deref;
use std::sync::Arc;

use ratekeeper_core::{
    Algorithm, Charge, Charges, Emergency, Enforcement, InvalidInput, Key, Level, Name, OverrideScope, Quota,
    Timestamp,
};
use smallvec::SmallVec;

use super::compile::{Keys, LimitSet, LimitSets, Penalty, Policy, Rule, RuleCost, UNLIMITED};
use super::expression::COST_MAX;
use super::request::{Body, Facts, Request, Scalar};
use super::spec::Scope;
use super::template::Subject;
use crate::control::{Mode, Switched, Switches};
use crate::engine::Demand;
use crate::limiter::OnOutage;

/// Rules that apply to a request without allocating.
const INLINE: usize = 4;

/// What is asked about a request.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    facts: &'a dyn Facts,
    key: Option<&'a str>,
    cost: u64,
    /// Whether there is a request at all.
    is_key_only: bool,
    modes: AskedModes,
}

/// What is said about modes together with a question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AskedModes {
    /// The most that rules may do.
    pub(super) at_most: Option<Mode>,
    /// The mode of the service just now, instead of what its policies were given.
    pub(super) outside: Option<Mode>,
}

impl<'a> Ask<'a> {
    /// One unit for the request with these facts.
    #[must_use]
    pub fn request(facts: &'a dyn Facts) -> Self {
        Self { facts, key: None, cost: 1, is_key_only: false, modes: AskedModes::default() }
    }

    /// One unit for a key that the program made itself, of a request of which
    /// nothing else is known: what rules with `caller_key` count under.
    #[must_use]
    pub fn key(key: &'a str) -> Self {
        Self { is_key_only: true, ..Self::request(&Nothing).with_key(key) }
    }

    /// The key for rules with `caller_key`.
    #[must_use]
    pub fn with_key(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(super) fn units(&self) -> u64 {
        self.cost
    }

    /// Asks for `cost` units of the rules that do not say themselves what a
    /// request costs.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// What this very question does, whatever mode its policies were given
    /// ([`PoliciesBuilder::mode`](super::PoliciesBuilder::mode)). No rule does more than
    /// that: with [`Mode::Monitor`] all of them count, and none denies.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        Self { modes: AskedModes { at_most: Some(mode), ..self.modes }, ..self }
    }

    /// The mode of the service as it is now, instead of the one that its policies were
    /// given: for programs in which it changes. What operators switch live stands above it.
    #[must_use]
    pub fn service_mode(self, mode: Option<Mode>) -> Self {
        Self { modes: AskedModes { outside: mode, ..self.modes }, ..self }
    }
}

impl std::fmt::Debug for Ask<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys may be somebody's secret.
        let has_key = self.key.is_some();
        f.debug_struct("Ask").field("has_key", &has_key).field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// A request of which nothing is known.
struct Nothing;

impl Facts for Nothing {
    fn method(&self) -> Option<&str> {
        None
    }
    fn path(&self) -> Option<&str> {
        None
    }
    fn route(&self) -> Option<&str> {
        None
    }
    fn query_string(&self) -> Option<&str> {
        None
    }
    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }
    fn header_from_end(&self, _: &str, _: usize) -> Option<&[u8]> {
        None
    }
    fn body(&self) -> Body<'_> {
        Body::Absent
    }
    fn peer(&self) -> Option<std::net::IpAddr> {
        None
    }
    fn claim(&self, _: &str) -> Option<Scalar<'_>> {
        None
    }
}

/// The rules of one policy that apply to one request, with all that is needed to
/// decide: the request itself is not needed any more.
#[derive(Clone, Debug)]
pub(super) struct Applied<P> {
    pub(super) policy: P,
    pub(super) rules: SmallVec<[AppliedRule; INLINE]>,
}

/// Some of the charges of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// With those that tell about penalties.
    All,
    /// Without them: what a decision tells about.
    Told,
    /// Only what is held while the request is under way.
    Held,
}

impl Part {
    fn has(self, quota: &Quota) -> bool {
        self != Part::Held || quota.algorithm() == Algorithm::Concurrency
    }
}

/// Some of the charges of a request, as a demand of their own.
pub(super) struct PartOf<'a, P> {
    applied: &'a Applied<P>,
    part: Part,
}

#[derive(Clone, Debug)]
pub(super) struct AppliedRule {
    rule: u16,
    limits: u32,
    /// The plan that set the limits, if one did.
    plan: Option<Arc<str>>,
    pub(super) subject: Subject,
    cost: u64,
    owner: Option<Box<OwnerNames>>,
    pub(super) enforcement: Enforcement,
    pub(super) emergency: Emergency,
}

/// Whose overrides apply.
#[derive(Clone, Debug)]
struct OwnerNames {
    /// One for each quota, if they are not called like the quotas.
    endpoints: Vec<String>,
    organisation: String,
    project: Option<String>,
}

impl<P: Deref<Target = Policy>> Applied<P> {
    pub(super) fn new(policy: P, ask: &Ask<'_>, switches: Option<(&Switches, Timestamp)>) -> Self {
        let request = Request::new(ask.facts, &policy.addresses);
        let candidates = policy.index.candidates(ask.facts);
        let applied = candidates.iter().filter_map(|number| {
            let rule = &policy.rules[usize::from(*number)];
            // Without a request, there is nothing that other rules could look at.
            if ask.is_key_only && !matches!(rule.keys, Keys::Caller { .. }) {
                return None;
            }
            let switched = switches.map(|(all, now)| all.of_rule(rule.name.as_str(), now));
            rule.apply(*number, &request, ask, switched.as_ref(), &policy.limits)
        });
        let rules = applied.collect();
        Self { policy, rules }
    }

    /// The charges that decisions tell about.
    pub(super) fn told(&self) -> PartOf<'_, P> {
        PartOf { applied: self, part: Part::Told }
    }

    /// The charges that are held while the request is under way.
    pub(super) fn held(&self) -> PartOf<'_, P> {
        PartOf { applied: self, part: Part::Held }
    }

    pub(super) fn holds(&self) -> bool {
        let mut quotas = self.rules.iter().flat_map(|applied| &self.limits(applied).quotas);
        quotas.any(|(_, quota)| quota.algorithm() == Algorithm::Concurrency)
    }

    pub(super) fn has_penalties(&self) -> bool {
        self.rules.iter().any(|applied| self.rule(applied).penalty.is_some())
    }

    pub(super) fn rule(&self, applied: &AppliedRule) -> &Rule {
        &self.policy.rules[usize::from(applied.rule)]
    }

    pub(super) fn limits(&self, applied: &AppliedRule) -> &LimitSet {
        self.policy.limits.get(applied.limits)
    }

    /// The rules that have penalties.
    pub(super) fn penal(&self) -> impl Iterator<Item = (&AppliedRule, &Rule, &Penalty)> {
        self.rules.iter().filter_map(|applied| {
            let rule = self.rule(applied);
            Some((applied, rule, rule.penalty.as_ref()?))
        })
    }

    fn charges(&self, scope: Scope, part: Part) -> Result<Charges<'_>, InvalidInput> {
        let mut charges = Charges::new();
        let in_scope = self.rules.iter().filter(|applied| self.rule(applied).scope == scope);
        for applied in in_scope.clone() {
            let (rule, limits) = (self.rule(applied), self.limits(applied));
            for (index, (name, quota)) in limits.quotas.iter().enumerate() {
                if !part.has(quota) {
                    continue;
                }
                let charge = applied.charge(rule, (*name, quota), limits.level)?;
                charges.push(match &applied.owner {
                    Some(owner) => charge.overridable(owner.scope(index, *name)?),
                    None => charge,
                })?;
            }
        }
        // Last, so that leaving them out leaves the others in their places.
        for applied in in_scope.filter(|applied| part == Part::All && applied.emergency != Emergency::Lift) {
            if let Some(penalty) = &self.rule(applied).penalty {
                charges.push(applied.gate(penalty)?)?;
            }
        }
        Ok(charges)
    }

    /// This process's share of what is shared.
    fn share_of(&self, part: Part) -> Result<Charges<'_>, InvalidInput> {
        let mut charges = Charges::new();
        for applied in &self.rules {
            let (rule, limits) = (self.rule(applied), self.limits(applied));
            if rule.scope == Scope::Shared && rule.on_outage == OnOutage::Local {
                for (name, quota) in limits.share.iter().filter(|(_, quota)| part.has(quota)) {
                    charges.push(applied.charge(rule, (*name, quota), limits.level)?)?;
                }
            }
        }
        Ok(charges)
    }
}

impl<P: Deref<Target = Policy>> Demand for Applied<P> {
    #[inline]
    fn shared(&self) -> Result<Charges<'_>, InvalidInput> {
        self.charges(Scope::Shared, Part::All)
    }

    #[inline]
    fn has_own(&self) -> bool {
        self.rules.iter().any(|applied| self.rule(applied).scope == Scope::Process)
    }

    fn own(&self) -> Result<Charges<'_>, InvalidInput> {
        self.charges(Scope::Process, Part::All)
    }

    fn share(&self) -> Result<Charges<'_>, InvalidInput> {
        self.share_of(Part::All)
    }

    /// A rule that only watches this request denies it in an outage as little as ever.
    fn on_outage(&self) -> OnOutage {
        let says = self.rules.iter().filter_map(|applied| {
            let rule = self.rule(applied);
            let can_deny = applied.enforcement == Enforcement::Enforce || rule.on_outage != OnOutage::Deny;
            (rule.scope == Scope::Shared && can_deny).then_some(rule.on_outage)
        });
        says.max().unwrap_or_default()
    }
}

impl<P: Deref<Target = Policy>> Demand for PartOf<'_, P> {
    fn shared(&self) -> Result<Charges<'_>, InvalidInput> {
        self.applied.charges(Scope::Shared, self.part)
    }

    fn has_own(&self) -> bool {
        self.applied.has_own()
    }

    fn own(&self) -> Result<Charges<'_>, InvalidInput> {
        self.applied.charges(Scope::Process, self.part)
    }

    fn share(&self) -> Result<Charges<'_>, InvalidInput> {
        self.applied.share_of(self.part)
    }

    fn on_outage(&self) -> OnOutage {
        self.applied.on_outage()
    }
}

impl AppliedRule {
    pub(super) fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    #[inline]
    fn charge<'a>(
        &'a self,
        rule: &Rule,
        (name, quota): (Name, &'a Quota),
        level: Level,
    ) -> Result<Charge<'a>, InvalidInput> {
        let key = Key::new(name, &self.subject)?;
        let charge = Charge::new(key, quota).enforcement(self.enforcement).emergency(self.emergency);
        let charge = charge.level(level).cost(self.cost)?;
        // Settling is about what the program asked for.
        Ok(if matches!(rule.cost, RuleCost::Asked) { charge } else { charge.flat() })
    }

    /// Marks in a process that what it remembers of a penalty is fresh. Denials of
    /// a shared rule are counted in the store, so their name is free here.
    pub(super) fn marker<'a>(&'a self, penalty: &'a Penalty) -> Result<Charge<'a>, InvalidInput> {
        Ok(Charge::new(Key::new(penalty.strikes.0, &self.subject)?, &penalty.fresh))
    }

    /// A charge that only tells whether a penalty is in force.
    pub(super) fn gate<'a>(&'a self, penalty: &'a Penalty) -> Result<Charge<'a>, InvalidInput> {
        let (name, quota) = &penalty.gate;
        Charge::new(Key::new(*name, &self.subject)?, quota).enforcement(self.enforcement).cost(0)
    }
}

impl OwnerNames {
    fn scope(&self, index: usize, quota: Name) -> Result<OverrideScope<'_>, InvalidInput> {
        let endpoint = self.endpoints.get(index).map_or(quota.as_str(), String::as_str);
        match &self.project {
            Some(project) => OverrideScope::project(endpoint, &self.organisation, project),
            None => OverrideScope::organisation(endpoint, &self.organisation),
        }
    }
}

impl Rule {
    /// What it makes of a request; `None` if it does not limit it.
    fn apply(
        &self,
        number: u16,
        request: &Request<'_>,
        ask: &Ask<'_>,
        switched: Option<&Switched>,
        sets: &LimitSets,
    ) -> Option<AppliedRule> {
        let mode = self.mode_under(switched, ask.modes);
        if mode == Mode::Off || !self.holds(request) || self.is_allowed_client(request) {
            return None;
        }
        let Some(subject) = self.subject(request, ask) else {
            self.counters.unresolved();
            return None;
        };
        let (limits, plan) = self.limits_of(&subject, request);
        if limits == UNLIMITED {
            return None;
        }
        let percent = switched.and_then(|switched| switched.enforce_percent).unwrap_or(self.enforce_percent);
        let in_ramp = percent >= 100 || Key::new(self.name, &subject).is_ok_and(|key| key.is_within(percent));
        let enforced = mode == Mode::On && in_ramp;
        Some(AppliedRule {
            rule: number,
            limits,
            plan,
            subject,
            cost: self.cost_of(request, ask),
            owner: self.owner_of(request, sets.get(limits)),
            enforcement: if enforced { Enforcement::Enforce } else { Enforcement::Shadow },
            emergency: switched.map_or(Emergency::Off, |switched| switched.emergency),
        })
    }

    /// A condition that cannot be told does not hold: a field that somebody left
    /// out must not turn into a denial.
    fn holds(&self, request: &Request<'_>) -> bool {
        let Some(when) = &self.when else { return true };
        when.evaluate(request).unwrap_or_else(|error| {
            self.counters.failed("when", &error);
            false
        })
    }

    fn is_allowed_client(&self, request: &Request<'_>) -> bool {
        if self.allow.is_empty() {
            return false;
        }
        let client = request.client().map(super::request::Client::address);
        client.is_some_and(|client| self.allow.iter().any(|network| network.contains(client)))
    }

    fn subject(&self, request: &Request<'_>, ask: &Ask<'_>) -> Option<Subject> {
        let found = match &self.keys {
            Keys::Templates(templates) => templates.iter().find_map(|template| template.resolve(request)),
            Keys::Caller { function, hashing } => {
                let made = || function.as_ref().and_then(|function| (function.0)(request.facts()));
                let key = ask.key.map(std::borrow::Cow::Borrowed).or_else(made);
                key.and_then(|key| Subject::of_caller(&key, hashing.as_ref()))
            }
        };
        if found.is_none() && self.fallback.is_some() {
            self.counters.unresolved();
        }
        found.or_else(|| self.fallback.clone())
    }

    fn limits_of(&self, subject: &Subject, request: &Request<'_>) -> (u32, Option<Arc<str>>) {
        if !self.exact.is_empty()
            && let Some(limits) = self.exact.get(subject.as_str())
        {
            return (*limits, None);
        }
        let of_plan = self.plans.as_ref().and_then(|plans| {
            let plan = plans.plan.resolve_plain(request)?;
            plans.by_name.get_key_value(plan.as_str())
        });
        of_plan.map_or((self.limits, None), |(plan, limits)| (*limits, Some(Arc::clone(plan))))
    }

    /// A cost that cannot be told is one: it was a request, whatever was in it.
    /// One that is too much to be told is the highest: nobody pays less by asking
    /// for more.
    fn cost_of(&self, request: &Request<'_>, ask: &Ask<'_>) -> u64 {
        match &self.cost {
            RuleCost::Asked => ask.cost,
            RuleCost::One => 1,
            RuleCost::Units(units) => (*units).into(),
            RuleCost::Expression(cost) => {
                let cost = cost.evaluate(request).unwrap_or_else(|error| {
                    self.counters.failed("cost", &error);
                    if error.is_beyond() { COST_MAX } else { 1 }
                });
                cost.into()
            }
        }
    }

    fn owner_of(&self, request: &Request<'_>, limits: &LimitSet) -> Option<Box<OwnerNames>> {
        let owner = self.owner.as_ref()?;
        let endpoint = owner.endpoint.as_ref().and_then(|endpoint| endpoint.resolve_plain(request));
        let endpoints = endpoint.iter().flat_map(|endpoint| {
            // One of several quotas is `endpoint.quota`, as in `rule.quota`.
            let quotas = limits.quotas.iter().map(|(name, _)| &name.as_str()[self.name.as_str().len()..]);
            quotas.map(move |quota| format!("{endpoint}{quota}"))
        });
        let names = OwnerNames {
            endpoints: endpoints.collect(),
            organisation: owner.organisation.resolve_plain(request)?,
            project: owner.project.resolve_plain(request),
        };
        // Nobody can have an override under a name that is none.
        let usable = (0..limits.quotas.len()).all(|index| names.scope(index, self.name).is_ok());
        usable.then(|| Box::new(names))
    }
}
