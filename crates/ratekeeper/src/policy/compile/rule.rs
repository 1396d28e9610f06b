//! One rule, ready to be asked.

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::{InvalidInput, Level, Name};

use super::penalty;
use super::{Compiler, KeyFunction, LimitSets, UNLIMITED};
use crate::control::{Mode, Switched};
use crate::engine::{Penalty, RuleCounters, Terms};
use crate::policy::apply::AskedModes;
use crate::policy::expression::{Condition, Cost};
use crate::policy::request::Needs;
use crate::policy::spec::{CostSpec, KeySpec, Network, OverridesSpec, RuleSpec};
use crate::policy::template::{KeyHashing, Subject, Template};

#[derive(Debug)]
pub(in crate::policy) struct Rule {
    pub(in crate::policy) name: Name,
    pub(in crate::policy) when: Option<Condition>,
    pub(in crate::policy) keys: Keys,
    pub(in crate::policy) fallback: Option<Subject>,
    /// The limits of whoever has no others.
    pub(in crate::policy) limits: u32,
    pub(in crate::policy) plans: Option<Plans>,
    /// Limits by exact subject: `custom` and `unlimited`.
    pub(in crate::policy) exact: HashMap<Box<str>, u32>,
    pub(in crate::policy) allow: Box<[Network]>,
    pub(in crate::policy) cost: RuleCost,
    pub(in crate::policy) owner: Option<OwnerTemplates>,
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

#[derive(Debug)]
pub(in crate::policy) enum RuleCost {
    Asked,
    One,
    Units(u32),
    Expression(Cost),
}

/// Where the names of whose overrides apply come from.
#[derive(Debug)]
pub(in crate::policy) struct OwnerTemplates {
    pub(in crate::policy) endpoint: Option<Template>,
    pub(in crate::policy) organisation: Template,
    pub(in crate::policy) project: Template,
}

impl Rule {
    /// What it does under the switches of the store, for whoever asks so.
    #[inline]
    pub(in crate::policy) fn mode_under(&self, switch: Option<&Switched>, asked: AskedModes) -> Mode {
        match (switch, asked) {
            (None, AskedModes { at_most: None, outside: None }) => self.mode,
            _ => self.mode_worked_out(switch.copied().unwrap_or_default(), asked),
        }
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
    /// The rule, unless something is wrong with it.
    pub(super) fn rule(
        &mut self,
        spec: &RuleSpec,
        limits: &mut LimitSets,
        counters: Arc<RuleCounters>,
    ) -> Option<Rule> {
        let hashing = self.spec.hash_keys.then(|| self.options.hashing.clone());
        let name = self.named(spec, Name::within(&self.spec.service, &spec.name.text))?;
        let when = spec.when.as_ref().map(|text| self.parsed(text, Condition::parse(&text.text)));
        let keys = self.keys(spec, hashing.as_ref());
        let plans = self.plans(spec, name, limits);
        let cost = self.cost(spec);
        let owner = spec.overrides.as_ref().map(|overrides| self.owner(overrides));
        let own_limits = limits.add(name, &spec.limits, Level::Default);
        let own_limits = self.named(spec, own_limits);
        let penalty = spec.penalty.as_ref().map(|penalty| self.penalty(spec, name, penalty));
        let (fallback, exact) = match &keys {
            Some(keys) => (fallback(spec, keys), self.exact(spec, keys, name, limits)),
            None => (None, HashMap::new()),
        };
        let (outside, default) = (self.options.mode, self.spec.mode);
        let switched = Switched { service_mode: outside, ..Switched::default() };
        let mut rule = Rule {
            name,
            when: flat(when)?,
            keys: keys?,
            fallback,
            limits: own_limits?,
            plans: flat(plans)?,
            exact,
            allow: spec.allow.clone().into(),
            cost: cost?,
            owner: flat(owner)?,
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
                penalty: flat(penalty)?,
                counters,
            }),
            needs: Needs::default(),
        };
        rule.needs = rule.all_needs();
        Some(rule)
    }

    /// What could be given its name, or a problem at the rule's.
    fn named<T>(&mut self, spec: &RuleSpec, result: Result<T, InvalidInput>) -> Option<T> {
        result.map_err(|error| self.wrong(&spec.name, error.got, error.expected)).ok()
    }

    fn keys(&mut self, spec: &RuleSpec, hashing: Option<&KeyHashing>) -> Option<Keys> {
        let texts = match &spec.keys {
            KeySpec::Templates(texts) => texts,
            KeySpec::Caller => {
                let function = self.options.key_functions.get(&spec.name.text).cloned();
                return Some(Keys::Caller { function, hashing: hashing.cloned() });
            }
        };
        let mut templates: Vec<Template> = Vec::with_capacity(texts.len());
        for text in texts {
            let Some(template) = self.parsed(text, Template::parse(&text.text)) else { continue };
            let template = match hashing {
                Some(hashing) => template.hash_values(hashing),
                None => template,
            };
            if let Some(other) = templates.iter().find(|other| other.overlaps(&template)) {
                let got = format!("a key that a request can also have from \"{}\"", other.as_str());
                let expected = "templates that begin differently, such as \"user:{...}\" and \"ip:{...}\": \
                                whoever chooses a value of one could use up the limit of another";
                self.wrong(text, got, expected);
            }
            templates.push(template);
        }
        (templates.len() == texts.len()).then(|| Keys::Templates(templates.into()))
    }

    /// Limits by subject. An entry that no request can have is a warning: the
    /// others are none the worse for it.
    fn exact(
        &mut self,
        spec: &RuleSpec,
        keys: &Keys,
        name: Name,
        limits: &mut LimitSets,
    ) -> HashMap<Box<str>, u32> {
        let mut exact = HashMap::with_capacity(spec.custom.len() + spec.unlimited.len());
        for (key, of_key) in &spec.custom {
            let set = limits.add(name, of_key, Level::Custom);
            let (Some(set), Some(subject)) =
                (self.named(spec, set), self.reachable(spec, keys, key, "custom"))
            else {
                continue;
            };
            exact.insert(subject, set);
        }
        for key in &spec.unlimited {
            exact.extend(self.reachable(spec, keys, key, "unlimited").map(|subject| (subject, UNLIMITED)));
        }
        exact
    }

    fn reachable(&mut self, spec: &RuleSpec, keys: &Keys, key: &str, field: &str) -> Option<Box<str>> {
        let subject = match keys {
            Keys::Templates(templates) => templates.iter().find_map(|template| template.subject_of(key)),
            Keys::Caller { hashing, .. } => Subject::of_caller(key, hashing.as_ref()),
        };
        let is_fallback = spec.fallback.as_deref() == Some(key);
        let subject = subject.or_else(|| fallback(spec, keys).filter(|_| is_fallback));
        if subject.is_none() {
            let path = spec.name.path.strip_suffix("name").unwrap_or_default();
            let got = format!("\"{key}\", which no request has as its key");
            self.warn(spec.name.at, &format!("{path}{field}"), got, "a key as one of `keys` writes it");
        }
        subject.map(|subject| String::from(subject).into())
    }

    fn plans(&mut self, spec: &RuleSpec, name: Name, limits: &mut LimitSets) -> Option<Option<Plans>> {
        let plans = spec.plans.as_ref()?;
        let plan = self.parsed(&plans.plan, Template::parse(&plans.plan.text));
        let mut by_name = HashMap::with_capacity(plans.limits.len());
        for (of_plan, spec_limits) in &plans.limits {
            let set = limits.add(name, spec_limits, Level::Plan);
            by_name.extend(self.named(spec, set).map(|set| (of_plan.as_str().into(), set)));
        }
        Some(plan.map(|plan| Plans { plan, by_name }))
    }

    fn cost(&mut self, spec: &RuleSpec) -> Option<RuleCost> {
        Some(match &spec.cost {
            CostSpec::Asked => RuleCost::Asked,
            CostSpec::PerRequest => RuleCost::One,
            CostSpec::Units(units) => RuleCost::Units(*units),
            CostSpec::Expression(text) => {
                let cost = self.parsed(text, Cost::parse(&text.text))?;
                cost.fixed().map_or(RuleCost::Expression(cost), RuleCost::Units)
            }
        })
    }

    fn owner(&mut self, spec: &OverridesSpec) -> Option<OwnerTemplates> {
        let endpoint = spec.endpoint.as_ref().map(|text| self.parsed(text, Template::parse(&text.text)));
        let organisation = self.parsed(&spec.organisation, Template::parse(&spec.organisation.text));
        let project = self.parsed(&spec.project, Template::parse(&spec.project.text));
        Some(OwnerTemplates { endpoint: flat(endpoint)?, organisation: organisation?, project: project? })
    }

    fn penalty(
        &mut self,
        spec: &RuleSpec,
        name: Name,
        of_spec: &crate::policy::spec::PenaltySpec,
    ) -> Option<Penalty> {
        let reserved = |counter: &String| {
            let quota = counter.strip_prefix(&spec.name.text).and_then(|rest| rest.strip_prefix('.'));
            quota.is_some_and(|quota| penalty::NAMES.contains(&quota))
        };
        if let Some(taken) = spec.counter_names().find(reserved) {
            let got = format!("a quota `{taken}` beside `penalty`");
            self.wrong(&spec.name, got, "another name: this one is what the penalty counts under");
        }
        self.named(spec, penalty::of(name, of_spec))
    }
}

/// The subject of requests without a key. It may be one that other requests have:
/// then they count together.
fn fallback(spec: &RuleSpec, keys: &Keys) -> Option<Subject> {
    let key = spec.fallback.as_ref()?;
    let written = match keys {
        Keys::Templates(templates) => templates.iter().find_map(|template| template.subject_of(key)),
        Keys::Caller { hashing, .. } => Subject::of_caller(key, hashing.as_ref()),
    };
    written.or_else(|| Subject::of_caller(key, None))
}

/// What is absent, what is there, or (nothing) what is wrong.
fn flat<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(None) => None,
        Some(value) => Some(value),
    }
}
