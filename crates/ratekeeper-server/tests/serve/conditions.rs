//! Conditions that fail, bodies that cannot be read and requests that are too much work, over HTTP.

use serde_json::json;

use crate::calls::remaining;
use crate::rig::Setup;

const POLICY: &str = r#"
    service = "shop"

    [[rules]]
    name = "rows"
    when = "body.rows > 100"
    keys = "all"
    quota = "9/min"

    [[rules]]
    name = "tenants"
    keys = "{body.tenant}"
    quota = "9/min"

    [[rules]]
    name = "tags"
    when = "has(body.tags) && body.tags.exists(t, t == 'expensive')"
    keys = "all"
    quota = "9/min"

    [[rules]]
    name = "all"
    keys = "all"
    quota = "99/min"
"#;

#[test]
fn a_body_that_cannot_be_read_is_judged_all_the_same() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for (index, body) in [r#"{"rows": 1e999}"#, r#"{"tenant": "\ud800"}"#, &deep].into_iter().enumerate() {
        let reply = client.post("/v1/check", &format!(r#"{{"method": "POST", "body": {body}}}"#));
        assert_eq!(reply.status, 200, "{body}");
        let names: Vec<String> = reply.json()["limits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|limit| limit["name"].to_string())
            .collect();
        assert_eq!(names, ["\"rows\"", "\"tenants\"", "\"tags\"", "\"all\""], "{body}");
        assert_eq!(remaining(&reply.json())[1], 8 - index as u64, "one counter for all of them");
    }
    let unread = client.call("/v1/check", &json!({ "method": "POST", "body_unreadable": true }));
    assert_eq!((unread.status, remaining(&unread.json())), (200, vec![5, 5, 5, 95]), "{}", unread.text());
    let both = client.call("/v1/check", &json!({ "body": {}, "body_unreadable": true }));
    assert_eq!(both.status, 422);
    assert!(
        both.text().contains("body_unreadable") && both.text().contains("beside a body"),
        "{}",
        both.text()
    );
    for body_unreadable in [json!(false), json!(null)] {
        let call = json!({ "body": { "tenant": "t" }, "body_unreadable": body_unreadable });
        assert_eq!(client.call("/v1/check", &call).status, 200, "{call}");
    }
    let confused = client.call("/v1/check", &json!({ "body": { "rows": "200" } })).json();
    assert_eq!(remaining(&confused), [4, 92], "{confused}");
    let absent = client.call("/v1/check", &json!({ "body": {} })).json();
    assert_eq!(remaining(&absent), [91], "{absent}");
}

#[test]
fn a_request_beyond_its_budget_says_so() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let call = json!({ "body": { "tags": vec![0; 30_000] } });
    let reply = client.call("/v1/check", &call);
    let told = reply.json();
    assert_eq!(
        (reply.status, &told["reason"], &told["origin"]),
        (429, &json!("condition_budget"), &json!("budget"))
    );
    assert_eq!((&told["retry_after_us"], &told["limits"]), (&json!(null), &json!([])));
    assert!(told["type"].as_str().unwrap().ends_with("#abnormal-usage-detected"), "{told}");
    assert_eq!(reply.header("retry-after"), None);
    let metrics = String::from_utf8(client.get("/metrics").body).unwrap();
    let counted = r#"ratekeeper_rule_beyond_budget_total{service="shop",rule="tags"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert_eq!(
        remaining(&client.call("/v1/check", &json!({ "body": {} })).json()),
        [98],
        "nothing was charged"
    );
}
