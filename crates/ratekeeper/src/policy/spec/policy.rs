//! The policy itself, and the documents in which services keep theirs.

use ratekeeper_core::Algorithm;

use super::check::{A_NAME, AT_LEAST_ONE_RULE, proxy, service_name, so_many};
use super::limits::Counting;
use super::reader::{Cursor, Fields, Reader};
use super::rule::RULE;
use super::shape::Shape;
use super::{
    GENERAL_RULE, IPV6_PREFIX_DEFAULT, KeySpec, Limits, Network, Places, PolicySpec, RULES_MAX, RuleSpec,
    StoreUrl,
};
use crate::control::Mode;
use crate::engine::OnOutage;
use crate::policy::address::ProxyHeader;
use crate::policy::document::{Node, Value};
use crate::policy::expression::{STEPS_DEFAULT, STEPS_MAX, STEPS_MIN};
use crate::policy::problem::Problems;

pub(super) static POLICY: Shape = Shape {
    what: "a policy",
    fields: "$schema service mode store on_outage trusted_proxies proxy_header ipv6_prefix \
             hash_keys condition_steps rules",
    neighbours: &[(&RULE, "it in a rule, under `rules`")],
};

static SERVICE_DOCUMENT: Shape = Shape {
    what: "a service's document",
    fields: "_id last_updated general_rate_limit custom_rate_limits $schema mode store \
             on_outage trusted_proxies proxy_header ipv6_prefix hash_keys condition_steps rules",
    neighbours: &[(&RULE, "it in a rule, under `rules`")],
};

const PROXY_HEADERS: [(&str, ProxyHeader); 2] =
    [("x-forwarded-for", ProxyHeader::XForwardedFor), ("forwarded", ProxyHeader::Forwarded)];

/// Whether it can be an instant: a date, a text, or the number of seconds or milliseconds.
fn is_instant(value: &Value) -> bool {
    matches!(value, Value::Text(_) | Value::Date(_) | Value::Integer(_) | Value::Float(_))
}

/// Whether a document has the fields that only services' documents have.
pub(super) fn is_service_document(document: &Node) -> bool {
    let Value::Table(entries) = &document.value else { return false };
    entries
        .iter()
        .any(|entry| matches!(entry.key.as_str(), "_id" | "general_rate_limit" | "custom_rate_limits"))
}

pub(super) fn decode(source: &str, document: &Node, of_service: bool) -> Result<PolicySpec, Problems> {
    let mut reader = Reader::new(source, of_service);
    let root = Cursor::root(document);
    let spec = reader.policy(&root, of_service);
    reader.finish(spec)
}

impl Reader {
    fn policy(&mut self, at: &Cursor<'_>, of_service: bool) -> Option<PolicySpec> {
        let fields = self.fields(at, if of_service { &SERVICE_DOCUMENT } else { &POLICY })?;
        if let Some(schema) = fields.get("$schema") {
            self.text(&schema, "the address of a JSON schema");
        }
        let field = if of_service { "_id" } else { "service" };
        let service = self.required(at, &fields, field, "the name of the service");
        let service = service
            .and_then(|at| self.parsed(&at, A_NAME, |name| service_name(name).map(|()| name.to_owned())));
        let mut rules = Vec::new();
        if of_service {
            rules.extend(self.general(at, &fields));
        }
        self.rules(at, &fields, of_service, &mut rules);
        let hash_keys = fields.get("hash_keys").and_then(|at| self.flag(&at)).unwrap_or_default();
        self.problems.of_rules(&rules, hash_keys);
        Some(PolicySpec {
            mode: fields.get("mode").and_then(|at| self.word(&at, &Mode::NAMES)).unwrap_or_default(),
            store: fields.get("store").and_then(|at| self.parsed(&at, &StoreUrl::expected(), str::parse)),
            on_outage: fields
                .get("on_outage")
                .and_then(|at| self.word(&at, &OnOutage::NAMES))
                .unwrap_or_default(),
            trusted_proxies: fields.get("trusted_proxies").map_or_else(Vec::new, |at| self.proxies(&at)),
            proxy_header: fields
                .get("proxy_header")
                .and_then(|at| self.word(&at, &PROXY_HEADERS))
                .unwrap_or_default(),
            ipv6_prefix: fields
                .get("ipv6_prefix")
                .and_then(|at| self.whole(&at, 1, 128))
                .unwrap_or(IPV6_PREFIX_DEFAULT),
            hash_keys,
            condition_steps: fields
                .get("condition_steps")
                .and_then(|at| self.whole(&at, STEPS_MIN, STEPS_MAX))
                .unwrap_or(STEPS_DEFAULT),
            rules,
            // Last, because a wrong name must not hide what else is wrong.
            service: service?,
        })
    }

    fn proxies(&mut self, at: &Cursor<'_>) -> Vec<Network> {
        let items =
            self.items(at, "a list of addresses and networks, such as [\"10.0.0.0/8\"]").unwrap_or_default();
        let mut proxies = Vec::with_capacity(items.len());
        for item in &items {
            let network = self.network(item);
            proxies.extend(network.filter(|network| self.checked(item, proxy(network)).is_some()));
        }
        proxies
    }

    pub(super) fn network(&mut self, at: &Cursor<'_>) -> Option<Network> {
        let expected = "an address or a network such as 10.0.0.0/8 or 2001:db8::/32";
        let text = self.text(at, expected)?;
        text.parse().map_err(|expected: String| self.wrong(at, expected)).ok()
    }

    /// Adds the rules of a document to the one that a service's may have.
    fn rules(&mut self, at: &Cursor<'_>, fields: &Fields<'_>, of_service: bool, rules: &mut Vec<RuleSpec>) {
        let mut general = ["general_rate_limit", "custom_rate_limits"].iter();
        let is_enough = of_service && general.any(|field| fields.get(field).is_some());
        let Some(at_rules) = fields.get("rules") else {
            if !is_enough {
                self.report(at, "no rules", "at least one rule under `rules`");
            }
            return;
        };
        let Some(items) = self.items(&at_rules, "a list of rules") else { return };
        if items.is_empty() && !is_enough {
            self.report(&at_rules, "no rules", AT_LEAST_ONE_RULE);
        }
        if self.checked(&at_rules, so_many("rules", items.len(), 0, RULES_MAX)).is_some() {
            rules.extend(items.iter().filter_map(|item| self.rule(item)));
        }
    }

    /// The rule that the two fields of a service's document stand for: keys that
    /// the program makes, counted in fixed windows.
    fn general(&mut self, at: &Cursor<'_>, fields: &Fields<'_>) -> Option<RuleSpec> {
        let updated = fields.get("last_updated");
        if let Some(updated) = updated.filter(|at| !is_instant(&at.node.value)) {
            self.wrong(&updated, "the instant of the last change");
        }
        let counting = Counting { algorithm: Some(Algorithm::FixedWindow) };
        let (general, custom) = (fields.get("general_rate_limit"), fields.get("custom_rate_limits"));
        let custom_limits = custom.map(|custom| self.custom(&custom, counting)).unwrap_or_default();
        let Some(general) = general else {
            if custom.is_some() {
                let expected = "`general_rate_limit`: what holds for all other keys, or \"unlimited\"";
                self.report(at, "no `general_rate_limit`", expected);
            }
            return None;
        };
        let limits = self.limits(&general, counting)?;
        if limits == Limits::Unlimited && custom_limits.is_empty() {
            return self.unfit(&general, "a limit, or some in `custom_rate_limits`: this limits nobody");
        }
        Some(RuleSpec {
            custom: custom_limits,
            places: Places { path: general.path(), fields: vec![("name".to_owned(), general.node.at)] },
            ..RuleSpec::new(GENERAL_RULE, KeySpec::Caller, limits)
        })
    }
}
