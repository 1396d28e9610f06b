//! Names of charges: served however many there are, told apart as long as they are few.

use ratekeeper_server::serve::api::{LIMIT_NAMES_MAX, LIMIT_SERIES_MAX};
use serde_json::{Value as Json, json};

use crate::calls::remaining;
use crate::client::Client;
use crate::rig::Setup;

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

#[test]
fn what_is_refused_or_only_looked_at_uses_up_no_name() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let wrong = [
        json!({ "quota": "bogus" }),
        json!({ "cost": 1_000_000_001 }),
        json!({ "emergency": "panic" }),
        json!({ "overrides": { "endpoint": "", "organisation": "" } }),
    ];
    // As many names as there are, several times over.
    for batch in 0..2 * LIMIT_NAMES_MAX / 1_000 {
        let checks: Vec<Json> = (0..1_000)
            .map(|number| {
                let mut charge = json!({ "key": "k", "quota": "5/min", "name": format!("n{batch}-{number}") });
                let wrong = wrong[number % wrong.len()].as_object().unwrap().clone();
                charge.as_object_mut().unwrap().extend(wrong);
                json!({ "charges": [{ "key": "k", "quota": "5/min", "name": format!("m{batch}-{number}") }, charge] })
            })
            .collect();
        let told = client.call("/v1/limit/batch", &json!({ "checks": checks })).json();
        assert!(told["decisions"].as_array().unwrap().iter().all(|told| told["status"] == 422), "{told}");
    }
    let call = |name: &str| json!({ "charges": [{ "name": name, "key": "k", "quota": "5/min" }] });
    for number in 0..LIMIT_SERIES_MAX {
        assert_eq!(client.call("/v1/peek", &call(&format!("peeked-{number}"))).status, 200);
    }
    assert_eq!(client.call("/v1/limit", &call("new")).status, 200);
    assert_eq!(counted(&mut client, "new"), Some(1), "told apart from the others");
}
