//! `/v1/explain/rules`: why a request or a key is limited, by what operators switched too, and when it passes again.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{RedisStore, Store};
use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::rig::{RUNTIME, Rig, START, Setup};
use crate::schemas::is_told;

/// The window begins with the first charge, so that it ends when a test says.
const POLICY: &str = "service = 'search'\n\
     [[rules]]\nname = 'per-user'\nkeys = 'user:{identity.user}'\nquota = '2/h fixed_window'\n\
     [[rules]]\nname = 'strict'\nwhen = \"path == '/strict'\"\nkeys = 'user:{identity.user}'\nquota = '1/min'\n\
     penalty = { denials = 1, within = '1min', duration = '10min' }\n\
     [[rules]]\nname = 'whole'\nwhen = \"path == '/whole'\"\nkeys = 'all'\nquota = '9/min'\n";

const MINUTE: u64 = 60_000_000;

fn ann() -> Json {
    json!({ "identity": { "user": "ann" } })
}

fn ann_at(path: &str) -> Json {
    json!({ "identity": { "user": "ann" }, "path": path })
}

fn done(client: &mut Client, path: &str, call: &Json) -> Json {
    let reply = client.call(path, call);
    assert_eq!(reply.status, 200, "{path} {call}: {}", reply.text());
    reply.json()
}

/// The answer, which is what the document says of it.
fn explained(client: &mut Client, call: &Json) -> Json {
    let reply = client.call("/v1/explain/rules", call);
    assert_eq!(reply.status, 200, "{call}: {}", reply.text());
    let document = client.get("/openapi.json").json();
    is_told(&document, "/v1/explain/rules", &reply);
    reply.json()
}

fn set(client: &mut Client, kind: &str, call: &Json) -> Json {
    done(client, &format!("/v1/{kind}/set"), call)
}

/// What is told of one rule, wherever it is.
fn of_rule<'j>(told: &'j Json, rule: &str) -> &'j Json {
    let lists = ["rules", "not_applied"].map(|list| told[list].as_array().unwrap());
    let mut all = lists.into_iter().flatten();
    all.find(|of| of["rule"] == rule).unwrap_or_else(|| panic!("{rule} is not in {told}"))
}

/// What a switch says, without what nobody set.
fn said(switch: &Json) -> Json {
    let mut said = switch.as_object().unwrap().clone();
    said.retain(|name, value| !value.is_null() && !["until_us", "set_at_us"].contains(&name.as_str()));
    said.into()
}

/// In memory, where the test has the clock, and on a server.
fn everywhere(test: impl Fn(&mut Client)) {
    test(&mut Setup::policy(POLICY).in_memory().0.client());
    let server = Server::start(Flavour::Valkey9);
    test(&mut on(&server).client());
}

fn on(server: &Server) -> Rig {
    let store: Arc<dyn Store> = {
        let _within = RUNTIME.enter();
        Arc::new(RedisStore::builder(&server.url()).deadline(Duration::from_secs(20)).build().unwrap())
    };
    Setup::policy(POLICY).start(store)
}

/// What operators can switch, what is then explained, and who is named for it.
#[test]
fn what_operators_switched_is_explained_with_who_did_it_and_until_when() {
    let cases = [
        // What is set; whether ann passes, whose two units are used; whether it denies, and what set its limit.
        ("modes", json!({ "rule": "search/*", "mode": "monitor" }), true, false, "default"),
        ("modes", json!({ "rule": "search/per-user", "enforce_percent": 0 }), true, false, "default"),
        ("modes", json!({ "rule": "*", "mode": "on", "enforce_percent": 100 }), false, true, "default"),
        ("emergencies", json!({ "rule": "search/per-user", "emergency": "lift" }), true, true, "emergency"),
        ("emergencies", json!({ "rule": "*", "emergency": "block" }), false, true, "emergency"),
        (
            "emergencies",
            json!({ "rule": "search/*", "emergency": "block", "key": "user:ann" }),
            false,
            true,
            "emergency",
        ),
    ];
    everywhere(|client| {
        for _ in 0..2 {
            assert_eq!(client.call("/v1/check", &ann()).status, 200);
        }
        assert_eq!(explained(client, &ann())["rules"][0]["switches"], json!([]));
        for (kind, what, passes, denies, level) in &cases {
            let mut call = what.clone();
            for (name, value) in [("for", "15min"), ("author", "ann"), ("reason", "trial")] {
                call[name] = json!(value);
            }
            let answer = set(client, kind, &call);
            for request in [ann(), json!({ "key": "user:ann" })] {
                let told = explained(client, &request);
                assert_eq!(told["allowed"], *passes, "{what}: {told}");
                let rule = of_rule(&told, "search/per-user");
                let (limit, switch) = (&rule["limits"][0], &rule["switches"][0]);
                assert_eq!((&limit["enforced"], &limit["level"]), (&json!(denies), &json!(level)), "{told}");
                let mut expected = what.clone();
                for (name, value) in [("by", "local"), ("author", "ann"), ("reason", "trial")] {
                    expected[name] = json!(value);
                }
                assert_eq!((said(switch), &rule["switches"][1]), (expected, &Json::Null), "{told}");
                assert_eq!(switch["until_us"], answer["until_us"], "{told}");
                assert!(switch["set_at_us"].as_u64().is_some_and(|at| at >= START.as_micros()), "{told}");
            }
            done(client, &format!("/v1/{kind}/clear"), &json!({ "rule": what["rule"], "key": what["key"] }));
        }
    });
}

#[test]
fn a_rule_that_is_off_says_who_switched_it_off() {
    everywhere(|client| {
        set(client, "modes", &json!({ "rule": "search/per-user", "mode": "off", "author": "bob" }));
        for call in [ann(), json!({ "key": "user:ann" })] {
            let told = explained(client, &call);
            let rule = of_rule(&told, "search/per-user");
            assert_eq!((&told["allowed"], &rule["why"]), (&json!(true), &json!("it is switched off")));
            assert_eq!(
                (&rule["switches"][0]["mode"], &rule["switches"][0]["author"]),
                (&json!("off"), &json!("bob")),
                "{told}"
            );
            assert_eq!(of_rule(&told, "search/whole")["switches"], json!([]), "{told}");
        }
    });
}

#[test]
fn a_switch_that_no_line_is_about_has_no_author() {
    let server = Server::start(Flavour::Redis7);
    let rig = on(&server);
    let mut client = rig.client();
    let block = json!({ "rule": "search/per-user", "emergency": "block", "for": "1h", "author": "ann" });
    set(&mut client, "emergencies", &block);
    // A program, which writes no line.
    let until = START.as_micros() * 2;
    let over = format!("emergency=block until={until}");
    assert_eq!(server.cli(&["HSET", "rk:control", "emergency search/per-user", &over]), "0");
    let told = explained(&mut client, &ann());
    let switch = &of_rule(&told, "search/per-user")["switches"][0];
    assert_eq!(
        (&switch["until_us"], &switch["by"], &switch["author"]),
        (&json!(until), &Json::Null, &Json::Null)
    );
}

/// A block has an end, and what is behind it may deny for longer.
#[test]
fn a_blocked_request_passes_when_all_that_denies_it_is_over() {
    let (policy, _) = POLICY.split_once("[[rules]]\nname = 'strict'").unwrap();
    let block = |rule: &str, life: &str| json!({ "rule": rule, "emergency": "block", "for": life });
    let lift = |rule: &str, life: &str| json!({ "rule": rule, "emergency": "lift", "for": life });
    let own = "search/per-user";
    let cases = [
        // How many units are used, the emergencies, after how many minutes it passes.
        (0, vec![block(own, "15min")], 15),
        (0, vec![block(own, "15min"), block("*", "25min")], 25),
        (0, vec![block("search/*", "25min"), lift(own, "15min")], 0),
        (0, vec![block(own, "15min"), lift("*", "2h")], 15),
        (1, vec![block(own, "15min")], 15),
        (2, vec![block(own, "15min")], 60),
        (2, vec![block(own, "90min")], 90),
        (2, vec![block(own, "15min"), lift("*", "2h")], 15),
        (2, vec![block(own, "15min"), lift("*", "10min")], 60),
        // Lifted, until the block of the whole service is there again.
        (0, vec![block(own, "15min"), block("*", "40min"), lift("search/*", "20min")], 15),
        (2, vec![], 60),
    ];
    for (used, emergencies, minutes) in cases {
        let (rig, clock) = Setup::policy(policy).in_memory();
        let mut client = rig.client();
        for _ in 0..used {
            assert_eq!(client.call("/v1/check", &ann()).status, 200);
        }
        for emergency in &emergencies {
            set(&mut client, "emergencies", emergency);
        }
        for call in [ann(), json!({ "key": "user:ann" })] {
            let told = explained(&mut client, &call);
            let passes_at = START.as_micros() + minutes * MINUTE;
            assert_eq!(told["passes_at_us"], passes_at, "{used} {emergencies:?}: {told}");
            assert_eq!(told["retry_after_us"], minutes * MINUTE, "{told}");
        }
        let is_allowed = |client: &mut Client| done(client, "/v1/peek", &ann())["allowed"] == true;
        if minutes > 0 {
            clock.advance(Duration::from_micros(minutes * MINUTE - 1));
            assert!(!is_allowed(&mut client), "{used} {emergencies:?}");
            clock.advance(Duration::from_micros(1));
        }
        assert!(is_allowed(&mut client), "{used} {emergencies:?}");
    }
}

#[test]
fn a_block_on_a_server_passes_at_its_end() {
    let server = Server::start(Flavour::Redis7);
    let rig = on(&server);
    let mut client = rig.client();
    let until = set(
        &mut client,
        "emergencies",
        &json!({ "rule": "search/*", "emergency": "block", "key": "user:ann", "for": "15min" }),
    )["until_us"]
        .clone();
    let told = explained(&mut client, &ann());
    assert_eq!((&told["passes_at_us"], &told["decided_by"]), (&until, &json!("search/per-user")));
    assert_eq!(of_rule(&told, "search/per-user")["limits"][0]["passes_at_us"], until, "{told}");
    let other = explained(&mut client, &json!({ "identity": { "user": "bob" } }));
    assert_eq!((&other["allowed"], &other["rules"][0]["switches"]), (&json!(true), &json!([])));
    // The one that was not told is asked.
    let second = on(&server);
    assert_eq!(explained(&mut second.client(), &ann())["passes_at_us"], until);
}

#[test]
fn a_key_that_is_penalised_is_told_by_which_gate_and_for_how_long() {
    everywhere(|client| {
        assert_eq!(client.call("/v1/check", &ann_at("/strict")).status, 200);
        let denied = client.call("/v1/check", &ann_at("/strict"));
        assert_eq!(denied.status, 429, "{}", denied.text());
        for call in [ann_at("/strict"), json!({ "key": "user:ann" })] {
            let told = explained(client, &call);
            assert_eq!(
                (&told["allowed"], &told["decided_by"]),
                (&json!(false), &json!("search/strict.penalty"))
            );
            let limits = of_rule(&told, "search/strict")["limits"].as_array().unwrap();
            let gate = limits.iter().find(|limit| limit["name"] == "search/strict.penalty").unwrap();
            assert_eq!((&gate["used"], &gate["enforced"]), (&json!(1), &json!(true)), "{told}");
            assert_eq!(gate["passes_at_us"], told["passes_at_us"], "{told}");
            let wait = told["retry_after_us"].as_u64().unwrap();
            assert!((9 * MINUTE..=10 * MINUTE).contains(&wait), "{told}");
        }
        // A lift opens the gate too, and a block of the rule does not hide it.
        let of_strict = |emergency: &str, life: &str| json!({ "rule": "search/strict", "emergency": emergency, "for": life });
        set(client, "emergencies", &of_strict("lift", "1min"));
        assert_eq!(explained(client, &ann_at("/strict"))["allowed"], true);
        set(client, "emergencies", &of_strict("block", "1min"));
        let wait = explained(client, &ann_at("/strict"))["retry_after_us"].as_u64().unwrap();
        assert!((9 * MINUTE..=10 * MINUTE).contains(&wait), "{wait}");
    });
}

#[test]
fn a_key_is_explained_under_every_rule_that_counts_by_it() {
    let own = "[[rules]]\nname = 'own'\ncaller_key = true\nquota = '5/min'\n";
    let (rig, _) = Setup::policy(format!("{POLICY}{own}").leak()).in_memory();
    let mut client = rig.client();
    for _ in 0..2 {
        assert_eq!(client.call("/v1/check", &ann()).status, 200);
    }
    let told = explained(&mut client, &json!({ "key": "user:ann" }));
    let rules: Vec<&Json> = told["rules"].as_array().unwrap().iter().map(|rule| &rule["rule"]).collect();
    assert_eq!(rules, ["search/per-user", "search/strict", "search/own"], "conditions are not looked at");
    assert_eq!((&told["allowed"], &told["decided_by"]), (&json!(false), &json!("search/per-user")));
    assert_eq!(told["passes_at_us"], START.as_micros() + 60 * MINUTE);
    let other = of_rule(&told, "search/whole");
    assert_eq!(
        (&other["why"], &told["rules"][0]["key"]),
        (&json!("it counts under other keys"), &json!("user:ann"))
    );
    assert!(told["explanation"].as_str().unwrap().starts_with("denied by per-user: 0 of 2 left"), "{told}");
    // Of a key that used nothing, as many units as the call says.
    let bob = |cost: u32| json!({ "key": "user:bob", "service": "search", "cost": cost });
    assert_eq!(explained(&mut client, &bob(1))["allowed"], true);
    let told = explained(&mut client, &bob(2));
    assert_eq!((&told["allowed"], &told["decided_by"]), (&json!(false), &json!("search/strict")), "{told}");
    assert_eq!(told["passes_at_us"], Json::Null, "two can never pass one a minute: {told}");
    // Beside a request it is the key of the rules that take one from the caller.
    let mut request = ann();
    request["key"] = json!("job:7");
    let told = explained(&mut client, &request);
    assert_eq!(of_rule(&told, "search/own")["key"], "job:7");
    assert_eq!(of_rule(&told, "search/strict")["why"], "its condition does not hold");
    let nobody = explained(&mut client, &json!({ "key": "" }));
    assert_eq!((&nobody["allowed"], &nobody["rules"]), (&json!(true), &json!([])), "{nobody}");
    for (call, field) in [
        (json!({ "key": "user:ann", "cost": 2_000_000_000 }), "cost"),
        (json!({ "key": "user:ann", "service": "none" }), "service"),
    ] {
        let reply = client.call("/v1/explain/rules", &call);
        assert_eq!((reply.status, &reply.json()["field"]), (422, &json!(field)), "{}", reply.text());
    }
}

/// To a tenant, its limits are told and no operator is.
#[test]
fn usage_tells_no_tenant_who_switched_what() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let until = set(
        &mut client,
        "emergencies",
        &json!({ "rule": "search/*", "emergency": "block", "for": "15min", "author": "ann" }),
    )["until_us"]
        .clone();
    let told = done(&mut client, "/v1/usage", &json!({ "key": "user:ann" }));
    assert!(told["rules"][0].get("switches").is_none(), "{told}");
    assert_eq!(told["rules"][0]["limits"][0]["passes_at_us"], until, "{told}");
    let told = done(&mut client, "/v1/inspect", &json!({ "key": "user:ann" }));
    assert_eq!(told["rules"][0]["switches"][0]["author"], "ann", "{told}");
}
