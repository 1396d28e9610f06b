//! What one request asks for: the rules that apply to it, and everything needed to decide.
//!
//! Front ends make it. It borrows from the front end and the request while it is judged at once, and
//! is made independent of them ([`Demand::into_owned`]) where it has to wait or outlive the request.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    Algorithm, Charge, Charges, Decision, Emergency, Enforcement, InvalidInput, Key, Level, Name,
    OverrideScope, Quota, Reservation,
};
use smallvec::SmallVec;

use super::raw::RawRef;
use super::{Admission, Engine, Held, LimitSet, Scope, Terms};

/// Rules that apply to a request without allocating.
const INLINE: usize = 4;

/// What one request asks for. Every verb of the engine is a method of it.
///
/// ```
/// use std::time::Duration;
/// use ratekeeper::{Limiter, MemoryStore, Rule};
///
/// let limiter = Limiter::<str>::builder(MemoryStore::new())
///     .rule(Rule::new("per-user", |user: &str| Some(user.into())).quotas("10/min"))
///     .build()?;
/// let demand = limiter.demand("ann").cost(4).once("order-17", Duration::from_secs(60))?;
/// assert_eq!(demand.now().check()?.verdicts()[0].remaining(), 6);
/// assert_eq!(demand.now().check()?.verdicts()[0].remaining(), 6, "the same id is charged once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Demand<'a> {
    pub(super) engine: Held<'a, Engine>,
    pub(super) rules: SmallVec<[Asked<'a>; INLINE]>,
    /// Units asked for, of rules that do not say themselves what a request costs.
    pub(super) units: u64,
    pub(super) once: Option<(Cow<'a, str>, Duration)>,
    /// Rules that have no say, because one that applies replaces them; of policies alone.
    pub(super) replaced: Vec<Name>,
    /// Whether finding out which rules apply was more work than a request is worth: it is denied whole.
    pub(super) is_beyond_budget: bool,
}

/// One rule that applies to a request.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) terms: Held<'a, Terms>,
    pub(crate) limits: Limits<'a>,
    /// The plan that set the limits, if one did.
    pub(crate) plan: Option<Arc<str>>,
    pub(crate) subject: Cow<'a, str>,
    pub(crate) owner: Option<Box<OwnerNames<'a>>>,
    pub(crate) cost: u64,
    /// Whether the rule says itself what a request costs.
    pub(crate) is_flat: bool,
    pub(crate) enforcement: Enforcement,
    pub(crate) emergency: Emergency,
    /// Which item of a call asks for it, for surfaces that tell of each.
    pub(crate) index: u16,
}

/// The quotas of a rule that applies.
#[derive(Clone, Debug)]
pub(crate) enum Limits<'a> {
    Set(Held<'a, LimitSet>),
    Raw(RawRef<'a>),
}

/// Whose overrides apply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnerNames<'a> {
    pub(crate) organisation: Cow<'a, str>,
    pub(crate) project: Option<Cow<'a, str>>,
    pub(crate) endpoints: Endpoints<'a>,
}

/// What overrides call the quotas of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Endpoints<'a> {
    /// By their names.
    Names,
    One(Cow<'a, str>),
    Each(Box<[String]>),
}

/// A rule that applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DemandRule<'a> {
    /// The rule.
    pub rule: Name,
    /// The plan that set its limits, if one did.
    pub plan: Option<&'a str>,
    /// What set its limits: the rule itself, a plan, an entry for exactly this key.
    pub level: Level,
    /// The key it counts under. It may be a secret.
    pub subject: &'a str,
}

/// How far a request got without I/O.
#[derive(Debug)]
pub enum Started<'a> {
    /// It is decided.
    Done(Result<Admission, InvalidInput>),
    /// The store has to be asked. Nothing has been charged yet, and nothing has to be prepared again.
    Waits(Box<Demand<'a>>),
}

impl<'a> Demand<'a> {
    #[inline]
    pub(crate) fn new(
        engine: Held<'a, Engine>,
        units: u64,
        rules: impl IntoIterator<Item = Asked<'a>>,
    ) -> Self {
        Self::asked(engine, units, rules, None)
    }

    /// The same, under an id that was found to be within bounds before.
    #[inline]
    pub(crate) fn asked(
        engine: Held<'a, Engine>,
        units: u64,
        rules: impl IntoIterator<Item = Asked<'a>>,
        once: Option<(&'a str, Duration)>,
    ) -> Self {
        let once = once.map(|(id, keep)| (Cow::Borrowed(id), keep));
        let mut demand = Self {
            engine,
            rules: SmallVec::new(),
            units,
            once,
            replaced: Vec::new(),
            is_beyond_budget: false,
        };
        // One by one, in place: a demand is large, and to collect the rules first would move them.
        for asked in rules {
            demand.rules.push(asked);
        }
        demand
    }

    /// Adds a rule that applies, and what it replaces.
    #[cfg(feature = "policy-core")]
    #[inline]
    pub(crate) fn push(&mut self, asked: Asked<'a>, replaces: &[Name]) {
        self.rules.push(asked);
        self.replace(replaces);
    }

    /// Notes rules that have no say, also those that are yet to be found.
    #[cfg(feature = "policy-core")]
    #[inline]
    pub(crate) fn replace(&mut self, rules: &[Name]) {
        if !rules.is_empty() {
            self.replaced.extend_from_slice(rules);
        }
    }

    /// Leaves out the rules that others replace. A rule that is replaced itself still replaces others, so the order
    /// in which rules were found is of no account.
    #[inline]
    pub(crate) fn leave_out_replaced(&mut self) {
        if !self.replaced.is_empty() {
            let replaced = &self.replaced;
            self.rules.retain(|asked| !replaced.contains(&asked.terms.name));
        }
    }

    /// Takes the subjects out of a demand that is done with, to be written over.
    #[cfg(feature = "policy-core")]
    #[inline]
    pub(crate) fn take_subjects(&mut self, mut take: impl FnMut(String)) {
        for asked in &mut self.rules {
            if let Cow::Owned(subject) = std::mem::take(&mut asked.subject) {
                take(subject);
            }
        }
    }

    /// Denies it, whatever rules apply: nobody knows which.
    #[cfg(feature = "policy-core")]
    #[cold]
    pub(crate) fn refuse_beyond_budget(&mut self) {
        self.rules.clear();
        self.is_beyond_budget = true;
    }

    /// Asks for `units` of the rules that do not say themselves what a request costs.
    #[must_use]
    pub fn cost(mut self, units: u64) -> Self {
        self.units = units;
        for asked in self.rules.iter_mut().filter(|asked| !asked.is_flat) {
            asked.cost = units;
        }
        self
    }

    /// Charges once, however often it is sent within `keep` under the same id.
    ///
    /// # Errors
    /// If the id or `keep` is out of bounds.
    pub fn once(self, id: impl Into<Cow<'a, str>>, keep: Duration) -> Result<Self, InvalidInput> {
        let id = id.into();
        Reservation::once(&*id, keep)?;
        Ok(Self { once: Some((id, keep)), ..self })
    }

    /// The same demand in other emergencies: with what `of` says for each rule and its key. To be peeked: it tells
    /// what will be met when an emergency is over.
    #[must_use]
    pub fn in_emergencies(mut self, of: impl Fn(Name, &str) -> Emergency) -> Self {
        for asked in &mut self.rules {
            asked.emergency = of(asked.terms.name, &asked.subject);
        }
        self
    }

    /// The same demand, independent of the request and of the front end that made it.
    #[must_use]
    pub fn into_owned(self) -> Demand<'static> {
        Demand {
            engine: self.engine.into_owned(),
            rules: self.rules.into_iter().map(Asked::into_owned).collect(),
            units: self.units,
            once: self.once.map(|(id, keep)| (Cow::Owned(id.into_owned()), keep)),
            replaced: self.replaced,
            is_beyond_budget: self.is_beyond_budget,
        }
    }

    /// The rules that apply.
    pub fn rules(&self) -> impl Iterator<Item = DemandRule<'_>> {
        self.rules.iter().map(Asked::rule)
    }

    /// Counts a decision for metrics, if anybody wants to see them.
    #[inline]
    pub(super) fn count(&self, decision: &Decision) {
        self.rules.iter().for_each(|asked| asked.count(decision));
    }

    /// Whose override each quota looks for, if its rule follows overrides: that of the project, or if there is none
    /// that of the organisation.
    pub fn override_scopes(&self) -> impl Iterator<Item = (Name, OverrideScope<'_>)> {
        self.rules.iter().flat_map(|asked| {
            let quotas = asked.limits.quotas().iter().enumerate();
            let owned = quotas.filter_map(|(index, (name, _))| {
                Some((*name, asked.owner.as_ref()?.scope(index, *name).ok()?))
            });
            owned.collect::<Vec<_>>()
        })
    }

    /// The names of all quotas that are asked.
    pub fn quotas(&self) -> impl Iterator<Item = Name> {
        self.rules.iter().flat_map(|asked| asked.limits.quotas().iter().map(|(name, _)| *name))
    }

    /// Whether any rule applies at all. If none does, there is nothing to report.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        !self.rules.is_empty() || self.is_beyond_budget
    }

    /// Whether a rule could deny it, rather than only watch.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.is_beyond_budget || self.rules.iter().any(|asked| asked.enforcement == Enforcement::Enforce)
    }

    /// Whether something it would be charged has to be given back when the request is over: a quota
    /// for requests that are under way.
    #[must_use]
    pub fn holds(&self) -> bool {
        let is_held = |(_, quota): &(Name, Quota)| quota.algorithm() == Algorithm::Concurrency;
        self.rules.iter().any(|asked| asked.limits.quotas().iter().any(is_held))
    }

    /// The charges of all rules of this scope.
    pub(super) fn charges(&self, scope: Scope) -> Result<Charges<'_>, InvalidInput> {
        let mut charges = Charges::new();
        self.charge_all(scope, &mut charges)?;
        Ok(charges)
    }

    /// [`Demand::charges`] in the caller's place, because they are large.
    #[inline]
    pub(super) fn charge_all<'s>(
        &'s self,
        scope: Scope,
        charges: &mut Charges<'s>,
    ) -> Result<(), InvalidInput> {
        let mut asked = self.rules.iter().filter(|asked| asked.terms.scope == scope);
        asked.try_for_each(|asked| asked.charge_all(charges))
    }

    pub(super) fn is_raw(&self) -> bool {
        self.rules.iter().any(|asked| matches!(asked.limits, Limits::Raw(_)))
    }

    /// Whether one call of the shared store decides everything.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.once.is_none() && self.rules.iter().all(Asked::is_plain)
    }

    /// As far as it gets without I/O.
    #[inline]
    pub fn start(self) -> Started<'a> {
        if self.engine.needs_io {
            return Started::Waits(Box::new(self));
        }
        let mut decision = Admission::blank();
        match self.try_check(&mut decision) {
            None => Started::Waits(Box::new(self)),
            Some(Err(error)) => Started::Done(Err(error)),
            Some(Ok(())) => Started::Done(Ok(Admission::new(&self, decision))),
        }
    }

    /// Whether its store waits for I/O.
    #[cfg(feature = "policy-core")]
    #[inline]
    pub(crate) fn needs_io(&self) -> bool {
        self.engine.needs_io
    }
}

impl<'a> Asked<'a> {
    fn rule(&self) -> DemandRule<'_> {
        DemandRule {
            rule: self.terms.name,
            plan: self.plan.as_deref(),
            level: self.limits.level(),
            subject: &self.subject,
        }
    }

    /// Counts a decision for metrics, if anybody wants to see them. Charges without a rule have names of the caller's.
    #[inline]
    #[cfg_attr(
        not(feature = "policy-core"),
        allow(unused_variables, reason = "without policies, nothing is counted")
    )]
    pub(super) fn count(&self, decision: &Decision) {
        #[cfg(feature = "policy-core")]
        if let Some(series) = crate::metrics::counted()
            && matches!(self.limits, Limits::Set(_))
        {
            series.note(&self.rule(), decision);
        }
    }

    /// Whether one call of the shared store decides on it.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.terms.scope == Scope::Shared && self.terms.penalty.is_none() && self.terms.any_of.is_none()
    }

    /// Its charge, if it has only one, which follows no overrides: what most rules are.
    #[inline(always)] // A charge that is built elsewhere is copied before it is whole.
    pub(super) fn only_charge(&self) -> Option<Result<Charge<'_>, InvalidInput>> {
        match (self.limits.quotas(), &self.owner) {
            ([(name, quota)], None) => Some(self.charge(*name, quota)),
            _ => None,
        }
    }

    #[inline]
    fn charge_all<'s>(&'s self, charges: &mut Charges<'s>) -> Result<(), InvalidInput> {
        for (index, (name, quota)) in self.limits.quotas().iter().enumerate() {
            let charge = self.charge(*name, quota)?;
            charges.push(match &self.owner {
                Some(owner) => charge.overridable(owner.scope(index, *name)?),
                None => charge,
            })?;
        }
        Ok(())
    }

    #[inline(always)] // As above.
    pub(super) fn charge<'s>(&'s self, name: Name, quota: &'s Quota) -> Result<Charge<'s>, InvalidInput> {
        let key = match &self.limits {
            Limits::Set(_) => Key::new(name, &*self.subject)?,
            Limits::Raw(raw) => Key::raw(raw.name(), &*self.subject)?,
        };
        let charge = Charge::new(key, quota).enforcement(self.enforcement).emergency(self.emergency);
        let charge = charge.level(self.limits.level()).at_index(self.index);
        let charge = if self.cost == 1 { charge } else { charge.cost(self.cost)? };
        let charge = match &self.limits {
            Limits::Raw(raw) if raw.is_in_any_window() => charge.any_window(),
            _ => charge,
        };
        Ok(if self.is_flat { charge.flat() } else { charge })
    }

    fn into_owned(self) -> Asked<'static> {
        Asked {
            terms: self.terms.into_owned(),
            limits: match self.limits {
                Limits::Set(set) => Limits::Set(set.into_owned()),
                Limits::Raw(raw) => Limits::Raw(raw.into_owned()),
            },
            plan: self.plan,
            subject: Cow::Owned(self.subject.into_owned()),
            owner: self.owner.map(|owner| Box::new(owner.into_owned())),
            cost: self.cost,
            is_flat: self.is_flat,
            enforcement: self.enforcement,
            emergency: self.emergency,
            index: self.index,
        }
    }
}

impl Limits<'_> {
    #[inline]
    pub(super) fn quotas(&self) -> &[(Name, Quota)] {
        match self {
            Limits::Set(set) => &set.quotas,
            Limits::Raw(raw) => raw.quotas(),
        }
    }

    #[inline]
    fn level(&self) -> Level {
        match self {
            Limits::Set(set) => set.level,
            Limits::Raw(_) => Level::Default,
        }
    }
}

impl<'a> OwnerNames<'a> {
    pub(crate) fn scope(&self, index: usize, quota: Name) -> Result<OverrideScope<'_>, InvalidInput> {
        let endpoint = match &self.endpoints {
            Endpoints::Names => quota.as_str(),
            Endpoints::One(endpoint) => endpoint,
            Endpoints::Each(endpoints) => endpoints.get(index).map_or(quota.as_str(), String::as_str),
        };
        match &self.project {
            Some(project) => OverrideScope::project(endpoint, &self.organisation, project),
            None => OverrideScope::organisation(endpoint, &self.organisation),
        }
    }

    pub(super) fn into_owned(self) -> OwnerNames<'static> {
        let owned = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        OwnerNames {
            organisation: owned(self.organisation),
            project: self.project.map(owned),
            endpoints: match self.endpoints {
                Endpoints::Names => Endpoints::Names,
                Endpoints::One(endpoint) => Endpoints::One(owned(endpoint)),
                Endpoints::Each(endpoints) => Endpoints::Each(endpoints),
            },
        }
    }
}

impl<'a> Endpoints<'a> {
    /// `endpoint` for the only quota of a rule, `endpoint.rpm` for one of several.
    pub(crate) fn new(endpoint: Option<Cow<'a, str>>, rule: Name, quotas: &[(Name, Quota)]) -> Self {
        let Some(endpoint) = endpoint else { return Self::Names };
        if matches!(quotas, [(only, _)] if *only == rule) {
            return Self::One(endpoint);
        }
        let suffix = |name: &Name| &name.as_str()[rule.as_str().len()..];
        Self::Each(quotas.iter().map(|(name, _)| format!("{endpoint}{}", suffix(name))).collect())
    }
}
