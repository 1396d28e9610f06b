//! The expressions of alerts and dashboard, as far as they can be held against `/metrics`: every
//! series that they ask for is one that a server shows, and is asked for as what it is.

use std::collections::{BTreeMap, BTreeSet};

use ratekeeper::policy::{Format, Node, Value as NodeValue};
use serde_json::Value as Json;

use crate::rig::Setup;

const DASHBOARD: &str = include_str!("../../../../deploy/grafana/ratekeeper.json");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/ratekeeper.rules.yml");

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["job", "instance"];
const CERTIFICATE: &str = "ratekeeper_tls_certificate_expires_timestamp_seconds";
/// Only a server with a data directory shows these.
const OF_DATA: [&str; 6] = [
    "ratekeeper_data_bytes",
    "ratekeeper_data_age_seconds",
    "ratekeeper_data_failures_total",
    "ratekeeper_data_failing",
    "ratekeeper_data_damaged",
    "ratekeeper_data_unreadable",
];
/// Everything else that our expressions are made of.
const WORDS: [&str; 15] = [
    "sum",
    "min",
    "max",
    "count",
    "by",
    "on",
    "or",
    "and",
    "rate",
    "increase",
    "absent",
    "vector",
    "histogram_quantile",
    "max_over_time",
    "time",
];
/// What takes a range of a counter.
const OF_COUNTERS: [&str; 2] = ["rate", "increase"];

/// The labels of every series, by name, and their values.
type Shown = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn shown() -> Shown {
    let policy = "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"5/s\"\n";
    let (rig, _) = Setup::policy(policy).in_memory();
    let mut client = rig.client();
    // Near its limit, which some are about.
    for _ in 0..4 {
        client.post("/v1/check", "{}");
    }
    client.post("/v1/limit", r#"{"charges":[{"key":"k","quota":"1/s"}]}"#);
    let mut shown = Shown::new();
    for line in client.get("/metrics").text().lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let of_name = shown.entry(name.to_owned()).or_default();
        for pair in labels.trim_end_matches('}').split("\",").filter(|pair| !pair.is_empty()) {
            let (label, value) = pair.split_once("=\"").unwrap();
            of_name.entry(label.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
        }
    }
    // Only a server with a certificate shows it.
    shown.insert(CERTIFICATE.to_owned(), BTreeMap::new());
    // Only a server on Redis has these.
    let states = ["taking", "away"].map(str::to_owned).into();
    shown.insert("ratekeeper_store_nodes".to_owned(), BTreeMap::from([("state".to_owned(), states)]));
    shown.extend(OF_DATA.map(|name| (name.to_owned(), BTreeMap::new())));
    shown
}

/// The value of every member of that name, wherever it is.
fn members<'n>(node: &'n Node, name: &str, found: &mut Vec<&'n str>) {
    match &node.value {
        NodeValue::Table(entries) => {
            for entry in entries {
                match &entry.node.value {
                    NodeValue::Text(text) if entry.key == name => found.push(text),
                    _ => members(&entry.node, name, found),
                }
            }
        }
        NodeValue::List(nodes) => nodes.iter().for_each(|node| members(node, name, found)),
        _ => {}
    }
}

fn of_alerts() -> Vec<String> {
    let document =
        Node::parse("rules", Format::Yaml, ALERTS.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let mut found = Vec::new();
    members(&document, "expr", &mut found);
    assert_eq!(found.len(), ALERTS.matches("- alert: ").count());
    found.into_iter().map(str::to_owned).collect()
}

fn of_dashboard() -> Vec<String> {
    let dashboard: Json = serde_json::from_str(DASHBOARD).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// What stands within the brackets that a text begins with, if it does, and what follows.
fn within(text: &str, brackets: [char; 2]) -> (Option<&str>, &str) {
    match text.strip_prefix(brackets[0]).and_then(|rest| rest.split_once(brackets[1])) {
        Some((inner, rest)) => (Some(inner), rest),
        None => (None, text),
    }
}

/// Asserts that brackets are closed, in the order in which they were opened.
#[track_caller]
fn balanced(expression: &str) {
    let mut open = Vec::new();
    for character in expression.chars() {
        match character {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' => assert_eq!(open.pop(), Some(character), "{expression}"),
            _ => {}
        }
    }
    assert!(open.is_empty(), "{expression}");
}

/// Asserts that there are series with these labels.
#[track_caller]
fn matched(matchers: &str, labels: &BTreeMap<String, BTreeSet<String>>, expression: &str) {
    for matcher in matchers.split("\",").filter(|matcher| !matcher.is_empty()) {
        let (label, value) = matcher.split_once("=").unwrap_or_else(|| panic!("{matcher}: {expression}"));
        let known = labels.get(label).unwrap_or_else(|| panic!("{label}: {expression}"));
        let (values, is_pattern) = match value.strip_prefix('~') {
            Some(pattern) => (pattern, true),
            None => (value, false),
        };
        let values = values.trim_matches('"');
        if values.starts_with('$') {
            continue;
        }
        for value in values.split('|').filter(|_| is_pattern).chain((!is_pattern).then_some(values)) {
            assert!(known.contains(value), "{label} is never {value}: {expression}");
        }
    }
}

/// Goes through an expression: every word is a series, a label or a word of the language.
#[track_caller]
fn hold(expression: &str, shown: &Shown) {
    balanced(expression);
    let mut labels: BTreeSet<&str> =
        shown.values().flat_map(|labels| labels.keys().map(String::as_str)).collect();
    labels.extend(ADDED);
    let (mut rest, mut function) = (expression, "");
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
        let word;
        (word, rest) = rest.split_at(end);
        let of_word = shown.get(word);
        if of_word.is_none() && word != "up" {
            let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
            assert!(is_number || WORDS.contains(&word) || labels.contains(word), "{word}: {expression}");
            function = if rest.starts_with('(') { word } else { function };
            continue;
        }
        let (matchers, range);
        (matchers, rest) = within(rest, ['{', '}']);
        (range, rest) = within(rest, ['[', ']']);
        if let Some(of_word) = of_word {
            matched(matchers.unwrap_or_default(), of_word, expression);
            let is_counter = word.ends_with("_total") || word.ends_with("_bucket");
            assert_eq!(is_counter, OF_COUNTERS.contains(&function), "{function} of {word}: {expression}");
        }
        let takes_range = OF_COUNTERS.contains(&function) || function.ends_with("_over_time");
        assert_eq!(
            range.is_some(),
            takes_range && rest.starts_with(')'),
            "{function} of {word}: {expression}"
        );
        function = "";
    }
}

#[test]
fn alerts_ask_for_what_is_shown() {
    let shown = shown();
    for expression in of_alerts() {
        hold(&expression, &shown);
        let compared = ["== 0", "== 1", "> ", "< ", "absent("].iter().any(|sign| expression.contains(sign));
        assert!(compared, "it would always be on: {expression}");
    }
}

#[test]
fn the_dashboard_asks_for_what_is_shown() {
    let shown = shown();
    for expression in of_dashboard() {
        hold(&expression, &shown);
    }
}

/// One side of a sum may have no series: then there is no sum, unless there is a 0 for it.
#[test]
fn sums_of_two_have_a_value_for_each() {
    for expression in of_dashboard().iter().filter(|expression| expression.contains(" + ")) {
        assert!(expression.split(" + ").all(|side| side.ends_with("or vector(0))")), "{expression}");
    }
}

/// The other tests can fail.
#[test]
fn wrong_expressions_are_found() {
    let shown = shown();
    for wrong in [
        "ratekeeper_redy == 0",
        "rate(ratekeeper_ready[5m]) > 0",
        "rate(ratekeeper_store_failures_total) > 0",
        "ratekeeper_store_failures_total > 0",
        "rate(ratekeeper_outage_decisions_total{outcome=\"alowed\"}[5m]) > 0",
        "rate(ratekeeper_outage_decisions_total{outcom=\"allowed\"}[5m]) > 0",
        "sum by (servce) (ratekeeper_policy_in_force) == 0",
        "sum(ratekeeper_policy_in_force == 0",
        "rte(ratekeeper_store_failures_total[5m]) > 0",
    ] {
        assert!(std::panic::catch_unwind(|| hold(wrong, &shown)).is_err(), "{wrong}");
    }
}
