//! `docs/policy.schema.json` says what the decoder says.
//!
//! The decoder is asked for what it knows: it lists fields and words in its
//! messages. And whatever it accepts, the schema must accept.

mod validate;

use proptest::prelude::*;
use proptest::sample::Index;
use ratekeeper::policy::{Format, Node, PolicySpec, Value};

use self::validate::{Schema, field, strings};

fn schema() -> Schema {
    let text = std::fs::read(crate::root().join("docs/policy.schema.json")).unwrap();
    Schema::new(Node::parse("policy.schema.json", Format::Json, &text).unwrap())
}

/// All policies that are right.
fn right() -> Vec<Node> {
    let paths = crate::policies("examples/policies").into_iter().chain(crate::policies("testdata/policies"));
    let parse = |path: std::path::PathBuf| {
        Node::parse(crate::name(&path), Format::of_path(&path).unwrap(), &std::fs::read(&path).unwrap())
            .unwrap()
    };
    paths.map(parse).collect()
}

fn json(text: &str) -> Node {
    Node::parse("policy.json", Format::Json, text.as_bytes())
        .unwrap_or_else(|problems| panic!("{problems}: {text}"))
}

/// A rule with one more field, as a policy.
fn with_rule_field(more: &str) -> Node {
    json(&format!(
        r#"{{"service": "a", "rules": [{{"name": "b", "keys": "all", "quota": "99/s", {more}}}]}}"#
    ))
}

/// A document whose table of that name in the schema has one more field.
fn with_field(table: &str, more: &str) -> Node {
    match table {
        "policy" => json(&format!(r#"{{"service": "a", "rules": [], {more}}}"#)),
        "service_document" => json(&format!(r#"{{"_id": "a", {more}}}"#)),
        "rule" => with_rule_field(more),
        "penalty" => with_rule_field(&format!(r#""penalty": {{{more}}}"#)),
        "overrides" => with_rule_field(&format!(r#""overrides": {{{more}}}"#)),
        other => panic!("{other} is new"),
    }
}

const TABLES: [&str; 5] = ["policy", "service_document", "rule", "penalty", "overrides"];

/// What the decoder expects instead of the value of `path`.
fn expected(document: &Node, path: &str) -> String {
    let problems = PolicySpec::from_node("policy.json", document).unwrap_err();
    let problem = problems.iter().find(|problem| problem.field.ends_with(path));
    problem.unwrap_or_else(|| panic!("nothing about {path} in {problems}")).expected.clone()
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words
}

#[test]
fn every_right_policy_fits_the_schema() {
    let schema = schema();
    for policy in right() {
        assert_eq!(schema.validate(&policy), Ok(()));
    }
}

#[test]
fn the_schema_knows_exactly_the_fields_of_the_decoder() {
    let schema = schema();
    for table in TABLES {
        let known = expected(&with_field(table, r#""qqqqqqqqqqqq": 1"#), "qqqqqqqqqqqq");
        let known = known.strip_prefix("one of ").unwrap().split(", ").map(str::to_owned).collect();
        let Value::Table(listed) = &field(schema.definition(table), "properties").unwrap().value else {
            panic!("{table} has properties")
        };
        let listed = listed.iter().map(|entry| entry.key.clone()).collect();
        assert_eq!(sorted(known), sorted(listed), "{table}");
    }
}

#[test]
fn the_decoder_reads_every_field_that_it_knows() {
    let schema = schema();
    for table in TABLES {
        let properties = field(schema.definition(table), "properties").unwrap();
        let Value::Table(properties) = &properties.value else { panic!("{table} has properties") };
        for entry in properties {
            let document = with_field_instead(table, &entry.key);
            let problems = PolicySpec::from_node("policy.json", &document).unwrap_err();
            let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
            let told = problems.iter().any(|problem| {
                let last = last(&problem.field);
                last == entry.key || last == format!("{}[0]", entry.key)
            });
            assert!(told, "{table}.{} may be a list of null:\n{problems}", entry.key);
        }
    }
}

/// A document in which a field is `[null]`; whatever has that name already is
/// left out.
fn with_field_instead(table: &str, name: &str) -> Node {
    let mut document = with_field(table, &format!(r#""{name}": [null]"#));
    fn keep_last(node: &mut Node) {
        match &mut node.value {
            Value::List(items) => items.iter_mut().for_each(keep_last),
            Value::Table(entries) => {
                let keys: Vec<String> = entries.iter().map(|entry| entry.key.clone()).collect();
                let mut index = 0;
                entries.retain(|entry| {
                    index += 1;
                    !keys[index..].contains(&entry.key)
                });
                entries.iter_mut().for_each(|entry| keep_last(&mut entry.node));
            }
            _ => {}
        }
    }
    keep_last(&mut document);
    document
}

#[test]
fn the_schema_knows_exactly_the_words_of_the_decoder() {
    let schema = schema();
    let rule = field(schema.definition("rule"), "properties").unwrap();
    let words = [
        ("mode", schema.definition("mode")),
        ("on_outage", schema.definition("on_outage")),
        ("scope", field(rule, "scope").unwrap()),
        ("algorithm", field(rule, "algorithm").unwrap()),
    ];
    for (name, definition) in words {
        let known = expected(&with_rule_field(&format!(r#""{name}": "qqqqqqqqqqqq""#)), name);
        let known = known.replace(" or ", ", ").split(", ").map(str::to_owned).collect();
        assert_eq!(sorted(known), sorted(strings(field(definition, "enum").unwrap())), "{name}");
    }
}

#[test]
fn the_schema_has_the_bounds_of_the_decoder() {
    let schema = schema();
    let penalty = |more: &str| {
        let times = r#""within": "1s", "duration": "1s""#;
        with_rule_field(&format!(r#""penalty": {{{times}, {more}}}"#))
    };
    for number in [-1, 0, 1, 2, 100, 101, 128, 129, 1_000_000_000, 1_000_000_001] {
        let documents = [
            json(&format!(
                r#"{{"service": "a", "ipv6_prefix": {number}, "rules": [{{"name": "b", "keys": "k", "rpm": 1}}]}}"#
            )),
            json(&format!(r#"{{"service": "a", "rules": [{{"name": "b", "keys": "k", "rpm": {number}}}]}}"#)),
            json(&format!(r#"{{"_id": "a", "general_rate_limit": {{"rpd": {number}}}}}"#)),
            with_rule_field(&format!(r#""burst": {number}"#)),
            with_rule_field(&format!(r#""cost": {number}"#)),
            with_rule_field(&format!(r#""enforce_percent": {number}"#)),
            penalty(&format!(r#""denials": {number}"#)),
            penalty(&format!(r#""denials": 1, "max": "1d", "escalate": {number}"#)),
        ];
        for (index, document) in documents.iter().enumerate() {
            let decoded = PolicySpec::from_node("policy.json", document);
            assert_eq!(
                decoded.is_ok(),
                schema.validate(document).is_ok(),
                "{number} in document {index}: {decoded:?}"
            );
        }
    }
    let lists = [16, 17].map(|count| {
        let keys: Vec<String> = (0..count).map(|key| format!("\"{key}\"")).collect();
        json(&format!(
            r#"{{"service": "a", "rules": [{{"name": "b", "keys": [{}], "rpm": 1}}]}}"#,
            keys.join(", ")
        ))
    });
    assert_eq!(lists.map(|document| schema.validate(&document).is_ok()), [true, false]);
}

#[test]
fn the_schema_refuses_what_it_can_see() {
    let schema = schema();
    let refused = [
        r#"{"service": "a"}"#,
        r#"{"service": "a", "rules": []}"#,
        r#"{"service": "a", "rules": [{"name": "b", "keys": "k"}]}"#,
        r#"{"service": "a", "rules": [{"name": "b", "rpm": 1}]}"#,
        r#"{"service": "a", "rules": [{"keys": "k", "rpm": 1}]}"#,
        r#"{"service": "a", "rules": [{"name": "b", "keys": "k", "qouta": "1/s", "rpm": 1}]}"#,
        r#"{"service": "a", "rules": [{"name": "b", "keys": "k", "rpm": 1, "plan": "{identity.plan}"}]}"#,
        r#"{"service": "a", "rules": [{"name": "b", "keys": "k", "rpm": 1, "penalty": {}}]}"#,
        r#"{"_id": "a", "custom_rate_limits": {}}"#,
        r#"{"_id": "a"}"#,
    ];
    for text in refused {
        assert!(schema.validate(&json(text)).is_err(), "{text}");
    }
}

/// Values to put where others belong. None is null, which services' documents
/// may have anywhere and the schema does not mention.
fn values() -> impl Strategy<Value = Node> {
    prop_oneof![
        prop::sample::select(vec![
            -1_i64,
            0,
            1,
            2,
            16,
            17,
            64,
            100,
            101,
            128,
            129,
            1_000_000_000,
            1_000_000_001
        ])
        .prop_map(Node::from),
        prop::sample::select(vec![0.5, 2.0, 1e30]).prop_map(Node::from),
        prop::sample::select(vec![
            "",
            "a",
            "on",
            "off",
            "deny",
            "process",
            "token_bucket",
            "unlimited",
            "100/60s",
            "10/s burst 20",
            "{rps=1}",
            "1min",
            "10.0.0.0/8",
            "memory",
            "redis://x",
            "{identity.user}",
            "user:1234",
        ])
        .prop_map(Node::from),
        any::<bool>().prop_map(Node::from),
        Just(Node::list(Vec::<Node>::new())),
        Just(Node::list(["1/s"])),
        Just(Node::table(Vec::<(String, Node)>::new())),
        Just(Node::table([("rps", 5)])),
        Just(Node::table([("free", "10/s")])),
    ]
}

/// All places of a tree, one after the other.
fn nth(node: &mut Node, left: &mut usize, change: &mut dyn FnMut(&mut Node)) {
    if *left == 0 {
        change(node);
    }
    *left = left.wrapping_sub(1);
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| nth(item, left, change)),
        Value::Table(entries) => entries.iter_mut().for_each(|entry| nth(&mut entry.node, left, change)),
        _ => {}
    }
}

fn count(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Table(entries) => 1 + entries.iter().map(|entry| count(&entry.node)).sum::<usize>(),
        _ => 1,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn what_the_decoder_accepts_the_schema_accepts(policy in any::<Index>(), places in prop::collection::vec((any::<Index>(), values()), 1..3)) {
        let right = RIGHT.get_or_init(right);
        let mut document = right[policy.index(right.len())].clone();
        for (place, value) in places {
            let mut place = place.index(count(&document));
            nth(&mut document, &mut place, &mut |node| node.clone_from(&value));
        }
        if PolicySpec::from_node("policy", &document).is_ok() {
            let schema = SCHEMA.get_or_init(schema);
            prop_assert_eq!(schema.validate(&document), Ok(()));
        }
    }
}

static RIGHT: std::sync::OnceLock<Vec<Node>> = std::sync::OnceLock::new();
static SCHEMA: std::sync::OnceLock<Schema> = std::sync::OnceLock::new();
