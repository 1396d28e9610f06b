//! Names of charges: served however many there are, told apart as long as they are few.

use std::sync::Arc;

use ratekeeper::bounds::NAMES_MAX;
use ratekeeper::{ManualClock, MemoryStore, Store};
use ratekeeper_server::serve::api::LIMIT_SERIES_MAX;
use serde_json::{Value as Json, json};

use crate::calls::remaining;
use crate::client::Client;
use crate::rig::{START, Setup};

/// The counts of charges by name.
fn counted(client: &mut Client, name: &str) -> Option<u64> {
    let series = format!("ratekeeper_limit_decisions_total{{name=\"{name}\",outcome=\"allowed\"}} ");
    let metrics = client.get("/metrics");
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(&series));
    line.map(|count| count.parse().unwrap())
}

#[test]
fn names_that_are_told_apart_are_few_and_the_rest_is_served() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let call = |name: &str| json!({ "charges": [{ "name": name, "key": "k", "quota": "5/min" }] });
    for number in 0..LIMIT_SERIES_MAX {
        assert_eq!(client.call("/v1/limit", &call(&format!("name-{number}"))).status, 200);
    }
    for name in ["one-too-many", "and-another", "other"] {
        let reply = client.call("/v1/limit", &call(name));
        assert_eq!((reply.status, remaining(&reply.json())), (200, vec![4]), "{name}");
        assert_eq!(reply.json()["limits"][0]["name"], name);
    }
    assert_eq!(client.call("/v1/limit", &call("name-7")).status, 200);
    assert_eq!(counted(&mut client, "name-7"), Some(2));
    assert_eq!(counted(&mut client, "one-too-many"), None);
    assert_eq!(counted(&mut client, "other"), Some(3));
}

/// Made-up names were interned: 50,000 of them, and every new one was refused until a restart.
#[test]
fn made_up_names_use_up_nothing() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let charge = |name: String| json!({ "key": "k", "quota": "5/min", "name": name });
    // More names than a process may intern, in calls that only look and in calls that charge.
    for batch in 0..=NAMES_MAX / 64 {
        let charges: Vec<Json> = (0..64).map(|number| charge(format!("n{batch}-{number}"))).collect();
        let path = if batch % 8 == 0 { "/v1/limit" } else { "/v1/peek" };
        let reply = client.call(path, &json!({ "charges": charges }));
        assert_eq!(reply.status, 200, "{batch}: {}", reply.text());
    }
    assert_eq!(client.call("/v1/limit", &json!({ "charges": [charge("new".into())] })).status, 200);
}

/// Each made-up name would be a rule of its own and below its share, if names of charges counted as rules.
#[test]
fn made_up_names_and_keys_push_out_no_counter_of_a_rule() {
    const POLICY: &str = "service = \"s\"\n[[rules]]\nname = \"per-user\"\nkeys = \"user:{identity.user}\"\nquota = \"100/h\"\n";
    let clock = ManualClock::starting_at(START);
    let store = Arc::new(MemoryStore::with_clock(2_560, Arc::new(clock)));
    let rig = Setup::policy(POLICY).start(Arc::clone(&store) as Arc<dyn Store>);
    let mut client = rig.client();
    let check = |user: usize, cost: u64| json!({ "identity": { "user": user.to_string() }, "cost": cost });
    for user in 0..100 {
        let reply = client.call("/v1/check", &check(user, 98));
        assert_eq!((reply.status, remaining(&reply.json())), (200, vec![2]), "{}", reply.text());
    }
    for batch in 0..400 {
        let charge = |number: usize| json!({ "name": format!("n{batch}-{number}"), "key": format!("k{batch}-{number}"), "quota": "1/h" });
        let charges: Vec<Json> = (0..64).map(charge).collect();
        let reply = client.call("/v1/limit", &json!({ "charges": charges }));
        assert_eq!(reply.status, 200, "a new key is no outage: {}", reply.text());
    }
    assert!(store.health().evicted > 20_000, "{:?}", store.health());
    for user in 0..100 {
        let reply = client.call("/v1/check", &check(user, 1));
        assert_eq!((reply.status, remaining(&reply.json())), (200, vec![1]), "user {user}");
    }
}

#[test]
fn what_is_refused_or_only_looked_at_has_no_series() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let call = |name: &str, quota: &str| json!({ "charges": [{ "name": name, "key": "k", "quota": quota }] });
    for number in 0..LIMIT_SERIES_MAX {
        assert_eq!(client.call("/v1/peek", &call(&format!("peeked-{number}"), "5/min")).status, 200);
        assert_eq!(client.call("/v1/limit", &call(&format!("refused-{number}"), "bogus")).status, 422);
    }
    assert_eq!(client.call("/v1/limit", &call("new", "5/min")).status, 200);
    assert_eq!(counted(&mut client, "new"), Some(1), "told apart from the others");
}

/// Two charges without a name were both called `limit`: nobody could tell which of them denied.
#[test]
fn charges_without_a_name_are_told_apart_and_count_in_the_same_place() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let call = json!({ "charges": [
        { "key": "a", "quota": "5/min" },
        { "name": "own", "key": "b", "quota": "5/min" },
        { "key": "c", "quota": "1/min" },
        { "key": "d", "quota": "5/min" },
    ] });
    let reply = client.call("/v1/limit", &call);
    let told = reply.json();
    let names: Vec<&str> =
        told["limits"].as_array().unwrap().iter().map(|limit| limit["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["limit", "own", "limit-3", "limit-4"]);
    let denied = client.call("/v1/limit", &call);
    assert_eq!((denied.status, &denied.json()["violated-policies"]), (429, &json!(["limit-3"])));
    let field = denied.header("ratelimit").unwrap();
    assert!(field.contains("\"limit-3\";r=0;") && field.contains("\"limit-4\";r=4;"), "{field}");
    // The place in a call is no part of a counter, nor of a refund.
    let alone = json!({ "charges": [{ "key": "d", "quota": "5/min" }] });
    assert_eq!(remaining(&client.call("/v1/peek", &alone).json()), [4]);
    let decision = json!({ "limits": [told["limits"][3]] });
    let refund = json!({ "charges": alone["charges"], "decision": decision });
    assert_eq!(client.call("/v1/refund", &refund).status, 200);
    assert_eq!(remaining(&client.call("/v1/peek", &alone).json()), [5]);
    assert_eq!(counted(&mut client, "limit"), Some(3), "metrics tell of all that have none");
    assert_eq!(counted(&mut client, "limit-3"), None);
}
