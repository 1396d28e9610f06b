//! The Grafana dashboard, the alert rules and the documentation know exactly the metrics there are.

use std::collections::BTreeSet;

use ratekeeper::policy::{Format, PolicySpec};
use serde_json::Value as Json;

use crate::rig::Setup;

const DASHBOARD: &str = include_str!("../../../../deploy/grafana/ratekeeper.json");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/ratekeeper.rules.yml");
const DOCS: &str = include_str!("../../../../docs/server.md");

/// Every metric that a server shows, by the names that are asked for.
fn shown() -> BTreeSet<String> {
    let policy = "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"5/s\"\n";
    let (rig, _) = Setup::policy(policy).in_memory();
    let mut client = rig.client();
    client.post("/v1/check", "{}");
    client.post("/v1/limit", r#"{"charges":[{"key":"k","quota":"1/s"}]}"#);
    let metrics = client.get("/metrics");
    let types = metrics.text().lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "histogram" => format!("{name}_bucket"),
            _ => name.to_owned(),
        })
        .collect()
}

/// Everything in a text that is called like a metric of ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("ratekeeper_")).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let dashboard: Json = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked: String =
        expressions.map(|target| target["expr"].as_str().unwrap().to_owned() + "\n").collect();
    assert_eq!(named(&asked), shown());
    let mut ids: Vec<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
}

#[test]
fn alerts_are_about_metrics_that_there_are() {
    // The reader of policies tells whether it is YAML; what it misses is being a policy.
    let problems = PolicySpec::read("rules", Format::Yaml, ALERTS.as_bytes()).unwrap_err().to_string();
    assert!(problems.contains("service") && !problems.contains("YAML"), "{problems}");
    let (asked, shown) = (named(ALERTS), shown());
    assert!(asked.len() >= 8 && asked.is_subset(&shown), "{:?}", asked.difference(&shown));
    let alerts = ALERTS.matches("- alert: ").count();
    for part in ["expr: ", "severity: ", "summary: ", "description: ", "runbook_url: "] {
        assert_eq!(ALERTS.matches(part).count(), alerts, "every alert has one: {part}");
    }
}

#[test]
fn the_documentation_tells_of_every_metric() {
    assert_eq!(named(DOCS), shown());
}
