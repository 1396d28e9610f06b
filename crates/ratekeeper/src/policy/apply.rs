//! From a request to the rules of a policy that apply to it: the front end for policies.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Emergency, Enforcement, InvalidInput, Key, Name, Reservation, Timestamp};
use smallvec::SmallVec;

use super::compile::{Keys, LimitSets, Policy, Rule, RuleCost, UNLIMITED};
use super::expression::{COST_MAX, EvaluationError};
use super::request::{Body, Facts, Request, Scalar};
use super::spec::OnError;
use super::template::Subject;
use crate::control::{Mode, Switched, Switches};
use crate::engine::{Asked, Demand, Endpoints, Engine, Held, LimitSet, Limits, OwnerNames};

/// What is asked about a request.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    facts: &'a dyn Facts,
    key: Option<&'a str>,
    cost: u64,
    /// Whether there is a request at all.
    is_key_only: bool,
    modes: AskedModes,
    once: Option<(&'a str, Duration)>,
}

/// What is said about modes together with a question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AskedModes {
    /// The most that rules may do.
    pub(super) at_most: Option<Mode>,
    /// The mode of the service just now, instead of what its policies were given.
    pub(super) outside: Option<Mode>,
    /// Whether rules apply that are switched off.
    pub(super) is_any: bool,
}

impl<'a> Ask<'a> {
    /// One unit for the request with these facts.
    #[must_use]
    pub fn request(facts: &'a dyn Facts) -> Self {
        Self { facts, key: None, cost: 1, is_key_only: false, modes: AskedModes::default(), once: None }
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

    /// Charges once, however often it is sent within `keep` under the same id.
    ///
    /// # Errors
    /// If the id or `keep` is out of bounds.
    pub fn once(self, id: &'a str, keep: Duration) -> Result<Self, InvalidInput> {
        Reservation::once(id, keep)?;
        Ok(Self { once: Some((id, keep)), ..self })
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

    /// Finds the rules whatever their modes are: what an earlier decision charged can be given back and
    /// forgotten although a rule was switched off meanwhile.
    #[must_use]
    pub fn in_any_mode(self) -> Self {
        Self { modes: AskedModes { is_any: true, ..self.modes }, ..self }
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

/// Why a rule does not limit a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotApplied {
    /// Its condition takes another route, method or path.
    OtherEndpoint,
    /// It is switched off.
    SwitchedOff,
    /// Its condition does not hold.
    Condition,
    /// It lets the address of this client pass.
    AllowedClient,
    /// None of its keys resolves.
    NoKey,
    /// The key is not limited.
    Unlimited,
    /// To find out took more work than a request may cause.
    BeyondBudget,
    /// There is no request, only a key, and the rule finds its own.
    NoRequest,
    /// A rule before it in its group has the say.
    NotFirst,
    /// A rule that applies replaces it.
    Replaced,
    /// What is asked about is only a key or a tenant, and the rule counts by something else.
    OtherKey,
}

impl NotApplied {
    /// The words for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherEndpoint => "its condition takes another route, method or path",
            Self::SwitchedOff => "it is switched off",
            Self::Condition => "its condition does not hold",
            Self::AllowedClient => "its `allow` list has the address of the client",
            Self::NoKey => "none of its keys resolves",
            Self::Unlimited => "its `unlimited` list, or a plan, frees the key",
            Self::BeyondBudget => "to find out took more work than a request may cause",
            Self::NoRequest => "there is a key and no request, and it finds its own key",
            Self::NotFirst => "a rule before it in its `first_of` group takes the request",
            Self::Replaced => "a rule that takes the request replaces it",
            Self::OtherKey => "it counts under other keys",
        }
    }
}

/// The groups whose first rule is found, by number.
type Groups = SmallVec<[u16; 8]>;

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

impl Policy {
    /// What a request asks for, before it is known which rules apply to it.
    #[inline]
    pub(super) fn demand<'p>(engine: &'p Arc<Engine>, ask: &Ask<'p>) -> Demand<'p> {
        Demand::asked(Held::Borrowed(engine), ask.cost, [], ask.once)
    }

    /// Adds the rules that apply to a request; in the caller's place, because a demand is large.
    pub(super) fn apply<'p>(
        &'p self,
        ask: &Ask<'p>,
        switches: Option<(&Switches, Timestamp)>,
        demand: &mut Demand<'p>,
    ) {
        let request = Request::new(ask.facts, &self.addresses);
        request.set_steps(self.steps);
        let mut taken = Groups::new();
        self.index.each_candidate(ask.facts, |number| {
            let rule = &self.rules[usize::from(number)];
            // Without a request, there is nothing that other rules could look at.
            if ask.is_key_only && !matches!(rule.keys, Keys::Caller { .. }) {
                return;
            }
            match rule.apply(&request, ask, switches, &self.limits, &mut taken) {
                Ok(asked) => demand.push(asked, &rule.replaces),
                Err(NotApplied::Unlimited) => demand.replace(&rule.replaces),
                Err(_) => {}
            }
        });
        demand.leave_out_replaced();
        if request.is_refused() {
            demand.refuse_beyond_budget();
        }
    }
}

impl Policy {
    /// The rules that do not limit a request, and why.
    pub(super) fn not_applied(
        &self,
        ask: &Ask<'_>,
        switches: Option<(&Switches, Timestamp)>,
    ) -> Vec<(Name, NotApplied)> {
        let request = Request::new(ask.facts, &self.addresses);
        request.set_steps(self.steps);
        let (mut taken, mut replaced) = (Groups::new(), Vec::new());
        let mut candidates = Vec::new();
        self.index.each_candidate(ask.facts, |number| candidates.push(number));
        let mut reason = |(index, rule): (usize, &Rule)| {
            let is_candidate = u16::try_from(index).is_ok_and(|number| candidates.contains(&number));
            if !is_candidate {
                return Some(NotApplied::OtherEndpoint);
            }
            if ask.is_key_only && !matches!(rule.keys, Keys::Caller { .. }) {
                return Some(NotApplied::NoRequest);
            }
            let why_not = rule.apply(&request, ask, switches, &self.limits, &mut taken).err();
            if matches!(why_not, None | Some(NotApplied::Unlimited)) {
                replaced.extend_from_slice(&rule.replaces);
            }
            why_not
        };
        let reasons: Vec<_> = self.rules.iter().enumerate().map(&mut reason).collect();
        let why_not = |(rule, why_not): (&Rule, Option<NotApplied>)| {
            let is_replaced = || replaced.contains(&rule.name).then_some(NotApplied::Replaced);
            Some((rule.name, why_not.or_else(is_replaced)?))
        };
        self.rules.iter().zip(reasons).filter_map(why_not).collect()
    }
}

impl Rule {
    /// What it makes of a request, or why it does not limit it.
    #[inline]
    fn apply<'p>(
        &'p self,
        request: &Request<'_>,
        ask: &Ask<'_>,
        switches: Option<(&Switches, Timestamp)>,
        sets: &'p LimitSets,
        taken: &mut Groups,
    ) -> Result<Asked<'p>, NotApplied> {
        let switched = switches.map(|(all, now)| all.of_rule(self.name.as_str(), now));
        let switched = switched.as_ref();
        let mode = self.mode_under(switched, ask.modes);
        let percent = self.percent_under(switched);
        let emergency = switched.map_or(Emergency::Off, |switched| switched.emergency);
        let denies = mode == Mode::On && percent > 0 && emergency != Emergency::Lift;
        let is_off = mode == Mode::Off && !ask.modes.is_any;
        // In a group, a rule that is off has its turn all the same: the next one is for other requests.
        if is_off && self.first_of.is_none() {
            return Err(NotApplied::SwitchedOff);
        }
        if self.first_of.is_some_and(|group| taken.contains(&group)) {
            return Err(NotApplied::NotFirst);
        }
        if !self.holds(request, denies) {
            return Err(NotApplied::Condition);
        }
        taken.extend(self.first_of);
        if is_off {
            return Err(NotApplied::SwitchedOff);
        }
        if self.is_allowed_client(request) {
            return Err(NotApplied::AllowedClient);
        }
        let Some(subject) = self.subject(request, ask) else {
            self.terms.counters.unresolved();
            return Err(NotApplied::NoKey);
        };
        let (limits, plan) = self.limits_of(&subject, request);
        if limits == UNLIMITED {
            return Err(NotApplied::Unlimited);
        }
        let emergency = match switches {
            Some((all, now)) if all.blocks_key(self.name.as_str(), subject.as_str(), now) => Emergency::Block,
            _ => emergency,
        };
        let enforced = mode == Mode::On && self.is_in_ramp(percent, &subject);
        let limits = sets.get(limits);
        Ok(Asked {
            terms: Held::Borrowed(&self.terms),
            limits: Limits::Set(Held::Borrowed(limits)),
            plan,
            subject: Cow::Owned(subject.into()),
            cost: self.cost_of(request, ask, limits, denies).ok_or(NotApplied::BeyondBudget)?,
            // Settling is about what the program asked for.
            is_flat: !matches!(self.cost, RuleCost::Asked),
            owner: self.owner_of(request, limits),
            enforcement: if enforced { Enforcement::Enforce } else { Enforcement::Shadow },
            emergency,
            index: 0,
        })
    }

    /// For how many per cent of its keys it is enforced under the switches of the store.
    #[inline]
    pub(super) fn percent_under(&self, switched: Option<&Switched>) -> u8 {
        switched.and_then(|switched| switched.enforce_percent).unwrap_or(self.enforce_percent)
    }

    #[inline]
    pub(super) fn is_in_ramp(&self, percent: u8, subject: &Subject) -> bool {
        percent >= 100 || Key::new(self.name, subject).is_ok_and(|key| key.is_within(percent))
    }

    /// A condition that cannot be told applies its rule, or whoever confuses it would escape the limit.
    #[inline]
    fn holds(&self, request: &Request<'_>, denies: bool) -> bool {
        let Some(when) = &self.when else { return true };
        when.evaluate(request).unwrap_or_else(|error| self.holds_despite(&error, request, denies))
    }

    #[cold]
    fn holds_despite(&self, error: &EvaluationError, request: &Request<'_>, denies: bool) -> bool {
        self.terms.counters.failed("when", error);
        if *error == EvaluationError::TooMuch {
            self.beyond_budget(request, denies);
            return false;
        }
        self.on_error == OnError::Apply
    }

    /// What this rule says to the request is not known, so it is denied. A rule that denies nothing (it only watches,
    /// is enforced for no key, or is lifted) counts it.
    #[cold]
    fn beyond_budget(&self, request: &Request<'_>, denies: bool) {
        self.terms.counters.beyond_budget();
        if denies {
            request.refuse();
        }
    }

    fn is_allowed_client(&self, request: &Request<'_>) -> bool {
        if self.allow.is_empty() {
            return false;
        }
        let client = request.client_address();
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
        found.or_else(|| self.subject_without_key(request))
    }

    /// What requests without a key count under. Whoever sends a body that cannot be read is not without one:
    /// it is only that nobody can tell which.
    #[cold]
    fn subject_without_key(&self, request: &Request<'_>) -> Option<Subject> {
        let unreadable = || {
            let Keys::Templates(templates) = &self.keys else { return None };
            let is_in_body = templates.iter().any(|template| template.needs().body);
            (is_in_body && request.facts().body() == Body::Unreadable).then(Subject::unreadable)
        };
        let subject = self.fallback.clone().or_else(unreadable);
        if subject.is_some() {
            self.terms.counters.unresolved();
        }
        subject
    }

    pub(super) fn limits_of(&self, subject: &Subject, request: &Request<'_>) -> (u32, Option<Arc<str>>) {
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

    #[inline]
    fn cost_of(&self, request: &Request<'_>, ask: &Ask<'_>, limits: &LimitSet, denies: bool) -> Option<u64> {
        match &self.cost {
            RuleCost::Asked => Some(ask.cost),
            RuleCost::One => Some(1),
            RuleCost::Units(units) => Some((*units).into()),
            RuleCost::Expression(cost) => match cost.evaluate(request) {
                Ok(cost) => Some(cost.into()),
                Err(error) => self.cost_despite(&error, request, limits, denies),
            },
        }
    }

    /// A cost that cannot be told is as much as there is, unless the rule says otherwise: nobody pays less by
    /// confusing it. One that is too much to be told is the highest: nobody pays less by asking for more.
    #[cold]
    fn cost_despite(
        &self,
        error: &EvaluationError,
        request: &Request<'_>,
        limits: &LimitSet,
        denies: bool,
    ) -> Option<u64> {
        self.terms.counters.failed("cost", error);
        if *error == EvaluationError::TooMuch {
            self.beyond_budget(request, denies);
            return None;
        }
        if error.is_beyond() {
            return Some(COST_MAX.into());
        }
        let all = || limits.quotas.iter().map(|(_, quota)| quota.limit().min(quota.capacity())).min();
        Some(self.cost_on_error.or_else(all).unwrap_or(1).into())
    }

    pub(super) fn owner_of(
        &self,
        request: &Request<'_>,
        limits: &LimitSet,
    ) -> Option<Box<OwnerNames<'static>>> {
        let owner = self.owner.as_ref()?;
        let endpoint = owner.endpoint.as_ref().and_then(|endpoint| endpoint.resolve_plain(request));
        let names = OwnerNames {
            endpoints: Endpoints::new(endpoint.map(Cow::Owned), self.name, &limits.quotas),
            organisation: Cow::Owned(owner.organisation.resolve_plain(request)?),
            project: owner.project.resolve_plain(request).map(Cow::Owned),
        };
        // A name that cannot be one has no overrides.
        let usable = (0..limits.quotas.len()).all(|index| names.scope(index, self.name).is_ok());
        usable.then(|| Box::new(names))
    }
}
