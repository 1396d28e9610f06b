//! Names of charges: served however many there are, told apart as long as they are few.

use ratekeeper::bounds::NAMES_MAX;
use ratekeeper_server::serve::api::LIMIT_SERIES_MAX;
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
