//! One rule, ready to be asked.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ratekeeper_core::{Emergency, InvalidInput, Level, Name};

use super::penalty;
use super::{Compiler, KeyFunction, LimitSets, UNLIMITED};
use crate::control::{Mode, Switched};
use crate::engine::{OnOutage, RuleCounters, Scope, Terms};
use crate::policy::apply::AskedModes;
use crate::policy::expression::Condition;
use crate::policy::request::Needs;
use crate::policy::spec::{
    CostSpec as RuleCost, KeySpec, Network, OnError, OverridesSpec, PlansSpec, RuleSpec,
};
use crate::policy::template::{KeyHashing, Subject, Template};

#[derive(Debug)]
pub(in crate::policy) struct Rule {
    pub(in crate::policy) name: Name,
    pub(in crate::policy) when: Option<Condition>,
    /// The number of its group of which only the first rule has a say.
    pub(in crate::policy) first_of: Option<u16>,
    /// Rules that have no say where it applies.
    pub(in crate::policy) replaces: Box<[Name]>,
    pub(in crate::policy) on_error: OnError,
    pub(in crate::policy) keys: Keys,
    pub(in crate::policy) fallback: Option<Subject>,
    /// The limits of whoever has no others.
    pub(in crate::policy) limits: u32,
    pub(in crate::policy) plans: Option<Plans>,
    /// Limits by exact subject: `custom` and `unlimited`.
    pub(in crate::policy) exact: HashMap<Box<str>, u32>,
    pub(in crate::policy) allow: Box<[Network]>,
    pub(in crate::policy) cost: RuleCost,
    pub(in crate::policy) cost_on_error: Option<u32>,
    pub(in crate::policy) owner: Option<OverridesSpec>,
    own_mode: Option<Mode>,
    default_mode: Mode,
    outside_mode: Option<Mode>,
    /// What it does unless a switch says otherwise.
    pub(in crate::policy) mode: Mode,
    pub(in crate::policy) enforce_percent: u8,
    /// What the engine has to know of it.
    pub(in crate::policy) terms: Arc<Terms>,
    /// What must be known of a request before it can be asked.
    pub(in crate::policy) needs: Needs,
}

#[derive(Debug)]
pub(in crate::policy) enum Keys {
    Templates(Box<[Template]>),
    /// The program makes the key, or a function of it does.
    Caller {
        function: Option<KeyFunction>,
        hashing: Option<KeyHashing>,
    },
}

#[derive(Debug)]
pub(in crate::policy) struct Plans {
    pub(in crate::policy) plan: Template,
    pub(in crate::policy) by_name: HashMap<Arc<str>, u32>,
}

impl Rule {
    /// What it does under the switches of the store, for whoever asks so.
    #[inline]
    pub(in crate::policy) fn mode_under(&self, switch: Option<&Switched>, asked: AskedModes) -> Mode {
        match (switch, asked) {
            (None, AskedModes { at_most: None, outside: None, .. }) => self.mode,
            _ => self.mode_worked_out(switch.copied().unwrap_or_default(), asked),
        }
    }

    /// Whether it denies while the store cannot be asked, if it is enforced.
    pub(in crate::policy) fn denies_in_outage(&self, switched: Switched) -> bool {
        let (terms, percent) = (&self.terms, switched.enforce_percent.unwrap_or(self.enforce_percent));
        let denies = match switched.emergency {
            Emergency::Lift => false,
            Emergency::Block => true,
            Emergency::Off => terms.scope == Scope::Shared && terms.on_outage == OnOutage::Deny,
        };
        denies && percent > 0
    }

    fn mode_worked_out(&self, switch: Switched, asked: AskedModes) -> Mode {
        let outside = asked.at_most.or(asked.outside).or(self.outside_mode);
        let service_mode = switch.service_mode.or(outside);
        let mode = Switched { service_mode, ..switch }.mode(self.own_mode, self.default_mode);
        mode.max(asked.at_most.unwrap_or_default())
    }

    fn all_needs(&self) -> Needs {
        let mut needs = Needs::default();
        let mut add = |more: Needs| needs |= more;
        self.when.iter().for_each(|when| add(when.needs()));
        if let Keys::Templates(templates) = &self.keys {
            templates.iter().for_each(|template| add(template.needs()));
        }
        self.plans.iter().for_each(|plans| add(plans.plan.needs()));
        if let RuleCost::Expression(cost) = &self.cost {
            add(cost.needs());
        }
        if let Some(owner) = &self.owner {
            let templates = owner.endpoint.iter().chain([&owner.organisation, &owner.project]);
            templates.for_each(|template| add(template.needs()));
        }
        if !self.allow.is_empty() {
            add(Needs { client: true, ..Needs::default() });
        }
        needs
    }
}

impl Compiler<'_> {
    /// The rule.
    ///
    /// # Errors
    /// If there is no name for it, or for one of its counters.
    pub(super) fn rule(
        &mut self,
        spec: &RuleSpec,
        limits: &mut LimitSets,
        counters: Arc<RuleCounters>,
    ) -> Result<Rule, InvalidInput> {
        let name = Name::within(&self.spec.service, &spec.name)?;
        let keys = self.keys(spec);
        let (outside, default) = (self.options.mode, self.spec.mode);
        let switched = Switched { service_mode: outside, ..Switched::default() };
        let mut rule = Rule {
            name,
            when: spec.when.clone(),
            first_of: spec.first_of.as_deref().and_then(|group| self.group(group)),
            replaces: self.names(&spec.replaces)?,
            on_error: spec.on_error,
            fallback: spec.fallback.as_deref().map(Subject::of_fallback),
            limits: limits.add(name, &spec.limits, Level::Default)?,
            plans: spec.plans.as_ref().map(|plans| Plans::new(plans, name, limits)).transpose()?,
            exact: self.exact(spec, &keys, name, limits)?,
            keys,
            allow: spec.allow.clone().into(),
            cost: spec.cost.clone(),
            cost_on_error: spec.cost_on_error,
            owner: spec.overrides.clone(),
            own_mode: spec.mode,
            default_mode: default,
            outside_mode: outside,
            mode: switched.mode(spec.mode, default),
            enforce_percent: spec.enforce_percent,
            terms: Arc::new(Terms {
                name,
                scope: spec.scope,
                on_outage: spec.on_outage.unwrap_or(self.spec.on_outage),
                instances: self.options.instances.get(),
                any_of: spec.any_of.as_deref().map(Arc::from),
                penalty: spec.penalty.as_ref().map(|penalty| penalty::of(name, penalty)).transpose()?,
                counters,
            }),
            needs: Needs::default(),
        };
        rule.needs = rule.all_needs();
        Ok(rule)
    }

    /// The number of a group: that of the first rule in it.
    fn group(&self, group: &str) -> Option<u16> {
        let mut rules = (0..).zip(&self.spec.rules);
        rules.find(|(_, rule)| rule.first_of.as_deref() == Some(group)).map(|(number, _)| number)
    }

    fn names(&self, rules: &BTreeSet<String>) -> Result<Box<[Name]>, InvalidInput> {
        rules.iter().map(|rule| Name::within(&self.spec.service, rule)).collect()
    }

    fn keys(&self, spec: &RuleSpec) -> Keys {
        let hashing = self.spec.hash_keys.then_some(&self.options.hashing);
        match &spec.keys {
            KeySpec::Templates(templates) => {
                Keys::Templates(templates.iter().map(|key| key.clone().hashed(hashing)).collect())
            }
            KeySpec::Caller => {
                let function = self.options.key_functions.get(&spec.name).cloned();
                Keys::Caller { function, hashing: hashing.cloned() }
            }
        }
    }

    /// Limits by subject. An entry that no request can have is a warning: the
    /// others are none the worse for it.
    fn exact(
        &mut self,
        spec: &RuleSpec,
        keys: &Keys,
        name: Name,
        limits: &mut LimitSets,
    ) -> Result<HashMap<Box<str>, u32>, InvalidInput> {
        let mut exact = HashMap::with_capacity(spec.custom.len() + spec.unlimited.len());
        for (key, of_key) in &spec.custom {
            let set = limits.add(name, of_key, Level::Custom)?;
            exact.extend(self.reachable(spec, keys, key, "custom").into_iter().map(|subject| (subject, set)));
        }
        for key in &spec.unlimited {
            let subjects = self.reachable(spec, keys, key, "unlimited");
            exact.extend(subjects.into_iter().map(|subject| (subject, UNLIMITED)));
        }
        Ok(exact)
    }

    /// The subjects that a key written by hand stands for: that of requests with this key, and that of
    /// requests without any, if it is what they count under.
    fn reachable(&mut self, spec: &RuleSpec, keys: &Keys, key: &str, field: &str) -> Vec<Box<str>> {
        let is_fallback = spec.fallback.as_deref() == Some(key);
        let fallback = is_fallback.then(|| Subject::of_fallback(key));
        let subjects: Vec<Subject> = keys.written(key).into_iter().chain(fallback).collect();
        if subjects.is_empty() {
            let place = (spec.place_of("name").0, spec.place_of(field).1);
            let got = format!("\"{key}\", which no request has as its key");
            self.warn(place, got, "a key as one of `keys` writes it");
        }
        subjects.into_iter().map(|subject| String::from(subject).into()).collect()
    }
}

impl Keys {
    /// The subject of requests whose key somebody wrote by hand.
    pub(in crate::policy) fn written(&self, key: &str) -> Option<Subject> {
        match self {
            Keys::Templates(templates) => templates.iter().find_map(|template| template.subject_of(key)),
            Keys::Caller { hashing, .. } => Subject::of_caller(key, hashing.as_ref()),
        }
    }
}

impl Plans {
    fn new(spec: &PlansSpec, rule: Name, limits: &mut LimitSets) -> Result<Self, InvalidInput> {
        let plans = spec.limits.iter();
        let by_name =
            plans.map(|(plan, of_plan)| Ok((plan.as_str().into(), limits.add(rule, of_plan, Level::Plan)?)));
        Ok(Self { by_name: by_name.collect::<Result<_, _>>()?, plan: spec.plan.clone() })
    }
}
