//! What is given back, and what is said of it.

use serde_json::json;

use crate::calls::{POLICY, remaining};
use crate::rig::Setup;

#[test]
fn a_refund_gives_back_what_a_policy_charged_and_no_more() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let call = json!({ "path": "/mine", "key": "k1", "cost": 3 });
    let decision = client.call("/v1/check", &call).json();
    assert_eq!(remaining(&decision), [2]);
    let refund = json!({ "path": "/mine", "key": "k1", "decision": decision, "units": 2 });
    assert_eq!(client.call("/v1/refund", &refund).status, 200);
    let peek = json!({ "path": "/mine", "key": "k1" });
    assert_eq!(remaining(&client.call("/v1/peek", &peek).json()), [4]);
    const COUNTER: &str = "0123456789abcdef";
    let forged = ["", "x", "1", "1.", ".1", "-1.0", "99999999999999999999.0", "18446744073709551615.0"];
    let forged = forged.into_iter().chain(["1.4294967296", "1.0"]);
    let forged = forged.flat_map(|text| [text.to_owned(), format!("{text}.0{COUNTER}"), format!("{text}.x")]);
    for forged in forged {
        let mut refund = refund.clone();
        refund["decision"]["limits"][0]["receipt"] = forged.as_str().into();
        let reply = client.call("/v1/refund", &refund);
        assert_eq!(
            (reply.status, &reply.json()["field"]),
            (422, &json!("decision.limits[0].receipt")),
            "{forged}"
        );
    }
}

#[test]
fn what_was_not_charged_is_not_said_to_be_given_back() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let charges = json!([{ "key": "k", "quota": "1/min", "name": "n" }]);
    let charged = client.call("/v1/limit", &json!({ "charges": charges })).json();
    let denied = client.call("/v1/limit", &json!({ "charges": charges })).json();
    let request = json!({ "path": "/mine", "key": "k", "cost": 5 });
    let policy_charged = client.call("/v1/check", &request).json();
    let policy_denied = client.call("/v1/check", &request).json();
    let nothing = json!({ "limits": [] });
    let mut renamed = charged.clone();
    renamed["limits"][0]["name"] = "m".into();
    let mut twice = charged.clone();
    twice["limits"] = json!([charged["limits"][0], charged["limits"][0]]);
    let mut denied_with_receipt = charged.clone();
    denied_with_receipt["allowed"] = false.into();
    let unlimited = client.call("/v1/check", &json!({ "path": "/free" })).json();
    assert_eq!(unlimited["origin"], "unlimited");
    let (wrong, nothing_there) = ((422, json!("decision.limits")), (200, json!(false)));
    let of_charges = [
        (&nothing, &wrong),
        (&renamed, &wrong),
        (&twice, &wrong),
        (&denied, &nothing_there),
        (&denied_with_receipt, &nothing_there),
        (&unlimited, &nothing_there),
    ];
    let of_request = [
        (&nothing, &wrong),
        (&renamed, &wrong),
        (&policy_denied, &nothing_there),
        (&unlimited, &nothing_there),
    ];
    let calls = of_charges.map(|case| (json!({ "charges": charges }), case)).into_iter();
    for (mut call, (decision, expected)) in calls.chain(of_request.map(|case| (request.clone(), case))) {
        call["decision"] = decision.clone();
        let reply = client.call("/v1/refund", &call);
        let member = if reply.status == 200 { "refunded" } else { "field" };
        assert_eq!((reply.status, reply.json()[member].clone()), *expected, "{call}");
    }
    for (mut call, decision) in [(json!({ "charges": charges }), charged), (request, policy_charged)] {
        call["decision"] = decision;
        assert_eq!(client.call("/v1/refund", &call).json(), json!({ "refunded": true }), "{call}");
    }
}
