//! One rule.

use std::collections::BTreeSet;

use ratekeeper_core::{Algorithm, LIMIT_MAX};

use super::check::{A_FALLBACK, A_GROUP, A_NAME, ANOTHER_RULE, EACH_TEMPLATE_ONCE, so_many};
use super::limits::{Counting, stated};
use super::penalty::PENALTY;
use super::policy::POLICY;
use super::reader::{Cursor, Fields, Reader};
use super::shape::Shape;
use super::{
    CostSpec, KEYS_MAX, KeySpec, Limits, OnError, OverridesSpec, Places, REPLACES_MAX, RuleSpec, Scope,
};
use crate::control::Mode;
use crate::engine::OnOutage;
use crate::policy::document::Value;
use crate::policy::expression::{Condition, Cost};

pub(super) static RULE: Shape = Shape {
    what: "a rule",
    fields: "name when first_of any_of replaces on_error keys caller_key fallback quota quotas rps rpm rph rpd algorithm \
             burst cost cost_on_error per_request plan plans custom unlimited allow scope overrides \
             mode enforce_percent on_outage penalty",
    neighbours: &[
        (&POLICY, "it in the policy itself; in TOML, above the first [[rules]]"),
        (&PENALTY, "it under `penalty`"),
        (&OVERRIDES, "it under `overrides`"),
    ],
};

static OVERRIDES: Shape = Shape {
    what: "a table of overrides",
    fields: "endpoint organisation project",
    neighbours: &[(&RULE, "it in the rule itself; in TOML, above [rules.overrides]")],
};

const SCOPES: [(&str, Scope); 2] = [("shared", Scope::Shared), ("process", Scope::Process)];

impl Reader {
    pub(super) fn rule(&mut self, at: &Cursor<'_>) -> Option<RuleSpec> {
        let fields = self.fields(at, &RULE)?;
        let name = self.required(at, &fields, "name", "what decisions and headers call the rule");
        let name = name.and_then(|at| self.text(&at, A_NAME));
        let algorithms = Algorithm::ALL.map(|algorithm| (algorithm.as_str(), algorithm));
        let algorithm = fields.get("algorithm").and_then(|at| self.word(&at, &algorithms));
        let counting = Counting { algorithm };
        let limits = self.rule_limits(at, &fields, counting);
        let plans = self.plans(&fields, counting);
        let custom = fields.get("custom").map(|at| self.custom(&at, counting)).unwrap_or_default();
        let unlimited = fields.get("unlimited").map(|at| self.unlimited(&at, &custom)).unwrap_or_default();
        let mut places = Places { path: at.path(), fields: fields.places() };
        let keys = self.keys(at, &fields, &mut places);
        let allow = fields.get("allow").and_then(|at| {
            self.items(&at, "a list of addresses and networks")
                .map(|items| items.iter().filter_map(|item| self.network(item)).collect())
        });
        let an_expression = "an expression such as \"method == 'POST'\"";
        let fallback = fields.get("fallback").and_then(|at| self.text(&at, A_FALLBACK));
        Some(RuleSpec {
            when: fields.get("when").and_then(|at| self.parsed(&at, an_expression, Condition::parse)),
            first_of: fields.get("first_of").and_then(|at| self.text(&at, A_GROUP)).map(str::to_owned),
            any_of: fields.get("any_of").and_then(|at| self.text(&at, A_GROUP)).map(str::to_owned),
            replaces: fields.get("replaces").map(|at| self.replaces(&at)).unwrap_or_default(),
            on_error: fields
                .get("on_error")
                .and_then(|at| self.word(&at, &OnError::NAMES))
                .unwrap_or_default(),
            fallback: fallback.map(str::to_owned),
            plans,
            custom,
            unlimited,
            allow: allow.unwrap_or_default(),
            cost: self.cost(&fields),
            cost_on_error: fields.get("cost_on_error").and_then(|at| self.whole(&at, 1, LIMIT_MAX)),
            scope: fields.get("scope").and_then(|at| self.word(&at, &SCOPES)).unwrap_or_default(),
            overrides: fields.get("overrides").and_then(|at| self.overrides(&at)),
            mode: fields.get("mode").and_then(|at| self.word(&at, &Mode::NAMES)),
            enforce_percent: fields
                .get("enforce_percent")
                .and_then(|at| self.whole(&at, 0, 100))
                .unwrap_or(100),
            on_outage: fields.get("on_outage").and_then(|at| self.word(&at, &OnOutage::NAMES)),
            penalty: fields.get("penalty").and_then(|at| self.penalty(&at)),
            places,
            ..RuleSpec::new(name?, keys?, limits?)
        })
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

    fn keys(&mut self, at: &Cursor<'_>, fields: &Fields<'_>, places: &mut Places) -> Option<KeySpec> {
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
        self.checked(&keys, so_many("templates", items.len(), 1, KEYS_MAX))?;
        places.fields.extend((0..).zip(&items).map(|(index, item)| (format!("keys[{index}]"), item.node.at)));
        let mut templates = Vec::with_capacity(items.len());
        for item in &items {
            let mut template = self.template(item);
            if template.is_some() && templates.contains(&template) {
                template = self.unfit(item, EACH_TEMPLATE_ONCE);
            }
            templates.push(template);
        }
        let templates: Option<Vec<_>> = templates.into_iter().collect();
        // Of templates that are wrong, enough is noted.
        Some(templates.map_or(KeySpec::Caller, KeySpec::Templates))
    }

    /// The names of rules, one or a list of them.
    fn replaces(&mut self, at: &Cursor<'_>) -> BTreeSet<String> {
        let items = self.one_or_more(at);
        if self.checked(at, so_many("rules", items.len(), 0, REPLACES_MAX)).is_none() {
            return BTreeSet::new();
        }
        let names = items.iter().filter_map(|item| self.text(item, ANOTHER_RULE));
        names.map(str::to_owned).collect()
    }

    fn cost(&mut self, fields: &Fields<'_>) -> CostSpec {
        let flat = fields.get("per_request");
        let is_flat = flat.and_then(|at| self.flag(&at)).unwrap_or_default();
        let Some(cost) = fields.get("cost") else {
            return if is_flat { CostSpec::One } else { CostSpec::Asked };
        };
        if let Some(flat) = flat.filter(|_| is_flat) {
            self.report(&flat, "`per_request` beside `cost`", "one of them");
        }
        let cost = match cost.node.value {
            Value::Text(_) => {
                let expected = "an expression such as \"size(body.items)\"";
                self.parsed(&cost, expected, Cost::parse).map(CostSpec::Expression)
            }
            Value::Integer(_) | Value::Float(_) => self.whole(&cost, 1, LIMIT_MAX).map(CostSpec::Units),
            _ => self.unfit(&cost, format!("a whole number from 1 to {LIMIT_MAX}, or an expression")),
        };
        cost.unwrap_or(CostSpec::Asked)
    }

    fn overrides(&mut self, at: &Cursor<'_>) -> Option<OverridesSpec> {
        let fields = match at.node.value {
            Value::Bool(false) => return None,
            Value::Bool(true) => None,
            Value::Table(_) => Some(self.fields(at, &OVERRIDES)?),
            _ => {
                return self
                    .unfit(at, "true, false, or a table of templates: endpoint, organisation, project");
            }
        };
        let mut given = |field: &str| self.template(&fields.as_ref()?.get(field)?);
        let (endpoint, organisation, project) = (given("endpoint"), given("organisation"), given("project"));
        let default = OverridesSpec::default();
        Some(OverridesSpec {
            endpoint,
            organisation: organisation.unwrap_or(default.organisation),
            project: project.unwrap_or(default.project),
        })
    }
}
