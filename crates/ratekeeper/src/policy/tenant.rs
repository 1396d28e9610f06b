//! What a tenant or a key counts under in each rule, without a request: for usage, inspection and relief.

use std::borrow::Cow;
use std::sync::Arc;

use ratekeeper_core::{Emergency, Enforcement, Field, InvalidInput, Name, OverrideScope, Quota, Timestamp};

use super::apply::AskedModes;
use super::compile::{Keys, LimitSets, Policy, Rule, UNLIMITED};
use super::limiter::ServiceLimiter;
use super::request::{Body, Facts, Request, Scalar};
use super::spec::OverridesSpec;
use super::template::Template;
use crate::control::{Mode, Switches};
use crate::engine::{Asked, Demand, Held, LimitSet, Limits};

/// Whose counters are looked for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Whose<'a> {
    /// Those of an organisation, or of one project of it.
    Tenant {
        /// The organisation.
        organisation: &'a str,
        /// The project.
        project: Option<&'a str>,
        /// The plan, if requests say one.
        plan: Option<&'a str>,
    },
    /// Those of a key, as entries in `custom` are written: `user:ann`.
    Key(&'a str),
}

/// What is known of a request of which only the tenant is known.
struct TenantFacts<'a> {
    claims: [(Option<&'a str>, Option<&'a str>); 3],
    route: Option<&'a str>,
}

impl<'a> TenantFacts<'a> {
    fn new(rule: &'a Rule, whose: Whose<'a>, route: Option<&'a str>) -> Self {
        let (organisation, project, plan) = match whose {
            Whose::Tenant { organisation, project, plan } => (Some(organisation), project, plan),
            Whose::Key(_) => (None, None, None),
        };
        let (of_organisation, of_project) = match &rule.owner {
            Some(OverridesSpec { organisation, project, .. }) => {
                (organisation.only_claim(), project.only_claim())
            }
            None => (claim_in(super::ORGANISATION_DEFAULT), claim_in(super::PROJECT_DEFAULT)),
        };
        let of_plan = rule.plans.as_ref().and_then(|plans| plans.plan.only_claim());
        Self { claims: [(of_organisation, organisation), (of_project, project), (of_plan, plan)], route }
    }
}

/// The claim in a template that is nothing else.
fn claim_in(template: &str) -> Option<&str> {
    template.strip_prefix("{identity.")?.strip_suffix('}')
}

impl Facts for TenantFacts<'_> {
    fn method(&self) -> Option<&str> {
        None
    }
    fn path(&self) -> Option<&str> {
        None
    }
    fn route(&self) -> Option<&str> {
        self.route
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
    fn claim(&self, name: &str) -> Option<Scalar<'_>> {
        let (_, value) = self.claims.iter().find(|(known, _)| *known == Some(name))?;
        value.map(|value| Scalar::Text(Cow::Borrowed(value)))
    }
}

impl ServiceLimiter {
    /// What each rule counts for a tenant or a key, as far as that alone tells: a demand for each rule, to be peeked.
    /// Conditions are not looked at, because there is no request. Rules that count by something else, and those that
    /// are switched off, are left out.
    #[must_use]
    pub fn demands_of(&self, whose: Whose<'_>) -> Vec<Demand<'static>> {
        let Some(policy) = self.policy() else { return Vec::new() };
        let store = self.engine.store();
        let switches = store.control().switches();
        let of_rule = policy.rules.iter().filter_map(|rule| {
            let asked = rule.of(&policy, whose, switches.as_deref().map(|all| (all, store.now())))?;
            Some(Demand::new(Held::Borrowed(&self.engine), 1, [asked]).into_owned())
        });
        of_rule.collect()
    }

    /// What an override is about: the counters that a tenant has used up under it. An empty bucket stays empty under
    /// a raised limit; to reset this demand fills it.
    ///
    /// # Errors
    /// If no rule of the policy in force looks for such an override, or the rule counts by more than the tenant.
    pub fn relief(&self, scope: OverrideScope<'_>) -> Result<Demand<'static>, InvalidInput> {
        let policy = self.policy();
        let rules = policy.iter().flat_map(|policy| policy.rules.iter().map(move |rule| (policy, rule)));
        let mut demand = Demand::new(Held::Borrowed(&self.engine), 1, []).into_owned();
        for (policy, rule) in rules.filter(|(_, rule)| rule.owner.is_some()) {
            if let Some(asked) = rule.relieved(policy, scope)? {
                demand.push(asked);
            }
        }
        if demand.is_limited() {
            return Ok(demand);
        }
        let got = format!("endpoint `{}`, which no rule looks for", scope.endpoint());
        Err(InvalidInput::new(Field::Override, got, "a quota of a rule with `overrides`"))
    }
}

impl Rule {
    fn of<'p>(
        &'p self,
        policy: &'p Policy,
        whose: Whose<'_>,
        switches: Option<(&Switches, Timestamp)>,
    ) -> Option<Asked<'static>> {
        let switched = switches.map(|(all, now)| all.of_rule(self.name.as_str(), now));
        let mode = self.mode_under(switched.as_ref(), AskedModes::default());
        if mode == Mode::Off {
            return None;
        }
        let facts = TenantFacts::new(self, whose, None);
        let request = Request::new(&facts, &policy.addresses);
        let subject = match whose {
            Whose::Key(key) => self.keys.written(key)?,
            Whose::Tenant { .. } => self.first_template()?.resolve(&request)?,
        };
        let (limits, plan) = self.limits_of(&subject, &request);
        if limits == UNLIMITED {
            return None;
        }
        let limits = policy.limits.get(limits);
        let emergency = match switches {
            Some((all, now)) if all.blocks_key(self.name.as_str(), subject.as_str(), now) => Emergency::Block,
            _ => switched.map_or(Emergency::Off, |switched| switched.emergency),
        };
        Some(Asked {
            terms: Held::Owned(Arc::clone(&self.terms)),
            limits: Limits::Set(Held::Owned(Arc::clone(limits))),
            plan,
            subject: Cow::Owned(subject.into()),
            cost: 1,
            is_flat: true,
            owner: self.owner_of(&request, limits),
            enforcement: if mode == Mode::On { Enforcement::Enforce } else { Enforcement::Shadow },
            emergency,
        })
    }

    /// The template of most requests. What those count under that have no such key is not the tenant's alone.
    fn first_template(&self) -> Option<&Template> {
        match &self.keys {
            Keys::Templates(templates) => templates.first(),
            Keys::Caller { .. } => None,
        }
    }

    /// The quotas that an override is about, under whichever plan.
    fn relieved(
        &self,
        policy: &Policy,
        scope: OverrideScope<'_>,
    ) -> Result<Option<Asked<'static>>, InvalidInput> {
        let whose =
            Whose::Tenant { organisation: scope.organisation_id(), project: scope.project_id(), plan: None };
        let mut quotas: Vec<(Name, Quota)> = Vec::new();
        for set in self.sets() {
            let set = policy.limits.get(set);
            for (index, (name, quota)) in set.quotas.iter().enumerate() {
                let is_known =
                    quotas.iter().any(|(known, of)| (*known, of.algorithm()) == (*name, quota.algorithm()));
                if !is_known && self.is_about(policy, whose, (set, index, *name), scope) {
                    quotas.push((*name, *quota));
                }
            }
        }
        if quotas.is_empty() {
            return Ok(None);
        }
        let facts = TenantFacts::new(self, whose, None);
        let request = Request::new(&facts, &policy.addresses);
        let subject = self.first_template().and_then(|template| template.resolve(&request));
        let subject = subject.ok_or_else(|| {
            let got = format!("rule `{}`, which counts by more than organisation and project", self.name);
            InvalidInput::new(
                Field::Override,
                got,
                "a reset of the request or key whose counters it is about",
            )
        })?;
        Ok(Some(Asked {
            terms: Held::Owned(Arc::clone(&self.terms)),
            limits: Limits::Set(Held::Owned(Arc::new(LimitSet {
                quotas: quotas.into(),
                ..LimitSet::default()
            }))),
            plan: None,
            subject: Cow::Owned(subject.into()),
            cost: 1,
            is_flat: true,
            owner: None,
            enforcement: Enforcement::Enforce,
            emergency: Emergency::Off,
        }))
    }

    /// The numbers of all sets of limits that a key of this rule may have.
    pub(super) fn sets(&self) -> impl Iterator<Item = u32> {
        let of_plans = self.plans.iter().flat_map(|plans| plans.by_name.values().copied());
        let all = std::iter::once(self.limits).chain(of_plans).chain(self.exact.values().copied());
        all.filter(|set| *set != UNLIMITED)
    }

    /// Whether requests of this tenant would look for this override at this quota.
    fn is_about(
        &self,
        policy: &Policy,
        whose: Whose<'_>,
        (set, index, name): (&LimitSet, usize, Name),
        scope: OverrideScope<'_>,
    ) -> bool {
        // An endpoint of several quotas has their names behind it.
        let route = scope.endpoint();
        let suffix = &name.as_str()[self.name.as_str().len()..];
        let routes = [Some(route), route.strip_suffix(suffix).filter(|_| !suffix.is_empty())];
        routes.into_iter().flatten().any(|route| {
            let facts = TenantFacts::new(self, whose, Some(route));
            let owner = self.owner_of(&Request::new(&facts, &policy.addresses), set);
            owner.is_some_and(|owner| owner.scope(index, name) == Ok(scope))
        })
    }
}

/// The limits of one rule of a policy, as an operator reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleLimits {
    /// The rule.
    pub rule: &'static str,
    /// The templates of its keys; none if the program makes the key.
    pub keys: Vec<String>,
    /// The limits of keys with neither a plan nor limits of their own.
    pub general: Vec<(Name, Quota)>,
    /// Those of plans, by their names.
    pub plans: Vec<(String, Vec<(Name, Quota)>)>,
    /// Those of exactly one key, by key: no quota for one that is not limited. The first of them.
    pub custom: Vec<(String, Vec<(Name, Quota)>)>,
    /// How many of these there are.
    pub custom_count: usize,
}

impl Policy {
    /// The limits of all rules, with at most `custom_max` of the entries for exactly one key of each.
    #[must_use]
    pub fn limits(&self, custom_max: usize) -> Vec<RuleLimits> {
        self.rules.iter().map(|rule| rule.limits_in(&self.limits, custom_max)).collect()
    }
}

impl Rule {
    fn limits_in(&self, sets: &LimitSets, custom_max: usize) -> RuleLimits {
        let quotas = |set: u32| sets.get(set).quotas.to_vec();
        let of_plans = self.plans.iter().flat_map(|plans| &plans.by_name);
        let mut plans: Vec<_> = of_plans.map(|(plan, set)| (plan.to_string(), quotas(*set))).collect();
        plans.sort_by(|one, other| one.0.cmp(&other.0));
        let mut keys: Vec<_> = self.exact.iter().collect();
        keys.sort();
        let custom = keys.into_iter().take(custom_max);
        RuleLimits {
            rule: self.name.label(),
            keys: match &self.keys {
                Keys::Templates(templates) => templates.iter().map(|key| key.as_str().to_owned()).collect(),
                Keys::Caller { .. } => Vec::new(),
            },
            general: quotas(self.limits),
            plans,
            custom: custom.map(|(key, set)| (key.to_string(), quotas(*set))).collect(),
            custom_count: self.exact.len(),
        }
    }
}
