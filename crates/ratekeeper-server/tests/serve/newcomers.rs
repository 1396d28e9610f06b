//! What new callers send, and mean: it works, or fails alone.

use serde_json::{Value as Json, json};

use crate::rig::{Rig, Setup};

const POLICY: &str = r#"
    service = "shop"

    [[rules]]
    name = "each"
    keys = ["user:{identity.user}", "key:{header.x-key}", "q:{query.q}", "ip:{client.ip}"]
    fallback = "none-of-them"
    quota = "100/h fixed_window"
"#;

fn rig() -> Rig {
    Setup::policy(POLICY).in_memory().0
}

/// What is left for the subject of a request: whoever shares it has one less.
#[track_caller]
fn left(rig: &Rig, call: &Json) -> u64 {
    let reply = rig.client().call("/v1/check", call);
    assert_eq!(reply.status, 200, "{call}: {}", reply.text());
    reply.json()["limits"][0]["remaining"].as_u64().unwrap()
}

#[test]
fn null_is_absent_everywhere() {
    let rig = rig();
    let client = "192.0.2.1";
    assert_eq!(left(&rig, &json!({ "client": client })), 99);
    let same = [
        json!({ "client": client, "identity": { "user": null } }),
        json!({ "client": client, "headers": { "x-key": null } }),
        json!({ "client": client, "headers": { "x-key": [null] } }),
        json!({ "client": client, "query": { "q": null } }),
        json!({ "client": client, "identity": null, "headers": null, "query": null, "cost": null }),
    ];
    for (call, others) in same.iter().zip(2..) {
        assert_eq!(left(&rig, call), 100 - others, "{call}");
    }
    assert_eq!(left(&rig, &json!({ "headers": { "x-key": "k" } })), 99);
    assert_eq!(left(&rig, &json!({ "headers": { "x-key": [null, "k"] } })), 98);
    let twice = rig.client().post("/v1/check", r#"{"identity":{"user":null,"user":"ann"}}"#);
    assert_eq!(twice.status, 422, "a member that stands twice is none the better for it");
}

#[test]
fn an_address_may_have_its_port() {
    let rig = rig();
    let of = |client: &str| left(&rig, &json!({ "client": client }));
    assert_eq!((of("192.0.2.1"), of("192.0.2.1:1234"), of("192.0.2.1:80")), (99, 98, 97));
    assert_eq!((of("2001:db8::1"), of("[2001:db8::1]:1234"), of("[2001:db8::1]")), (99, 98, 97));
    for client in
        ["192.0.2.1:", "192.0.2.1:port", "192.0.2.1:65536", "[192.0.2.1]", "[::1", "[::1]:", "localhost"]
    {
        let reply = rig.client().call("/v1/check", &json!({ "client": client }));
        assert_eq!((reply.status, &reply.json()["field"]), (422, &json!("client")), "{client}");
    }
}

#[test]
fn whole_numbers_may_be_written_as_others() {
    let rig = rig();
    let post = |path: &str, body: String| rig.client().post(path, &body);
    for (number, after) in [("5", 95), ("5.0", 90), ("5e0", 85), ("0.5e1", 80), ("50E-1", 75)] {
        let charge = format!(r#"{{"charges":[{{"key":"k","quota":"100/h fixed_window","cost":{number}}}]}}"#);
        let reply = post("/v1/limit", charge);
        assert_eq!((reply.status, &reply.json()["limits"][0]["remaining"]), (200, &json!(after)), "{number}");
        let request = format!(r#"{{"identity":{{"user":"ann"}},"cost":{number}}}"#);
        let reply = post("/v1/check", request);
        assert_eq!((reply.status, &reply.json()["limits"][0]["remaining"]), (200, &json!(after)), "{number}");
    }
    let reserved = r#"{"id":"a","hold_seconds":60.0,"charges":[{"key":"t","quota":"9/h","cost":4.0}]}"#;
    assert_eq!(post("/v1/reserve", reserved.to_owned()).status, 200);
    assert_eq!(post("/v1/settle", r#"{"id":"a","actual":2.0}"#.to_owned()).status, 200);
    let once = r#"{"id":"b","keep_seconds":6e1,"charges":[{"key":"t","quota":"9/h"}]}"#;
    assert_eq!(post("/v1/limit", once.to_owned()).status, 200);
    // A decision that went through a language without whole numbers.
    let charges = r#""charges":[{"key":"r","quota":"10/h fixed_window","cost":3}]"#;
    let told = post("/v1/limit", format!("{{{charges}}}")).text().replace("\"cost\":3", "\"cost\":3.0");
    let refunded = post("/v1/refund", format!(r#"{{{charges},"units":2.0,"decision":{told}}}"#));
    assert_eq!((refunded.status, &refunded.json()["units"]), (200, &json!(2)), "{}", refunded.text());
    for number in ["5.5", "-1", "-1.0", "1e10", "1e300", "99999999999999999999", "\"5\""] {
        let call = format!(r#"{{"identity":{{"user":"ann"}},"cost":{number}}}"#);
        let reply = post("/v1/check", call);
        assert_eq!((reply.status, &reply.json()["field"]), (422, &json!("cost")), "{number}");
    }
}

/// Numbers that a float does not hold are somebody else's, as in bodies.
#[test]
fn claims_that_differ_are_keys_that_differ() {
    let rig = rig();
    let ask = |user: &str| {
        let reply = rig.client().post("/v1/check", &format!(r#"{{"identity":{{"user":{user}}}}}"#));
        (reply.status, reply.json()["limits"][0]["remaining"].as_u64())
    };
    let different = [
        "18446744073709551617",
        "18446744073709551618",
        "-18446744073709551617",
        "18446744073709551615",
        "9223372036854775807",
        "1.5",
        "7",
        "true",
        r#""a\u00e9\"b""#,
    ];
    for user in different {
        assert_eq!(ask(user), (200, Some(99)), "{user}");
    }
    let same =
        ["18446744073709551617.0", r#""18446744073709551618""#, "7.0", r#""true""#, "\"a\u{e9}\\\"b\""];
    for user in same {
        assert_eq!(ask(user), (200, Some(98)), "{user} is one of them again");
    }
    for user in ["[1]", "{}", r#""\ud800""#, "1e999"] {
        assert_eq!(ask(user), (422, None), "{user}");
    }
}

#[test]
fn a_wrong_check_fails_alone_whatever_is_wrong() {
    let rig = rig();
    let good = r#"{"charges":[{"key":"k","quota":"100/h fixed_window"}]}"#;
    let deep = format!(r#"{{"charges":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let wrong = [
        ("7", 422, None),
        ("null", 422, None),
        ("[]", 422, None),
        (r#"{"charges":7}"#, 422, Some("charges")),
        (r#"{"charges":[7]}"#, 422, Some("charges[0]")),
        (r#"{"charges":[{"key":7,"quota":"1/s"}]}"#, 422, Some("charges[0].key")),
        (r#"{"charges":[{"key":"k","quota":"1/s","cost":"many"}]}"#, 422, Some("charges[0].cost")),
        (r#"{"charges":[{"key":"k","quota":"1/s","colour":1}]}"#, 422, Some("charges[0].colour")),
        (r#"{"charges":[{"key":"k","quota":"nonsense"}]}"#, 422, Some("charges[0].quota")),
        (r#"{"charges":[],"charges":[]}"#, 422, None),
        (r#"{"no_such_member":1}"#, 422, Some("no_such_member")),
        (r#"{"path":"/"}"#, 422, Some("path")),
        (r#"{"charges":[{"key":"\ud800","quota":"1/s"}]}"#, 400, None),
        (deep.as_str(), 422, Some("charges[0]")),
    ];
    for ((check, status, field), others) in wrong.iter().zip(1..) {
        let reply = rig.client().post("/v1/limit/batch", &format!(r#"{{"checks":[{good},{check},{good}]}}"#));
        assert_eq!(reply.status, 200, "{check}: {}", reply.text());
        let told = reply.json();
        let [before, it, after] = &told["decisions"].as_array().unwrap()[..] else { panic!("{told}") };
        assert_eq!((&it["status"], it["field"].as_str()), (&json!(status), *field), "{check}: {it}");
        assert!(
            !it["detail"].as_str().unwrap().contains(" at line "),
            "of the check, not of the batch: {it}"
        );
        assert_eq!(
            (&before["status"], &after["limits"][0]["remaining"]),
            (&json!(200), &json!(100 - 2 * others))
        );
    }
    let reply = rig.client().post(
        "/v1/check/batch",
        r#"{"checks":[{"identity":{"user":"ann"}},{"identity":7},{"client":"nowhere"},{"identity":{"user":"ann"}}]}"#,
    );
    let statuses: Vec<Json> = reply.json()["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|decision| decision["status"].clone())
        .collect();
    assert_eq!(statuses, [200, 422, 422, 200].map(Json::from));
}

#[test]
fn what_is_wrong_with_a_batch_itself_fails_all_of_it() {
    let rig = rig();
    let good = r#"{"charges":[{"key":"k","quota":"100/h fixed_window"}]}"#;
    let too_many = format!(r#"{{"checks":[{}7]}}"#, format!("{good},").repeat(1_000));
    let wrong = [
        (r#"{"checks":[]}"#.to_owned(), 422),
        (r#"{"checks":7}"#.to_owned(), 422),
        (r#"{"checks":null}"#.to_owned(), 422),
        ("{}".to_owned(), 422),
        ("[]".to_owned(), 422),
        (format!(r#"{{"checks":[{good}],"checks":[{good}]}}"#), 422),
        (format!(r#"{{"checks":[{good},7],"colour":1}}"#), 422),
        (format!(r#"{{"checks":[{good},7],"path":"/"}}"#), 422),
        (too_many, 422),
        (format!(r#"{{"checks":[{good},]}}"#), 400),
        (format!(r#"{{"checks":[{good},{{]}}"#), 400),
        (format!(r#"{{"checks":[{good},7]"#), 400),
    ];
    for (batch, status) in wrong {
        let reply = rig.client().post("/v1/limit/batch", &batch);
        let shown: String = batch.chars().rev().take(80).collect();
        assert_eq!(reply.status, status, "{shown}: {}", reply.text());
    }
    let reply = rig.client().post("/v1/limit", good);
    assert_eq!(reply.json()["limits"][0]["remaining"], 99, "nothing was charged");
}
