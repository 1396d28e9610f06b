//! The document in which a service keeps its limits in MongoDB.

use ratekeeper::Algorithm;
use ratekeeper::policy::{GENERAL_RULE, KeySpec, Limits, Node, PolicySpec, Value};

fn tiers(limits: &[(&str, i64)]) -> Node {
    Node::table(limits.iter().copied())
}

fn document(more: impl IntoIterator<Item = (&'static str, Node)>) -> Node {
    let fields = [
        ("_id", Node::from("sentiment-service")),
        ("last_updated", Value::Date("2025-10-10T14:23:00Z".to_owned()).into()),
        ("general_rate_limit", tiers(&[("rps", 20), ("rpm", 1_000), ("rph", 50_000), ("rpd", 100_000)])),
        ("custom_rate_limits", Node::table([("user:1234", tiers(&[("rps", 10), ("rpd", 50_000)]))])),
    ];
    Node::table(fields.into_iter().chain(more))
}

fn read(document: &Node) -> PolicySpec {
    let spec = PolicySpec::from_service_document("mongodb:sentiment-service", document);
    spec.unwrap_or_else(|problems| panic!("{problems}"))
}

fn names(limits: &Limits) -> Vec<&str> {
    let Limits::Quotas(quotas) = limits else { panic!("quotas") };
    assert!(quotas.iter().all(|quota| quota.quota.algorithm() == Algorithm::FixedWindow));
    quotas.iter().map(|quota| quota.name.as_ref()).collect()
}

#[test]
fn it_becomes_one_rule_on_keys_that_the_program_makes() {
    let spec = read(&document([]));
    assert_eq!((spec.service.as_str(), spec.rules.len()), ("sentiment-service", 1));
    let rule = &spec.rules[0];
    assert_eq!((rule.name.as_str(), &rule.keys), (GENERAL_RULE, &KeySpec::Caller));
    assert_eq!(names(&rule.limits), ["rps", "rpm", "rph", "rpd"]);
    assert_eq!(names(&rule.custom["user:1234"]), ["rps", "rpd"], "an entry replaces all tiers");
    assert_eq!(PolicySpec::from_node("x", &document([])).unwrap(), spec, "it is recognised by its fields");
}

#[test]
fn rules_and_settings_may_stand_beside_it() {
    let rule = Node::table([("name", "per-ip"), ("keys", "ip:{client.ip}"), ("quota", "100/s")]);
    let spec = read(&document([("rules", Node::list([rule])), ("hash_keys", true.into())]));
    let names: Vec<&str> = spec.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!((names, spec.hash_keys), (vec!["general", "per-ip"], true));
}

#[test]
fn numbers_are_taken_as_databases_keep_them() {
    let general = Node::table([("rps", Node::from(20.0)), ("rpm", Value::Null.into()), ("rpd", 5.into())]);
    let spec = read(&Node::table([
        ("_id", Node::from("a")),
        ("general_rate_limit", general),
        ("mode", Value::Null.into()),
    ]));
    assert_eq!(names(&spec.rules[0].limits), ["rps", "rpd"], "null is as good as nothing");
}

#[test]
fn problems_name_the_document_and_the_field() {
    let custom = Node::table([("user:1", tiers(&[("rps", -1)]))]);
    let wrong = Node::table([
        ("_id", Node::from("a")),
        ("general_rate_limit", tiers(&[("rps", 1)])),
        ("custom_rate_limits", custom),
    ]);
    let problems = PolicySpec::from_service_document("mongodb:a", &wrong).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "mongodb:a: custom_rate_limits.\"user:1\".rps: got -1; expected a whole number from 0 to 1000000000"
    );
}
