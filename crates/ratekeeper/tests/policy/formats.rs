//! One model, three notations.

use std::time::Duration;

use ratekeeper::policy::{
    CostSpec, Format, KeySpec, Limits, NamedQuota, Node, PolicySpec, RuleSpec, Scope, Value,
};
use ratekeeper::{Algorithm, Mode, OnOutage};

const TOML: &str = include_str!("../../../../testdata/policies/everything.toml");
const YAML: &str = include_str!("../../../../testdata/policies/everything.yaml");
const JSON: &str = include_str!("../../../../testdata/policies/everything.json");

fn everything() -> PolicySpec {
    crate::toml(TOML).unwrap_or_else(|problems| panic!("{problems}"))
}

fn rule<'s>(spec: &'s PolicySpec, name: &str) -> &'s RuleSpec {
    spec.rules.iter().find(|rule| rule.name == name).unwrap()
}

/// Each quota with its name, as text.
fn quotas(limits: &Limits) -> Vec<String> {
    match limits {
        Limits::Unlimited => vec!["unlimited".to_owned()],
        Limits::Quotas(quotas) => {
            quotas.iter().map(|NamedQuota { name, quota }| format!("{name}={quota}")).collect()
        }
    }
}

#[test]
fn the_same_policy_is_equal_in_every_format() {
    let toml = everything();
    for (format, text) in [(Format::Yaml, YAML), (Format::Json, JSON)] {
        let other = PolicySpec::read("policy", format, text.as_bytes());
        assert_eq!(other.unwrap_or_else(|problems| panic!("{problems}")), toml, "{format}");
    }
}

#[test]
fn a_policy_can_be_built_without_text() {
    let node = Node::parse("policy", Format::Json, JSON.as_bytes()).unwrap();
    assert_eq!(PolicySpec::from_node("mongodb:everything", &without_places(&node)).unwrap(), everything());
}

fn without_places(node: &Node) -> Node {
    match &node.value {
        Value::List(items) => Node::list(items.iter().map(without_places)),
        Value::Table(entries) => {
            Node::table(entries.iter().map(|entry| (entry.key.clone(), without_places(&entry.node))))
        }
        value => value.clone().into(),
    }
}

#[test]
fn what_a_policy_does_not_say_has_a_default() {
    let spec =
        crate::toml("service = 'a'\n[[rules]]\nname = 'b'\nkeys = 'all'\nquota = '10/s burst 20'\n").unwrap();
    assert_eq!((spec.mode, spec.on_outage, &spec.store), (Mode::On, OnOutage::Allow, &None));
    assert_eq!((spec.ipv6_prefix, spec.hash_keys, spec.trusted_proxies.len()), (64, false, 0));
    let rule = rule(&spec, "b");
    assert_eq!((rule.mode, rule.on_outage, rule.enforce_percent), (None, None, 100));
    assert_eq!((rule.scope, &rule.cost), (Scope::Shared, &CostSpec::Asked));
    assert!(rule.when.is_none() && rule.fallback.is_none() && rule.plans.is_none());
    assert!(rule.overrides.is_none() && rule.penalty.is_none());
    assert!(rule.custom.is_empty() && rule.unlimited.is_empty() && rule.allow.is_empty());
    assert_eq!(quotas(&rule.limits), ["=10/s burst 20"]);
}

#[test]
fn every_field_arrives() {
    let spec = everything();
    assert_eq!(
        (spec.service.as_str(), spec.mode, spec.on_outage),
        ("everything", Mode::Monitor, OnOutage::Local)
    );
    assert_eq!(spec.store.as_ref().unwrap().as_str(), "redis://user:hidden@localhost:6379/2");
    assert!(!format!("{spec:?}").contains("hidden"), "a password must not be printed");
    assert_eq!((spec.ipv6_prefix, spec.hash_keys), (56, true));
    let proxies: Vec<String> = spec.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(proxies, ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]);

    let full = rule(&spec, "full");
    assert_eq!(full.when.as_ref().unwrap().as_str(), "method == 'POST'");
    let KeySpec::Templates(keys) = &full.keys else { panic!("templates") };
    let keys: Vec<&str> = keys.iter().map(ratekeeper::policy::Template::as_str).collect();
    assert_eq!(keys, ["apiKey:{header.x-api-key}", "ip:{client.ip}"]);
    assert_eq!(full.fallback.as_deref(), Some("nobody"));
    assert_eq!(quotas(&full.limits), ["=10/s burst 20"]);
    assert_eq!(full.cost, CostSpec::Units(3));
    assert_eq!((full.mode, full.on_outage, full.enforce_percent), (Some(Mode::On), Some(OnOutage::Deny), 10));
    assert_eq!(full.allow[0].to_string(), "192.0.2.0/24");
    assert!(full.unlimited.contains("apiKey:internal"));

    let plans = full.plans.as_ref().unwrap();
    assert_eq!(plans.plan.as_str(), "{header.x-plan}");
    assert_eq!(quotas(&plans.limits["free"]), ["=1/s"]);
    assert_eq!(quotas(&plans.limits["paid"]), ["rps=100/s", "rpd=1000000/d"]);
    assert_eq!(quotas(&plans.limits["partner"]), ["unlimited"]);
    assert_eq!(quotas(&full.custom["ip:192.0.2.7"]), ["rpm=5/min", "calendar_month=100/calendar month"]);

    let overrides = full.overrides.as_ref().unwrap();
    assert_eq!(overrides.endpoint.as_ref().unwrap().as_str(), "{route}");
    assert_eq!(
        (overrides.organisation.as_str(), overrides.project.as_str()),
        ("{identity.org}", "{header.x-project}")
    );
    let penalty = full.penalty.as_ref().unwrap();
    assert_eq!((penalty.denials, penalty.escalate), (5, 2));
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    assert_eq!((penalty.within, penalty.duration, penalty.max), (minutes(1), minutes(10), minutes(1_440)));
}

#[test]
fn quotas_can_be_written_in_every_way() {
    let spec = everything();
    let algorithm = |name: &str| {
        let Limits::Quotas(quotas) = &rule(&spec, name).limits else { panic!("quotas") };
        quotas[0].quota.algorithm()
    };
    let of = |name: &str| quotas(&rule(&spec, name).limits);
    assert_eq!(of("tiers"), ["rps=20/s sliding_window", "rpm=1000/min sliding_window"]);
    assert_eq!(algorithm("tiers"), Algorithm::SlidingWindow);
    assert_eq!(of("tiers-as-text"), ["rps=20/s fixed_window", "rpm=1000/min fixed_window"]);
    assert_eq!(
        of("listed"),
        ["rps=10/s", "concurrency=3/30s concurrency", "calendar_month=500/calendar month +02:00"]
    );
    assert_eq!(of("named"), ["rpm=100/min", "peak=20/s burst 40"]);
    assert_eq!(of("only-some"), ["unlimited"]);
    assert_eq!(rule(&spec, "only-some").keys, KeySpec::Caller);
    assert_eq!(rule(&spec, "only-some").plans.as_ref().unwrap().plan.as_str(), "{identity.plan}");
    assert_eq!(rule(&spec, "tiers").scope, Scope::Process);
    assert_eq!(rule(&spec, "tiers").cost, CostSpec::One);
    let overrides = rule(&spec, "named").overrides.as_ref().unwrap();
    assert_eq!((&overrides.endpoint, overrides.project.as_str()), (&None, "{identity.project}"));
    let CostSpec::Expression(cost) = &rule(&spec, "listed").cost else { panic!("an expression") };
    let (at, path) = rule(&spec, "listed").place_of("cost");
    assert_eq!((cost.as_str(), path.as_str()), ("size(body.items)", "rules[3].cost"));
    let line = TOML.lines().position(|line| line.starts_with("cost = \"size")).unwrap() + 1;
    assert_eq!((at.line as usize, at.column), (line, 8));
}

#[test]
fn ten_thousand_custom_entries_are_read_in_no_time() {
    let custom = |index| {
        (format!("user:{index}"), Node::table([("rps", 5), ("rpm", 50), ("rph", 500), ("rpd", 5_000)]))
    };
    let document = Node::table([
        ("_id", "search".into()),
        ("general_rate_limit", Node::table([("rps", 1)])),
        ("custom_rate_limits", Node::table((0..10_000).map(custom))),
    ]);
    let spec = PolicySpec::from_service_document("mongodb:search", &document).unwrap();
    assert_eq!(spec.rules[0].custom.len(), 10_000);
}
