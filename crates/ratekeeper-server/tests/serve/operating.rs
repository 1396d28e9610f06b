//! What operators change over HTTP: checks follow it, on every server of the store.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::RedisStore;
use ratekeeper_server::serve::{Admin, CALLS, Method, Token};
use ratekeeper_testkit::servers::{Flavour, Server};
use ratekeeper_testkit::wait;
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::rig::{RUNTIME, Rig, Setup};

const POLICY: &str = "service = 'search'\n\
     [[rules]]\nname = 'per-project'\nkeys = 'project:{identity.project}'\noverrides = true\nquota = '2/min fixed_window'\n\
     [[rules]]\nname = 'tiers'\nkeys = 'org:{identity.org}'\noverrides = true\n\
     quotas = { rpm = '1000/min', rph = '9000/h' }\n";

fn request() -> Json {
    json!({ "service": "search", "identity": { "org": "7", "project": "42" } })
}

/// How many of five requests pass.
fn passed(client: &mut Client) -> usize {
    (0..5).filter(|_| client.call("/v1/check", &request()).status == 200).count()
}

fn is_done(client: &mut Client, path: &str, call: &Json) -> Json {
    let reply = client.call(path, call);
    assert_eq!(reply.status, 200, "{path} {call}: {}", reply.text());
    reply.json()
}

fn scope() -> Json {
    json!({ "endpoint": "search/per-project", "organisation": "7", "project": "42" })
}

fn with(mut call: Json, more: &Json) -> Json {
    for (name, value) in more.as_object().unwrap() {
        call[name] = value.clone();
    }
    call
}

#[test]
fn an_override_holds_from_the_next_check_until_it_ends_or_is_deleted() {
    let (rig, clock) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    assert_eq!(passed(&mut client), 2);
    is_done(&mut client, "/v1/overrides/set", &with(scope(), &json!({ "limit": 4, "for": "90s" })));
    assert_eq!(passed(&mut client), 2, "two more of the same window");
    clock.advance(Duration::from_secs(60));
    assert_eq!(passed(&mut client), 4);
    clock.advance(Duration::from_secs(60));
    assert_eq!(passed(&mut client), 2, "it has ended");
    assert_eq!(client.call("/v1/overrides/get", &scope()).status, 404);
    is_done(&mut client, "/v1/overrides/set", &with(scope(), &json!({ "limit": 0 })));
    clock.advance(Duration::from_secs(60));
    assert_eq!(passed(&mut client), 0);
    assert_eq!(is_done(&mut client, "/v1/overrides/delete", &scope()), json!({ "deleted": 1 }));
    assert_eq!(is_done(&mut client, "/v1/overrides/delete", &scope()), json!({ "deleted": 0 }));
    assert_eq!(passed(&mut client), 2);
}

/// Rules may find the endpoint of their overrides in requests. It is held against the policies of all services.
#[test]
fn an_override_for_an_endpoint_that_holds_for_no_quota_is_refused() {
    let policy = "service = 'search'\n[[rules]]\nname = 'calls'\nkeys = 'org:{identity.org}'\n\
         overrides = { endpoint = '{route}' }\nquotas = { rps = '5/s', rpm = '50/min' }\n";
    let (rig, _) = Setup::policy(policy).in_memory();
    let mut client = rig.client();
    let set = |endpoint: &str| json!({ "endpoint": endpoint, "organisation": "7", "limit": 1 });
    let refused = client.call("/v1/overrides/set", &set("/maps"));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("expected one of `/maps.rpm`, `/maps.rps`"), "{}", refused.text());
    is_done(&mut client, "/v1/overrides/set", &set("/maps.rpm"));
    let asked = with(request(), &json!({ "route": "/maps" }));
    assert_eq!(client.call("/v1/check", &asked).status, 200);
    assert_eq!(client.call("/v1/check", &asked).status, 429);
}

#[test]
fn overrides_are_listed_as_they_were_set_and_cleared_together() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let more = json!({ "limit": 9, "window": "1h", "reason": "because", "author": "ann", "for": "1d" });
    let set = is_done(&mut client, "/v1/overrides/set", &with(scope(), &more));
    assert_eq!((&set["window"], &set["author"]), (&json!("3600s"), &json!("ann")));
    let tier = json!({ "endpoint": "search/tiers.rpm", "organisation": "7", "limit": 5 });
    is_done(&mut client, "/v1/overrides/set", &tier);
    let of_project = json!({ "organisation": "7", "project": "42" });
    let listed = is_done(&mut client, "/v1/overrides/list", &of_project);
    assert_eq!(listed, json!({ "overrides": [set] }));
    // As it was told, it can be set again: that is how they are exported and imported.
    assert_eq!(is_done(&mut client, "/v1/overrides/set", &listed["overrides"][0]), set);
    let of_organisation = json!({ "organisation": "7" });
    let listed = is_done(&mut client, "/v1/overrides/list", &of_organisation);
    assert_eq!(listed["overrides"][0]["endpoint"], "search/tiers.rpm");
    assert_eq!(is_done(&mut client, "/v1/overrides/clear", &of_project), json!({ "deleted": 1 }));
    assert_eq!(is_done(&mut client, "/v1/overrides/clear", &of_organisation), json!({ "deleted": 1 }));
}

/// Nothing is changed by any of these.
#[test]
fn what_is_wrong_is_named_and_changes_nothing() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let limit = json!({ "limit": 5 });
    let set = |more: Json| with(with(scope(), &limit), &more);
    let wrong = [
        ("/v1/overrides/set", set(json!({ "limit": 1_000_000_001 })), "limit"),
        ("/v1/overrides/set", set(json!({ "limit": -1 })), "limit"),
        ("/v1/overrides/set", set(json!({ "window": "soon" })), "window"),
        ("/v1/overrides/set", set(json!({ "window": "5" })), "window"),
        ("/v1/overrides/set", set(json!({ "for": "-1h" })), "for"),
        ("/v1/overrides/set", set(json!({ "for": "1h", "until_us": 1 })), "until_us"),
        ("/v1/overrides/set", set(json!({ "until_us": 1 })), "until_us"),
        ("/v1/overrides/set", set(json!({ "endpoint": "" })), "endpoint"),
        ("/v1/overrides/set", set(json!({ "endpoint": "search/tiers" })), "endpoint"),
        ("/v1/overrides/set", set(json!({ "reason": "x".repeat(513) })), "endpoint"),
        ("/v1/overrides/set", set(json!({ "burst": 7 })), "burst"),
        ("/v1/modes/set", json!({ "rule": "search/*", "mode": "sideways" }), "mode"),
        ("/v1/modes/set", json!({ "rule": "search/*" }), "mode"),
        ("/v1/modes/set", json!({ "rule": "search/*", "enforce_percent": 101 }), "enforce_percent"),
        ("/v1/modes/set", json!({ "rule": "search/no-such-rule", "mode": "off" }), "rule"),
        ("/v1/modes/set", json!({ "rule": "search", "mode": "off" }), "rule"),
        ("/v1/modes/set", json!({ "rule": "", "mode": "off" }), "rule"),
        ("/v1/modes/set", json!({ "rule": "*/*", "mode": "off" }), "rule"),
        ("/v1/emergencies/set", json!({ "rule": "*", "emergency": "panic", "for": "1h" }), "emergency"),
        ("/v1/emergencies/set", json!({ "rule": "*", "emergency": "lift" }), "for"),
    ];
    for (path, call, field) in wrong {
        let reply = client.call(path, &call);
        assert_eq!((reply.status, &reply.json()["field"]), (422, &json!(field)), "{call}: {}", reply.text());
    }
    for call in CALLS.iter().filter(|call| call.path.contains("overrides") || call.path.contains("modes")) {
        for body in ["[]", "7", "null", "{", ""] {
            let status = client.post(call.path, body).status;
            assert!(matches!(status, 400 | 422), "{} {body}: {status}", call.path);
        }
    }
    let switches = client.get("/v1/switches").json();
    assert_eq!(switches, json!({ "modes": [], "emergencies": [] }));
    assert_eq!(passed(&mut client), 2);
}

#[test]
fn modes_and_emergencies_hold_beside_each_other_and_end() {
    let (rig, clock) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    is_done(
        &mut client,
        "/v1/modes/set",
        &json!({ "rule": "search/per-project", "mode": "monitor", "for": "2min" }),
    );
    assert_eq!(passed(&mut client), 5);
    is_done(
        &mut client,
        "/v1/emergencies/set",
        &json!({ "rule": "search/*", "emergency": "block", "for": "1min" }),
    );
    assert_eq!(passed(&mut client), 0, "the other rule of the service denies");
    let switches = client.get("/v1/switches").json();
    assert_eq!(
        (switches["modes"][0]["mode"].as_str(), switches["emergencies"][0]["emergency"].as_str()),
        (Some("monitor"), Some("block"))
    );
    clock.advance(Duration::from_secs(60));
    assert_eq!(passed(&mut client), 5, "the emergency has ended, the mode has not");
    clock.advance(Duration::from_secs(60));
    assert_eq!(passed(&mut client), 2);
    assert_eq!(client.get("/v1/switches").json(), json!({ "modes": [], "emergencies": [] }));
}

/// Programs can set an emergency as a part of a switch.
#[test]
fn an_emergency_of_a_program_is_seen_kept_and_ended() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let set = |text: &str| {
        rig.store.control().set_switch("search/*", text.parse().unwrap()).now().unwrap().unwrap();
    };
    for text in ["emergency=block", "mode=on emergency=block"] {
        set(text);
        assert_eq!(passed(&mut client), 0, "{text}");
        let switches = client.get("/v1/switches").json();
        assert_eq!(switches["emergencies"][0]["emergency"], "block", "{text}");
        let ended = is_done(&mut client, "/v1/emergencies/clear", &json!({ "rule": "search/*" }));
        assert_eq!(ended, json!({ "cleared": true }), "{text}");
        assert_eq!(client.get("/v1/switches").json()["emergencies"], json!([]), "{text}");
    }
    set("emergency=block");
    is_done(&mut client, "/v1/modes/set", &json!({ "rule": "search/*", "mode": "on" }));
    assert_eq!(passed(&mut client), 0, "a mode replaces no emergency");
    let switches = client.get("/v1/switches").json();
    assert_eq!(
        (switches["modes"].as_array().unwrap().len(), switches["emergencies"].as_array().unwrap().len()),
        (1, 1)
    );
    is_done(&mut client, "/v1/modes/clear", &json!({ "rule": "search/*" }));
    assert_eq!(passed(&mut client), 0);
    is_done(&mut client, "/v1/emergencies/clear", &json!({ "rule": "search/*" }));
    assert_eq!(client.get("/v1/switches").json(), json!({ "modes": [], "emergencies": [] }));
}

#[test]
fn one_key_is_blocked_and_no_other() {
    let (rig, clock) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let block = json!({ "rule": "search/*", "key": "project:42", "emergency": "block", "for": "1min", "reason": "abuse" });
    let set = is_done(&mut client, "/v1/emergencies/set", &block);
    assert_eq!((&set["rule"], &set["key"]), (&json!("search/*"), &json!("project:42")));
    assert_eq!(passed(&mut client), 0);
    let other = json!({ "service": "search", "identity": { "org": "7", "project": "43" } });
    assert_eq!(client.call("/v1/check", &other).status, 200);
    let switches = client.get("/v1/switches").json();
    assert_eq!((&switches["emergencies"][0]["key"], &switches["modes"]), (&json!("project:42"), &json!([])));
    let clear = json!({ "rule": "search/*", "key": "project:42" });
    assert_eq!(is_done(&mut client, "/v1/emergencies/clear", &clear), json!({ "cleared": true }));
    assert_eq!(passed(&mut client), 2);
    is_done(&mut client, "/v1/emergencies/set", &block);
    clock.advance(Duration::from_secs(60));
    assert_eq!(passed(&mut client), 2, "it has ended");
    for (name, value) in [("emergency", json!("lift")), ("key", json!("a\nb")), ("key", json!(""))] {
        let mut wrong = block.clone();
        wrong[name] = value;
        let reply = client.call("/v1/emergencies/set", &wrong);
        assert_eq!((reply.status, &reply.json()["field"]), (422, &json!("key")), "{}", reply.text());
    }
}

#[test]
fn a_lift_of_everything_reaches_charges_without_a_policy() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let limit = json!({ "charges": [{ "key": "k", "quota": "1/h" }] });
    let passed =
        |client: &mut Client| (0..3).filter(|_| client.call("/v1/limit", &limit).status == 200).count();
    assert_eq!(passed(&mut client), 1);
    is_done(&mut client, "/v1/emergencies/set", &json!({ "rule": "*", "emergency": "lift", "for": "1min" }));
    assert_eq!(passed(&mut client), 3);
    assert_eq!(
        is_done(&mut client, "/v1/emergencies/clear", &json!({ "rule": "*" })),
        json!({ "cleared": true })
    );
    assert_eq!(passed(&mut client), 0);
    assert_eq!(
        is_done(&mut client, "/v1/emergencies/clear", &json!({ "rule": "*" })),
        json!({ "cleared": false })
    );
}

#[test]
fn without_the_token_nothing_is_told_or_changed() {
    let admin = Admin::from(Token::new("0123456789abcdef").unwrap());
    let (rig, _) = Setup { admin, ..Setup::policy(POLICY) }.in_memory();
    let call = with(scope(), &json!({ "limit": 1000 })).to_string();
    let tokens = [None, Some("Bearer "), Some("Bearer 0123456789abcdee"), Some("Basic 0123456789abcdef")];
    for call_of in CALLS.iter().filter(|call| call.access.takes_token()) {
        let method = if call_of.method == Method::Get { "GET" } else { "POST" };
        for token in tokens {
            let fields: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
            let reply = rig.client().ask(method, call_of.path, &fields, call.as_bytes());
            // After some guesses, no token of the address is looked at any more.
            assert!(matches!(reply.status, 401 | 429), "{} {token:?}: {}", call_of.path, reply.status);
        }
        // A token in the address would stand in logs of proxies.
        let with_query = format!("{}?token=0123456789abcdef&access_token=0123456789abcdef", call_of.path);
        assert_eq!(rig.client().ask(method, &with_query, &[], call.as_bytes()).status, 400, "{with_query}");
    }
    assert_eq!(passed(&mut rig.client()), 2);
}

/// Three servers on one Redis.
#[test]
fn every_server_of_a_store_follows_within_a_second() {
    let server = Server::start(Flavour::Redis7);
    let rigs: Vec<Rig> = (0..3)
        .map(|_| {
            let store = {
                let _within = RUNTIME.enter();
                RedisStore::builder(&server.url()).deadline(Duration::from_secs(20)).build().unwrap()
            };
            Setup::policy(POLICY).start(Arc::new(store))
        })
        .collect();
    let mut clients: Vec<Client> = rigs.iter().map(Rig::client).collect();
    is_done(&mut clients[0], "/v1/overrides/set", &with(scope(), &json!({ "limit": 3 })));
    let all: usize = clients.iter_mut().map(passed).sum();
    assert_eq!(all, 3, "one counter, one override, three servers");
    is_done(
        &mut clients[1],
        "/v1/emergencies/set",
        &json!({ "rule": "*", "emergency": "lift", "for": "1h" }),
    );
    for client in &mut clients {
        let is_lifted = || client.call("/v1/check", &request()).status == 200;
        wait::until("the lift reaches every server", is_lifted);
    }
    is_done(&mut clients[2], "/v1/emergencies/clear", &json!({ "rule": "*" }));
    for client in &mut clients {
        let is_limited = || client.call("/v1/check", &request()).status == 429;
        wait::until("the end of the lift reaches every server", is_limited);
    }
}
