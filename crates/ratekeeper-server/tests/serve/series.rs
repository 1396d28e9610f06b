//! Series of decisions: every one is there once, before its first event, and also without a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use ratekeeper::RedisStore;
use ratekeeper::policy::{Format, PolicySpec};
use ratekeeper_server::serve::metrics::SERIES_MAX;
use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::rig::{RUNTIME, Rig, Setup};

/// Every series and its value. No series stands there twice: Prometheus would take either.
#[track_caller]
fn series(rig: &Rig) -> BTreeMap<String, f64> {
    let page = rig.client().get("/metrics");
    let mut all = BTreeMap::new();
    for line in page.text().lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let before = all.insert(name.to_owned(), value.parse().unwrap());
        assert_eq!(before, None, "{name} stands there twice");
    }
    all
}

fn of_rule(service: &str, rule: &str, plan: &str, outcome: &str) -> String {
    let labels = format!("service=\"{service}\",rule=\"{rule}\",plan=\"{plan}\",outcome=\"{outcome}\"");
    format!("ratekeeper_decisions_total{{{labels}}}")
}

fn check(client: &mut Client, call: &Json) -> (u16, Json) {
    let reply = client.call("/v1/check", call);
    (reply.status, reply.json())
}

const ODD_PLANS: &str = r#"
    service = "other"

    [[rules]]
    name = "other"
    keys = "user:{identity.user}"
    quota = "1/min"

    [rules.plans]
    default = "20/min"
    custom = "20/min"
    other = "20/min"
    "plan:other" = "20/min"
    paid = "20/min"

    [rules.custom]
    "user:cyd" = "30/min"
"#;

#[test]
fn plans_may_be_called_like_what_is_none() {
    let (rig, _) = Setup::policy(ODD_PLANS).in_memory();
    let mut client = rig.client();
    let plans = ["default", "custom", "other", "plan:other", "paid"];
    for (times, plan) in (2..).zip(plans) {
        for _ in 0..times {
            assert_eq!(check(&mut client, &json!({ "identity": { "user": "ann", "plan": plan } })).0, 200);
        }
    }
    assert_eq!(check(&mut client, &json!({ "identity": { "user": "bob" } })).0, 200);
    for _ in 0..9 {
        assert_eq!(check(&mut client, &json!({ "identity": { "user": "cyd" } })).0, 200);
    }
    let series = series(&rig);
    let allowed = |plan: &str| series[&of_rule("other", "other", plan, "allowed")];
    assert_eq!((allowed("default"), allowed("custom"), allowed("other")), (1.0, 9.0, 0.0));
    let labels = ["plan:default", "plan:custom", "plan:other", "plan:plan:other", "paid"];
    assert_eq!(labels.map(allowed), [2.0, 3.0, 4.0, 5.0, 6.0]);
}

/// What begins with 1 has no rate: the first denial would be seen by nobody.
#[test]
fn series_are_there_before_their_first_event() {
    let (rig, _) = Setup::policy(ODD_PLANS).in_memory();
    let before = series(&rig);
    let outcomes = ["allowed", "denied", "over_limit", "denied_elsewhere", "outage_allowed", "outage_denied"];
    for outcome in outcomes {
        for plan in ["default", "custom", "paid", "plan:default"] {
            assert_eq!(before.get(&of_rule("other", "other", plan, outcome)), Some(&0.0), "{plan} {outcome}");
        }
        let unnamed = format!("ratekeeper_limit_decisions_total{{name=\"limit\",outcome=\"{outcome}\"}}");
        assert_eq!(before.get(&unnamed), Some(&0.0), "{outcome}");
    }
    let mut client = rig.client();
    for _ in 0..2 {
        check(&mut client, &json!({ "identity": { "user": "ann" } }));
    }
    client.call("/v1/limit", &json!({ "charges": [{ "name": "n", "key": "k", "quota": "1/s" }] }));
    let after = series(&rig);
    assert_eq!(after[&of_rule("other", "other", "default", "denied")], 1.0);
    assert_eq!(after.get("ratekeeper_limit_decisions_total{name=\"n\",outcome=\"denied\"}"), Some(&0.0));
    let decisions = |all: &BTreeMap<String, f64>| -> Vec<String> {
        all.keys().filter(|name| name.starts_with("ratekeeper_decisions_total")).cloned().collect()
    };
    assert_eq!(decisions(&before), decisions(&after), "none came or went");
}

#[test]
fn series_that_nobody_has_used_keep_within_the_bound() {
    let (rig, _) = Setup::default().in_memory();
    let policies = rig.api.limiter().policies();
    let plans: String = (0..500).map(|plan| format!("p{plan} = \"20/min\"\n")).collect();
    let service = |number: usize| {
        format!(
            "service = \"s{number}\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"5/s\"\n[rules.plans]\n{plans}"
        )
    };
    let count = SERIES_MAX / 500 + 1;
    for number in 0..count {
        let spec = PolicySpec::read("test", Format::Toml, service(number).as_bytes());
        policies.install("test", spec, None).unwrap();
    }
    let last = format!("s{}", count - 1);
    assert_eq!(check(&mut rig.client(), &json!({ "service": last })).0, 200);
    let series = series(&rig);
    let shown = series.keys().filter(|name| {
        name.starts_with("ratekeeper_decisions_total") && name.contains("outcome=\"allowed\"")
    });
    // Those beyond the bound are one more.
    assert!(shown.count() <= SERIES_MAX + 1);
    assert_eq!(series[&of_rule(&last, "r", "default", "allowed")], 1.0, "who decides is shown first");
}

const GUARDED: &str = r#"
    service = "shop"

    [[rules]]
    name = "open"
    when = "path != '/guarded'"
    keys = "all"
    quota = "100/min"

    [[rules]]
    name = "shut"
    when = "path == '/guarded'"
    keys = "all"
    on_outage = "deny"
    quota = "100/min"
"#;

/// Traffic does not vanish from the dashboards while the store is away.
#[test]
fn rules_and_names_are_counted_without_a_store() {
    let mut server = Server::start(Flavour::Valkey9);
    server.kill();
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&server.url()).build().unwrap()
    };
    let rig = Setup::policy(GUARDED).start(Arc::new(store));
    let mut client = rig.client();
    for _ in 0..3 {
        assert_eq!(check(&mut client, &json!({ "path": "/" })).1["origin"], "outage");
    }
    assert_eq!(check(&mut client, &json!({ "path": "/guarded" })).0, 503);
    let charges =
        json!([{ "name": "a", "key": "k", "quota": "1/s" }, { "name": "b", "key": "k", "quota": "1/s" }]);
    assert_eq!(client.call("/v1/limit", &json!({ "charges": charges })).status, 200);
    assert_eq!(client.call("/v1/limit", &json!({ "charges": charges, "on_outage": "deny" })).status, 503);
    let series = series(&rig);
    assert_eq!(series[&of_rule("shop", "open", "default", "outage_allowed")], 3.0);
    assert_eq!(series[&of_rule("shop", "shut", "default", "outage_denied")], 1.0);
    for name in ["a", "b"] {
        for outcome in ["outage_allowed", "outage_denied"] {
            let series =
                series[&format!("ratekeeper_limit_decisions_total{{name=\"{name}\",outcome=\"{outcome}\"}}")];
            assert_eq!(series, 1.0, "{name} {outcome}");
        }
    }
}

/// Whoever withdraws a policy must not stop the services that it was for.
#[test]
fn a_service_whose_policy_is_gone_is_not_limited() {
    let (rig, _) = Setup::policy(GUARDED).in_memory();
    let mut client = rig.client();
    let (status, counted) = check(&mut client, &json!({ "path": "/" }));
    assert_eq!((status, &counted["origin"]), (200, &json!("store")));
    rig.api.limiter().policies().withdraw("test", "shop");
    for call in [json!({ "service": "shop", "path": "/" }), json!({ "path": "/" })] {
        let (status, told) = check(&mut client, &call);
        assert_eq!(
            (status, &told["allowed"], &told["origin"]),
            (200, &json!(true), &json!("unlimited")),
            "{call}"
        );
        let mut refund = call.clone();
        refund["decision"] = counted.clone();
        let reply = client.call("/v1/refund", &refund);
        assert_eq!((reply.status, reply.json()), (200, json!({ "refunded": false, "units": 0 })), "{call}");
    }
    assert_eq!(check(&mut client, &json!({ "service": "shops" })).0, 422, "nobody has heard of it");
    assert_eq!(series(&rig)["ratekeeper_policy_in_force{service=\"shop\"}"], 0.0);
    // There is one policy in force again, so it is the one that is meant.
    let spec = PolicySpec::read("test", Format::Toml, GUARDED.replace("shop", "other").as_bytes());
    rig.api.limiter().policies().install("test", spec, None).unwrap();
    assert_eq!(check(&mut client, &json!({ "path": "/" })).1["origin"], "store");
}
