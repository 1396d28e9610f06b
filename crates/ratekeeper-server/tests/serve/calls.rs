//! What each call does, beyond what the decision tables and the examples show.

use std::time::Duration;

use ratekeeper::{Charge, Check, Key, Name, Quota};
use ratekeeper_server::serve::CALLS;
use ratekeeper_server::serve::api::{CLAIMS_MAX, HEADERS_MAX, KEY_BYTES_MAX};
use serde_json::{Value as Json, json};

use crate::client::{Client, PATIENCE};
use crate::rig::{RUNTIME, Setup};

pub(crate) const POLICY: &str = r#"
    service = "shop"
    trusted_proxies = ["192.0.2.0/24"]

    [[rules]]
    name = "facts"
    when = "method == 'POST' && route == '/orders/{id}' && query.dry == '1' && body.lines.size() > 1"
    keys = "{identity.user}:{identity.age}:{header.x-tenant}:{client.ip}:{cookie.session}"
    quota = "5/min"

    [[rules]]
    name = "mine"
    when = "path == '/mine'"
    caller_key = true
    quota = "5/min"

    [[rules]]
    name = "under-way"
    when = "path == '/slow'"
    keys = "all"
    quota = "1/min concurrency"
"#;

pub(crate) fn remaining(told: &Json) -> Vec<u64> {
    told["limits"].as_array().unwrap().iter().map(|limit| limit["remaining"].as_u64().unwrap()).collect()
}

#[test]
fn a_policy_sees_all_of_a_request() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let call = json!({
        "method": "POST",
        "path": "/orders/7?dry=1",
        "route": "/orders/{id}",
        "headers": { "X-Tenant": "acme", "Cookie": ["session=s1"], "x-forwarded-for": ["198.51.100.9, 192.0.2.8"] },
        "client": "192.0.2.7",
        "identity": { "user": "ann", "age": 41 },
        "body": { "lines": [1, 2] },
    });
    assert_eq!(remaining(&client.call("/v1/check", &call).json()), [4]);
    // The same query, told otherwise.
    let mut told = call.clone();
    told["path"] = "/orders/7".into();
    for query in [json!("dry=1"), json!({ "dry": "1" })] {
        told["query"] = query;
        client.call("/v1/check", &told);
    }
    assert_eq!(remaining(&client.call("/v1/peek", &call).json()), [2], "the same key all along");
    let key = client.call("/v1/explain", &call).json();
    assert!(key["explanation"].as_str().unwrap().starts_with("allowed: facts has 2 of 5 left"), "{key}");
    for (member, other) in [
        ("identity", json!({ "user": "bob", "age": 41 })),
        ("client", json!("203.0.113.1")),
        ("body", json!({ "lines": [1] })),
        ("method", json!("GET")),
    ] {
        let mut told = call.clone();
        told[member] = other;
        assert_ne!(remaining(&client.call("/v1/peek", &told).json()), [2], "{member} makes a difference");
    }
}

#[test]
fn keys_of_callers_and_places_for_those_under_way() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let mine = json!({ "path": "/mine", "key": "k1" });
    assert_eq!(remaining(&client.call("/v1/check", &mine).json()), [4]);
    let slow = json!({ "path": "/slow" });
    let admitted = client.call("/v1/check", &slow);
    assert_eq!((admitted.status, client.call("/v1/check", &slow).status), (200, 429));
    let mut over = slow.clone();
    over["decision"] = admitted.json();
    assert_eq!(client.call("/v1/refund", &over).status, 200);
    assert_eq!(client.call("/v1/check", &slow).status, 200, "the place was given back");
}

#[test]
fn charges_never_meet_the_counters_of_policies() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    client.call("/v1/check", &json!({ "path": "/mine", "key": "k1", "cost": 5 }));
    for name in ["mine", "shop/mine", "limit", "/shop/mine", "../shop/mine"] {
        let call = json!({ "charges": [{ "name": name, "key": "k1", "quota": "5/min" }] });
        assert_eq!(remaining(&client.call("/v1/peek", &call).json()), [5], "{name}");
    }
}

#[test]
fn a_key_that_reads_like_one_of_application_kit_is_none() {
    use ratekeeper::{OverrideScope, RedisStore};
    use ratekeeper_testkit::servers::{Flavour, Server};
    let server = Server::start(Flavour::Redis7);
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&server.url()).deadline(PATIENCE).build().unwrap()
    };
    let rig = Setup::default().start(std::sync::Arc::new(store));
    let quota: Quota = "5/h fixed_window".parse().unwrap();
    let key = Key::new(Name::new("api").unwrap(), "api:1:2").unwrap();
    let charge = Charge::new(key, &quota).overridable(OverrideScope::project("api", "1", "2").unwrap());
    let kits = RUNTIME.block_on(rig.store.check(&Check::one(&charge))).unwrap();
    assert_eq!(kits.verdicts()[0].remaining(), 4);
    let call = json!({ "charges": [{
        "name": "api", "key": "api:1:2", "quota": "5/h fixed_window",
        "overrides": { "endpoint": "api", "organisation": "1", "project": "2" },
    }] });
    let mut client = rig.client();
    assert_eq!(remaining(&client.call("/v1/limit", &call).json()), [4], "a counter of its own");
    assert_eq!(client.call("/v1/reset", &call).json(), json!({ "forgotten": 1 }));
    let kits = RUNTIME.block_on(rig.store.check(&Check::one(&charge).peek())).unwrap();
    assert_eq!(kits.verdicts()[0].remaining(), 4, "resetting one leaves the other");
    let mut names: Vec<String> = server.cli(&["--scan"]).lines().map(str::to_owned).collect();
    names.retain(|name| !name.contains("control") && !name.contains("secret") && name != "rk:audit");
    assert_eq!(names, ["ratelimit:api:1:2"]);
}

/// Calls that are wrong, and the field that is.
fn wrong_charges() -> Vec<(&'static str, Json, &'static str)> {
    let charge = |member: &str, value: Json| {
        let mut charge = json!({ "key": "k", "quota": "5/min" });
        charge[member] = value;
        json!({ "charges": [{ "key": "k", "quota": "1/s", "name": "first" }, charge] })
    };
    let with = |member: &str, value: Json| json!({ "charges": [{ "key": "k", "quota": "1/s" }], "id": "i", member: value });
    let twice = json!({ "key": "k", "quota": "1/s sliding_log", "algorithm": "fixed_window" });
    vec![
        ("/v1/limit", charge("key", json!("")), "charges[1].key"),
        ("/v1/limit", charge("key", json!("k".repeat(KEY_BYTES_MAX + 1))), "charges[1].key"),
        ("/v1/limit", charge("quota", json!("many")), "charges[1].quota"),
        ("/v1/limit", charge("algorithm", json!("guess")), "charges[1].algorithm"),
        ("/v1/limit", charge("cost", json!(-1)), "charges[1].cost"),
        ("/v1/limit", charge("cost", json!(1.5)), "charges[1].cost"),
        ("/v1/limit", charge("cost", json!(1_000_000_001)), "charges[1].cost"),
        (
            "/v1/reserve",
            with("charges", json!([{ "key": "k", "quota": "1/s", "cost": 1_000_000_001 }])),
            "charges[0].cost",
        ),
        ("/v1/limit", charge("name", json!("caf\u{e9}")), "charges[1].name"),
        ("/v1/limit", charge("emergency", json!("panic")), "charges[1].emergency"),
        ("/v1/limit", charge("overrides", json!({ "endpoint": "e" })), "charges[1].overrides"),
        ("/v1/limit", charge("colour", json!("red")), "charges[1].colour"),
        ("/v1/limit", json!({}), "charges"),
        ("/v1/limit", json!({ "charges": [] }), "charges"),
        ("/v1/limit", json!({ "charges": vec![json!({ "key": "k", "quota": "1/s" }); 65] }), "charges"),
        ("/v1/limit", json!({ "charges": [twice] }), "charges[0].algorithm"),
        ("/v1/limit", with("path", json!("/")), "path"),
        ("/v1/limit", with("on_outage", json!("pray")), "on_outage"),
        ("/v1/limit", with("id", json!("")), "id"),
        ("/v1/limit", with("keep_seconds", json!(0)), "keep_seconds"),
        ("/v1/reserve", with("hold_seconds", json!(0)), "hold_seconds"),
        ("/v1/reserve", with("hold_seconds", json!(86_401)), "hold_seconds"),
        (
            "/v1/limit",
            json!({ "charges": [{ "key": "k", "quota": "1/s" }], "keep_seconds": 5 }),
            "keep_seconds",
        ),
    ]
}

fn wrong_calls() -> Vec<(&'static str, Json, &'static str)> {
    type Members = serde_json::Map<String, Json>;
    let headers: Members = (0..=HEADERS_MAX).map(|n| (format!("h{n}"), json!("x"))).collect();
    let claims: Members = (0..=CLAIMS_MAX).map(|n| (format!("c{n}"), json!(n))).collect();
    let charges = json!([{ "key": "k", "quota": "1/s" }]);
    vec![
        ("/v1/check", json!({ "charges": [] }), "charges"),
        ("/v1/check", json!({ "service": "nobody" }), "service"),
        ("/v1/check", json!({ "path": "/x?a=1", "query": "b=2" }), "query"),
        ("/v1/check", json!({ "client": "here" }), "client"),
        ("/v1/check", json!({ "headers": headers }), "headers"),
        ("/v1/check", json!({ "headers": { "a": 1 } }), "headers.a"),
        ("/v1/check", json!({ "identity": claims }), "identity"),
        ("/v1/check", json!({ "identity": { "user": ["a"] } }), "identity.user"),
        ("/v1/reserve", json!({ "charges": charges }), "id"),
        (
            "/v1/reserve",
            json!({ "id": "i", "charges": [{ "key": "k", "quota": "1/s", "cost": 0 }] }),
            "charges[0].cost",
        ),
        ("/v1/reserve", json!({ "id": "i", "path": "/mine", "key": "k", "hold_seconds": 0 }), "hold_seconds"),
        ("/v1/check", json!({ "path": "/mine", "key": "k", "keep_seconds": 5 }), "keep_seconds"),
        ("/v1/settle", json!({ "id": "i", "actual": 1_000_000_001 }), "actual"),
        ("/v1/settle", json!({ "id": "i" }), "actual"),
        ("/v1/settle", json!({ "actual": 1 }), "id"),
        ("/v1/cancel", json!({ "id": "i", "actual": 1 }), "actual"),
        ("/v1/reset", json!({ "id": "i" }), "id"),
        ("/v1/peek", json!({ "path": "/mine", "key": "k", "keep_seconds": 5 }), "keep_seconds"),
        ("/v1/explain", json!({ "path": "/mine", "key": "k", "id": "i", "keep_seconds": 0 }), "keep_seconds"),
        ("/v1/refund", json!({ "charges": charges }), "decision"),
        ("/v1/limit/batch", json!({ "checks": [] }), "checks"),
        ("/v1/limit/batch", json!({ "checks": vec![json!({}); 1_001] }), "checks"),
    ]
}

#[test]
fn what_is_wrong_is_named_by_its_field() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    for (path, call, field) in wrong_charges().into_iter().chain(wrong_calls()) {
        let reply = client.call(path, &call);
        let told = reply.json();
        assert_eq!((reply.status, told["field"].as_str()), (422, Some(field)), "{path} {call}: {told}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    }
}

/// What was decided under an id is told again by what only looks; an id that is only looked at is kept by nobody.
#[test]
fn what_looks_takes_an_id() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let cases = [
        ("/v1/limit", json!({ "charges": [{ "key": "k", "quota": "5/min", "cost": 2 }] })),
        ("/v1/check", json!({ "path": "/mine", "key": "k", "cost": 2 })),
    ];
    for (path, call) in cases {
        let under = |id: &str| {
            let mut call = call.clone();
            call["id"] = format!("{path} {id}").into();
            call
        };
        let mut looked = |path: &str, id: &str| {
            let told = client.call(path, &under(id)).json();
            (told["origin"].as_str().unwrap().to_owned(), remaining(&told))
        };
        let (store, repeat) = ("store".to_owned(), "repeat".to_owned());
        assert_eq!(looked("/v1/peek", "a"), (store.clone(), vec![5]), "{path}: nobody knows it");
        assert_eq!(looked(path, "a"), (store.clone(), vec![3]), "{path}: a peek kept nothing");
        assert_eq!(looked(path, "b"), (store, vec![1]), "{path}");
        assert_eq!(looked("/v1/peek", "a"), (repeat.clone(), vec![3]), "{path}");
        assert_eq!(looked("/v1/explain", "a"), (repeat, vec![3]), "{path}");
    }
    let other = json!({ "charges": [{ "key": "k", "quota": "5/min" }], "id": "/v1/limit a" });
    assert_eq!(client.call("/v1/peek", &other).status, 409, "the id of another check");
}

/// A member of another call is refused by its name; `null` is as good as nothing.
#[test]
fn members_of_other_calls_are_refused_and_null_is_none() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let charges = json!([{ "key": "k", "quota": "100/h" }]);
    let cases = [
        (
            "/v1/limit",
            "hold_seconds",
            json!({ "charges": charges }),
            "one of charges, on_outage, id, keep_seconds",
        ),
        ("/v1/check", "on_outage", json!({ "path": "/mine" }), "key, cost, id, keep_seconds"),
        ("/v1/settle", "charges", json!({ "id": "i", "actual": 1 }), "expected one of id, actual"),
        ("/v1/cancel", "actual", json!({ "id": "i" }), "expected one of id"),
        ("/v1/refund", "id", json!({ "charges": charges, "decision": { "limits": [] } }), "decision, units"),
        ("/v1/peek", "path", json!({ "charges": charges }), "expected charges or a request, not both"),
        ("/v1/peek", "on_outage", json!({ "path": "/mine" }), "expected charges beside it"),
        ("/v1/limit", "keep_seconds", json!({ "charges": charges }), "expected an id beside it"),
    ];
    for (path, member, call, expected) in cases {
        let without = client.call(path, &call);
        for value in [json!(["of", { "any": "kind" }]), json!("deny"), json!(7)] {
            let mut call = call.clone();
            call[member] = value;
            let told = client.call(path, &call).json();
            assert_eq!((&told["status"], &told["field"]), (&json!(422), &json!(member)), "{path} {call}");
        }
        let mut call = call.clone();
        call[member] = if member == "keep_seconds" { json!(5) } else { json!("allow") };
        let told = client.call(path, &call).json();
        assert!(told["detail"].as_str().unwrap().contains(expected), "{path} {call}: {told}");
        call[member] = Json::Null;
        assert_eq!(client.call(path, &call).status, without.status, "{path} {call}");
    }
    for member in ["id", "charges"] {
        let twice = format!(r#"{{"{member}": null, "{member}": null}}"#);
        let told = client.post("/v1/limit", &twice).json();
        assert!(told["detail"].as_str().unwrap().contains("duplicate field"), "{told}");
    }
}

/// One check of a batch that says too much is refused alone.
#[test]
fn a_misplaced_member_is_the_problem_of_one_check() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let charges = json!([{ "key": "k", "quota": "100/h" }]);
    let checks = json!([{ "charges": charges }, { "charges": charges, "units": 1 }, { "charges": charges }]);
    let told = rig.client().call("/v1/limit/batch", &json!({ "checks": checks })).json();
    let statuses: Vec<&Json> =
        told["decisions"].as_array().unwrap().iter().map(|told| &told["status"]).collect();
    assert_eq!(statuses, [200, 422, 200], "{told}");
    assert_eq!(told["decisions"][1]["field"], "units");
    let unknown = rig.client().call("/v1/check/batch", &json!({ "checks": [{}, { "colour": "red" }] }));
    let told = unknown.json();
    assert_eq!((unknown.status, &told["decisions"][1]["field"]), (200, &json!("colour")), "{told}");
}

#[test]
fn what_is_no_object_is_not_taken_for_one() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let charge = json!(["user:arr", "100/60s", "fixed_window", 7]);
    let key = json!({ "key": "user:arr", "quota": "100/60s fixed_window" });
    let calls = [
        ("/v1/limit", json!([[charge]])),
        ("/v1/limit", json!({ "charges": [charge] })),
        ("/v1/limit", json!({ "charges": [{ "key": "k", "quota": "1/s", "overrides": ["e", "o"] }] })),
        ("/v1/limit/batch", json!([[[[key]]]])),
        ("/v1/limit/batch", json!({ "checks": [[[key]]] })),
        ("/v1/refund", json!({ "charges": [key], "decision": [[["limit", "1/s", 1]]] })),
        ("/v1/refund", json!({ "charges": [key], "decision": { "limits": [["limit", "1/s", 1]] } })),
    ];
    for (path, call) in calls {
        let reply = client.call(path, &call);
        let told = reply.json();
        // In a batch it is the problem of one check.
        let told = told["decisions"].get(0).unwrap_or(&told);
        assert_eq!(told["status"], 422, "{path} {call}: {told}");
        assert!(told["detail"].as_str().unwrap().contains("expected an object"), "{told}");
    }
    assert_eq!(remaining(&client.call("/v1/peek", &json!({ "charges": [key] })).json()), [100]);
}

#[test]
fn reservations_lapse_by_the_clock_of_the_store() {
    let (rig, clock) = Setup::default().in_memory();
    let mut client = rig.client();
    let call =
        json!({ "id": "r", "hold_seconds": 5, "charges": [{ "key": "k", "quota": "5/h", "cost": 3 }] });
    assert_eq!(remaining(&client.call("/v1/reserve", &call).json()), [2]);
    let again = client.call("/v1/reserve", &call).json();
    assert_eq!((&again["origin"], remaining(&again)), (&json!("repeat"), vec![2]));
    let mut other = call.clone();
    other["charges"][0]["cost"] = 2.into();
    assert_eq!(client.call("/v1/reserve", &other).status, 409);
    clock.advance(Duration::from_secs(6));
    assert_eq!(client.call("/v1/settle", &json!({ "id": "r", "actual": 1 })).status, 410);
}

#[test]
fn operators_have_calls_of_their_own() {
    use ratekeeper_server::serve::{Admin, Token};
    let token = "a-token-of-operators";
    let admin = Admin::from(Token::new(token).unwrap());
    let (rig, _) = Setup { admin, ..Setup::policy(POLICY) }.in_memory();
    let mut client = rig.client();
    let key = json!({ "charges": [{ "key": "eve", "quota": "1/min" }] });
    for _ in 0..3 {
        client.call("/v1/limit", &key);
    }
    for (method, path) in [("POST", "/v1/reset"), ("GET", "/v1/hot-keys"), ("GET", "/v1/policies")] {
        for headers in [vec![], vec![("authorization", "Bearer a-token-of-operator")]] {
            let mut client = rig.client();
            let reply = client.ask(method, path, &headers, key.to_string().as_bytes());
            assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")), "{path}");
            assert!(!reply.text().contains("eve") && !reply.text().contains(token));
        }
    }
    let bearer = format!("Bearer {token}");
    let ask = |method, path| {
        let mut client: Client = rig.client();
        client.ask(method, path, &[("authorization", &bearer)], key.to_string().as_bytes()).json()
    };
    let hot = json!({ "rule": "/limit/limit", "key": "eve", "denied": 2, "at_most_too_many": 0 });
    assert_eq!(ask("GET", "/v1/hot-keys"), json!({ "keys": [hot] }));
    let policies = ask("GET", "/v1/policies");
    assert_eq!(
        (&policies["services"][0]["service"], &policies["services"][0]["in_force"]),
        (&json!("shop"), &json!(true))
    );
    assert_eq!(ask("POST", "/v1/reset"), json!({ "forgotten": 1 }));
    assert_eq!(client.call("/v1/limit", &key).status, 200, "forgotten");
}

/// A call that has no handler of its own must not do what another does.
#[test]
fn no_call_but_reset_forgets_counters() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let key = json!({ "charges": [{ "key": "k", "quota": "100/h fixed_window", "cost": 10 }] });
    client.call("/v1/limit", &key);
    for path in CALLS.iter().map(|call| call.path).chain(["/v1/forget", "/v1", "/v1/reset/batch"]) {
        if path != "/v1/reset" {
            let reply = rig.client().call(path, &key);
            assert!(!reply.text().contains("forgotten"), "{path}: {}", reply.text());
        }
    }
    // The call itself and the one of the loop.
    assert_eq!(remaining(&client.call("/v1/peek", &key).json()), [80]);
    assert_eq!(client.call("/v1/reset", &key).json(), json!({ "forgotten": 1 }));
}

#[test]
fn of_several_keys_the_one_that_was_denied_is_noted() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let call = json!({ "charges": [{ "key": "ann", "quota": "5/min" }, { "key": "eve", "quota": "1/min" }] });
    assert_eq!((client.call("/v1/limit", &call).status, client.call("/v1/limit", &call).status), (200, 429));
    let hot = client.get("/v1/hot-keys").json();
    let keys: Vec<&str> =
        hot["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["eve"]);
    let metrics = client.get("/metrics");
    for (outcome, count) in [("allowed", 2), ("denied", 1), ("denied_elsewhere", 1)] {
        let line =
            format!("ratekeeper_limit_decisions_total{{name=\"limit\",outcome=\"{outcome}\"}} {count}\n");
        assert!(metrics.text().contains(&line), "{line}{}", metrics.text());
    }
}

#[test]
fn several_services_must_be_told_apart() {
    const OTHER: &str = "service = \"other\"\n[[rules]]\nname = \"all\"\nkeys = \"all\"\nquota = \"5/s\"\n";
    let (rig, _) = Setup { policies: vec![POLICY, OTHER], ..Setup::default() }.in_memory();
    let mut client = rig.client();
    let reply = client.call("/v1/check", &json!({ "path": "/" }));
    assert_eq!((reply.status, &reply.json()["field"]), (422, &json!("service")));
    assert_eq!(remaining(&client.call("/v1/check", &json!({ "service": "other" })).json()), [4]);
}

/// A window too many of a quota and key is the caller's mistake: refused with its field, charged nowhere, and nothing that
/// an outage would excuse.
#[test]
fn a_ninth_window_of_a_key_is_refused_and_charges_nothing() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let of = |hours: u32| json!({ "key": "k", "quota": format!("10/{hours}h") });
    // Windows of more than an hour, which are counted by themselves.
    for hours in 2..=9 {
        assert_eq!(client.call("/v1/limit", &json!({ "charges": [of(hours)] })).status, 200);
    }
    for on_outage in ["allow", "deny"] {
        let charges = json!([{ "key": "beside", "quota": "10/h" }, of(10)]);
        let reply = client.call("/v1/limit", &json!({ "charges": charges, "on_outage": on_outage }));
        let told = reply.json();
        assert_eq!((reply.status, told["field"].as_str()), (422, Some("quota")), "{told}");
        let detail = told["detail"].as_str().unwrap();
        assert!(
            detail
                .contains("got more than 8 windows of a quota for one key; expected at most 8 up to an hour"),
            "{told}"
        );
    }
    let beside = json!({ "charges": [{ "key": "beside", "quota": "10/h" }] });
    assert_eq!(remaining(&client.call("/v1/peek", &beside).json()), [10], "nothing was charged");
    assert_eq!(client.call("/v1/limit", &json!({ "charges": [of(8)] })).status, 200, "the others count on");
}
