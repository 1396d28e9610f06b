//! One rule.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ratekeeper_core::{Algorithm, LIMIT_MAX, NAME_BYTES_MAX};

use super::limits::{Counting, stated};
use super::penalty::PENALTY;
use super::policy::POLICY;
use super::reader::{Cursor, Fields, Reader};
use super::shape::Shape;
use super::{
    CostSpec, KEYS_MAX, KeySpec, Limits, ORGANISATION_DEFAULT, OverridesSpec, PROJECT_DEFAULT, RuleSpec,
    Scope, Text,
};
use crate::control::{ALL_RULES, Mode};
use crate::engine::OnOutage;
use crate::policy::document::Value;
use crate::policy::expression::{Condition, Cost};

pub(super) static RULE: Shape = Shape {
    what: "a rule",
    fields: &[
        "name",
        "when",
        "keys",
        "caller_key",
        "fallback",
        "quota",
        "quotas",
        "rps",
        "rpm",
        "rph",
        "rpd",
        "algorithm",
        "burst",
        "cost",
        "per_request",
        "plan",
        "plans",
        "custom",
        "unlimited",
        "allow",
        "scope",
        "overrides",
        "mode",
        "enforce_percent",
        "on_outage",
        "penalty",
    ],
    neighbours: &[
        (&POLICY, "it in the policy itself; in TOML, above the first [[rules]]"),
        (&PENALTY, "it under `penalty`"),
        (&OVERRIDES, "it under `overrides`"),
    ],
};

static OVERRIDES: Shape = Shape {
    what: "a table of overrides",
    fields: &["endpoint", "organisation", "project"],
    neighbours: &[(&RULE, "it in the rule itself; in TOML, above [rules.overrides]")],
};

const SCOPES: [(&str, Scope); 2] = [("shared", Scope::Shared), ("process", Scope::Process)];

const AN_EXPRESSION: &str = "an expression such as \"method == 'POST'\"";

impl Reader {
    pub(super) fn rule(&mut self, at: &Cursor<'_>) -> Option<RuleSpec> {
        let fields = self.fields(at, &RULE)?;
        let name = self.rule_name(at, &fields);
        let algorithms = Algorithm::ALL.map(|algorithm| (algorithm.as_str(), algorithm));
        let algorithm = fields.get("algorithm").and_then(|at| self.word(&at, &algorithms));
        let counting = Counting { algorithm };
        let limits = self.rule_limits(at, &fields, counting);
        let plans = self.plans(&fields, counting);
        let custom = fields.get("custom").map(|at| self.custom(&at, counting)).unwrap_or_default();
        let unlimited = fields.get("unlimited").map(|at| self.unlimited(&at, &custom)).unwrap_or_default();
        let keys = self.keys(at, &fields);
        let allow = fields.get("allow").and_then(|at| {
            self.items(&at, "a list of addresses and networks")
                .map(|items| items.iter().filter_map(|item| self.network(item)).collect())
        });
        let scope = fields.get("scope").and_then(|at| self.word(&at, &SCOPES)).unwrap_or_default();
        let rule = RuleSpec {
            when: fields.get("when").and_then(|at| self.parsed(&at, AN_EXPRESSION, Condition::parse)),
            fallback: fields.get("fallback").and_then(|at| self.fallback(&at)),
            plans,
            custom,
            unlimited,
            allow: allow.unwrap_or_default(),
            cost: self.cost(&fields),
            scope,
            overrides: fields.get("overrides").and_then(|at| self.overrides(&at, scope)),
            mode: fields.get("mode").and_then(|at| self.word(&at, &Mode::NAMES)),
            enforce_percent: fields
                .get("enforce_percent")
                .and_then(|at| self.whole(&at, 0, 100))
                .unwrap_or(100),
            on_outage: fields.get("on_outage").and_then(|at| self.word(&at, &OnOutage::NAMES)),
            penalty: fields.get("penalty").and_then(|at| self.penalty(&at)),
            ..RuleSpec::plain(name?, keys?, limits?)
        };
        self.limits_somebody(&fields, &rule);
        self.nameable(&rule);
        Some(rule)
    }

    /// The value of a field that must be there.
    pub(super) fn required<'a>(
        &mut self,
        at: &Cursor<'_>,
        fields: &Fields<'a>,
        field: &str,
        what: &str,
    ) -> Option<Cursor<'a>> {
        let found = fields.get(field);
        if found.is_none() {
            self.report(at, format!("no `{field}`"), format!("`{field}`: {what}"));
        }
        found
    }

    fn rule_name(&mut self, at: &Cursor<'_>, fields: &Fields<'_>) -> Option<Text> {
        let at = self.required(at, fields, "name", "what decisions and headers call the rule")?;
        let name = self.name(&at)?;
        if name == ALL_RULES {
            self.wrong(&at, "another name: this one stands for all rules");
        }
        Some(at.with_text(name))
    }

    fn rule_limits(&mut self, at: &Cursor<'_>, fields: &Fields<'_>, counting: Counting) -> Option<Limits> {
        let limits = self.own_limits(at, fields, counting)?;
        if let (Some(at), Some(algorithm)) = (fields.get("algorithm"), counting.algorithm) {
            let quota = fields.get("quota").map(|quota| &quota.node.value);
            let own = if let Some(Value::Text(text)) = quota { stated(text) } else { None };
            if let Some(own) = own.filter(|own| *own != algorithm) {
                self.report(&at, format!("{algorithm} beside {own} in `quota`"), "one algorithm");
            }
        }
        match fields.get("burst") {
            Some(burst) => self.with_burst(&burst, &limits),
            None => Some(limits),
        }
    }

    fn keys(&mut self, at: &Cursor<'_>, fields: &Fields<'_>) -> Option<KeySpec> {
        let caller = fields.get("caller_key");
        let is_caller = caller.and_then(|at| self.flag(&at)).unwrap_or_default();
        let Some(keys) = fields.get("keys") else {
            if is_caller {
                return Some(KeySpec::Caller);
            }
            let what = "whose quota it is; `caller_key = true` if the program makes the key";
            self.report(at, "no `keys`", format!("`keys`: {what}"));
            return None;
        };
        if let Some(caller) = caller.filter(|_| is_caller) {
            self.report(&caller, "`caller_key` beside `keys`", "templates, or a key that the program makes");
        }
        let items = self.one_or_more(&keys);
        if items.is_empty() || items.len() > KEYS_MAX {
            let got = format!("{} templates", items.len());
            self.report(&keys, got, format!("1 to {KEYS_MAX} templates"));
            return None;
        }
        let mut known = HashSet::new();
        let mut templates = Vec::with_capacity(items.len());
        for item in &items {
            let Some(template) = self.template(item) else { continue };
            if !known.insert(template.text.clone()) {
                self.wrong(item, "each template once: the first that resolves is taken");
            }
            templates.push(template);
        }
        Some(KeySpec::Templates(templates))
    }

    fn fallback(&mut self, at: &Cursor<'_>) -> Option<String> {
        let key = self.text(at, "a key for all requests that have none, such as \"nobody\"")?;
        // `#` marks the digest of a long key.
        if key.contains(['{', '}', '#']) {
            self.wrong(at, "a fixed key without {, } and #; templates belong in `keys`");
        }
        self.exact_key(at, key).map(str::to_owned)
    }

    fn cost(&mut self, fields: &Fields<'_>) -> CostSpec {
        let flat = fields.get("per_request");
        let is_flat = flat.and_then(|at| self.flag(&at)).unwrap_or_default();
        let Some(cost) = fields.get("cost") else {
            return if is_flat { CostSpec::PerRequest } else { CostSpec::Asked };
        };
        if let Some(flat) = flat.filter(|_| is_flat) {
            self.report(&flat, "`per_request` beside `cost`", "one of them");
        }
        let cost = match cost.node.value {
            Value::Text(_) => self
                .parsed(&cost, "an expression such as \"size(body.items)\"", Cost::parse)
                .map(CostSpec::Expression),
            Value::Integer(_) | Value::Float(_) => self.whole(&cost, 1, LIMIT_MAX).map(CostSpec::Units),
            _ => {
                self.wrong(&cost, format!("a whole number from 1 to {LIMIT_MAX}, or an expression"));
                None
            }
        };
        cost.unwrap_or(CostSpec::Asked)
    }

    fn overrides(&mut self, at: &Cursor<'_>, scope: Scope) -> Option<OverridesSpec> {
        let defaults = || OverridesSpec {
            endpoint: None,
            organisation: at.with_text(ORGANISATION_DEFAULT),
            project: at.with_text(PROJECT_DEFAULT),
        };
        let overrides = match at.node.value {
            Value::Bool(false) => return None,
            Value::Bool(true) => defaults(),
            Value::Table(_) => {
                let fields = self.fields(at, &OVERRIDES)?;
                let mut template = |field: &str| fields.get(field).and_then(|at| self.template(&at));
                let (endpoint, organisation) = (template("endpoint"), template("organisation"));
                let (project, defaults) = (template("project"), defaults());
                OverridesSpec {
                    endpoint,
                    organisation: organisation.unwrap_or(defaults.organisation),
                    project: project.unwrap_or(defaults.project),
                }
            }
            _ => {
                self.wrong(at, "true, false, or a table of templates: endpoint, organisation, project");
                return None;
            }
        };
        if scope == Scope::Process {
            let expected = "one of them: overrides are kept in the store that all instances share";
            self.report(at, "`overrides` beside `scope = \"process\"`", expected);
        }
        Some(overrides)
    }

    fn limits_somebody(&mut self, fields: &Fields<'_>, rule: &RuleSpec) {
        let limited = |limits: &Limits| *limits != Limits::Unlimited;
        let mut plans = rule.plans.iter().flat_map(|plans| plans.limits.values());
        if !limited(&rule.limits) && !plans.any(limited) && !rule.custom.values().any(limited) {
            let Some(quota) = fields.get("quota") else { return };
            self.wrong(&quota, "a limit, here or in `plans` or `custom`: this limits nobody");
        }
    }

    /// Notes counters whose names would be too long.
    fn nameable(&mut self, rule: &RuleSpec) {
        if let Some(name) = rule.counter_names().find(|name| name.len() > NAME_BYTES_MAX) {
            let got = format!("a counter with a name of {} bytes", name.len());
            let expected = format!("at most {NAME_BYTES_MAX} bytes for the names of rule and quota together");
            self.report_text(&rule.name, got, expected);
        }
    }
}

impl RuleSpec {
    /// A rule that says nothing but the necessary.
    pub(super) fn plain(name: Text, keys: KeySpec, limits: Limits) -> Self {
        Self {
            name,
            when: None,
            keys,
            fallback: None,
            limits,
            plans: None,
            custom: BTreeMap::new(),
            unlimited: BTreeSet::new(),
            allow: Vec::new(),
            cost: CostSpec::Asked,
            scope: Scope::Shared,
            overrides: None,
            mode: None,
            enforce_percent: 100,
            on_outage: None,
            penalty: None,
        }
    }

    /// What its counters are called: `rule`, or `rule.quota`; each name once.
    pub(in crate::policy) fn counter_names(&self) -> impl Iterator<Item = String> {
        let plans = self.plans.iter().flat_map(|plans| plans.limits.values());
        let all = std::iter::once(&self.limits).chain(plans).chain(self.custom.values());
        let quotas = all.flat_map(|limits| match limits {
            Limits::Unlimited => [].iter(),
            Limits::Quotas(quotas) => quotas.iter(),
        });
        let names: BTreeSet<&str> = quotas.map(|quota| quota.name.as_ref()).collect();
        let rule = &self.name.text;
        names
            .into_iter()
            .map(move |name| if name.is_empty() { rule.clone() } else { format!("{rule}.{name}") })
    }
}
