//! What is given back, and what is said of it.

use serde_json::json;

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{Mode, RedisStore, Switch};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::calls::{POLICY, remaining};
use crate::client::PATIENCE;
use crate::rig::{RUNTIME, Setup};

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
        let units = call["cost"].as_u64().unwrap_or(1);
        let expected = json!({ "refunded": true, "units": units });
        assert_eq!(client.call("/v1/refund", &call).json(), expected, "{call}");
        // However often it comes, the same receipt gives back what it is of, once.
        let expected = json!({ "refunded": false, "units": 0 });
        assert_eq!(client.call("/v1/refund", &call).json(), expected, "{call}");
    }
}

/// Charges three units of ten, and what would give them back.
fn charged(client: &mut crate::client::Client, quota: &str) -> (serde_json::Value, serde_json::Value) {
    let charges = json!({ "charges": [{ "key": "k", "quota": quota, "cost": 3 }] });
    let decision = client.call("/v1/limit", &charges).json();
    let mut refund = charges.clone();
    refund["decision"] = decision;
    (charges, refund)
}

#[test]
fn a_receipt_may_come_in_parts_and_gives_back_its_cost_in_all() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let (charges, mut refund) = charged(&mut client, "10/h");
    assert!(client.call("/v1/limit", &charges).json()["allowed"].as_bool().unwrap());
    refund["units"] = json!(2);
    for units in [2, 1, 0] {
        let expected = json!({ "refunded": units > 0, "units": units });
        assert_eq!(client.call("/v1/refund", &refund).json(), expected);
    }
    assert_eq!(remaining(&client.call("/v1/peek", &charges).json()), [7], "the other charge stays");
}

#[test]
fn nobody_gives_back_what_others_were_charged() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let (charges, refund) = charged(&mut client, "10/h fixed_window");
    let unsigned = json!({
        "refunded": false, "units": 0, "refused": [{ "name": "limit", "why": "unsigned" }],
    });
    let receipt = refund["decision"]["limits"][0]["receipt"].as_str().unwrap().to_owned();
    let (rest, signature) = receipt.rsplit_once('.').unwrap();
    let (rest, _nonce) = rest.rsplit_once('.').unwrap();
    for (member, value) in [
        ("cost", json!(10)),
        ("quota", json!("10/h")),
        ("receipt", json!(format!("{rest}.00000000000000ff.{signature}"))),
        ("receipt", json!(format!("2{}", &receipt[1..]))),
    ] {
        let mut forged = refund.clone();
        forged["decision"]["limits"][0][member] = value;
        assert_eq!(client.call("/v1/refund", &forged).json(), unsigned, "{member}");
    }
    // The receipt of one key is of no use for another.
    let mut other = refund.clone();
    other["charges"][0]["key"] = json!("other");
    client.call("/v1/limit", &json!({ "charges": other["charges"] }));
    assert_eq!(client.call("/v1/refund", &other).json(), json!({ "refunded": false, "units": 0 }));
    // Nor is one of a key that was made up to have the same number.
    let charge = |key: &str| json!([{ "key": key, "quota": "10/h", "cost": 5 }]);
    let [victims, made_up] = ["user:0000-4242-a", "6kg29k58q_(Cf$TF"].map(charge);
    let [_, decision] =
        [&victims, &made_up].map(|charges| client.call("/v1/limit", &json!({ "charges": charges })));
    let decision = decision.json();
    let mut both = victims.as_array().unwrap().clone();
    both.extend(made_up.as_array().unwrap().clone());
    for charges in [victims.clone(), json!(both)] {
        let refund = json!({ "charges": charges, "decision": decision });
        assert_eq!(client.call("/v1/refund", &refund).json(), unsigned, "{charges}");
    }
    assert_eq!(remaining(&client.call("/v1/peek", &json!({ "charges": victims })).json()), [5]);
    assert_eq!(remaining(&client.call("/v1/peek", &charges).json()), [7]);
}

#[test]
fn a_receipt_is_good_until_the_charge_has_left_the_quota_or_a_day_is_over() {
    let expired = json!({
        "refunded": false, "units": 0, "refused": [{ "name": "limit", "why": "expired" }],
    });
    for (quota, good_for) in [("10/h fixed_window", 3_600), ("10/30d fixed_window", 86_400)] {
        let (rig, clock) = Setup::default().in_memory();
        let mut client = rig.client();
        let (_, mut refund) = charged(&mut client, quota);
        refund["units"] = json!(1);
        clock.advance(Duration::from_secs(good_for) - Duration::from_micros(1));
        assert_eq!(
            client.call("/v1/refund", &refund).json(),
            json!({ "refunded": true, "units": 1 }),
            "{quota}"
        );
        clock.advance(Duration::from_micros(2));
        assert_eq!(client.call("/v1/refund", &refund).json(), expired, "{quota}");
    }
}

/// It is cancelled, or settled; a receipt would give it back once more.
#[test]
fn a_reservation_has_no_receipt() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    for call in [
        json!({ "charges": [{ "key": "r", "quota": "10/h", "cost": 3 }], "id": "b" }),
        json!({ "path": "/mine", "key": "k1", "cost": 3, "id": "c" }),
    ] {
        let told = client.call("/v1/reserve", &call).json();
        assert_eq!((&told["allowed"], &told["limits"][0]["receipt"]), (&json!(true), &json!(null)), "{told}");
    }
}

/// A decision that is told again is told with the same receipt.
#[test]
fn a_repeated_call_has_one_receipt() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    for (path, call) in [
        ("/v1/limit", json!({ "charges": [{ "key": "k", "quota": "10/h", "cost": 3 }], "id": "a" })),
        ("/v1/check", json!({ "path": "/mine", "key": "k1", "cost": 3, "id": "c" })),
    ] {
        let [first, second] = [(); 2].map(|()| client.call(path, &call).json());
        assert_eq!(second["origin"], "repeat", "{path}");
        let given = [first, second].map(|decision| {
            let mut refund = call.clone();
            refund.as_object_mut().unwrap().remove("id");
            refund["decision"] = decision;
            client.call("/v1/refund", &refund).json()["units"].as_u64().unwrap()
        });
        assert_eq!(given, [3, 0], "{path}");
    }
}

#[test]
fn servers_on_one_store_know_the_receipts_of_each_other() {
    let server = Server::start(Flavour::Redis7);
    let rig = || {
        let _within = RUNTIME.enter();
        Setup::default()
            .start(Arc::new(RedisStore::builder(&server.url()).deadline(PATIENCE).build().unwrap()))
    };
    let (one, other) = (rig(), rig());
    let (_, refund) = charged(&mut one.client(), "10/h");
    let mut clients = [one.client(), other.client()];
    let given = [0, 1, 0].map(|index: usize| clients[index].call("/v1/refund", &refund).json());
    assert_eq!(given[0], json!({ "refunded": true, "units": 3 }));
    assert_eq!(given[1], json!({ "refunded": false, "units": 0 }));
    assert_eq!(given[2], given[1]);
    let life: u64 = server.cli(&["pttl", "rk:secret"]).trim().parse().unwrap();
    assert!(life > 29 * 86_400_000, "{life}");
}

#[test]
fn a_rule_that_was_switched_off_gives_back_what_it_charged() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let decision = client.call("/v1/check", &json!({ "path": "/mine", "key": "k1", "cost": 3 })).json();
    assert_eq!(remaining(&decision), [2]);
    let switch = |mode| {
        let switch = Switch { mode: Some(mode), ..Switch::default() };
        rig.store.control().set_switch("shop/mine", switch).now().unwrap().unwrap();
    };
    switch(Mode::Off);
    let refund = json!({ "path": "/mine", "key": "k1", "decision": decision });
    assert_eq!(client.call("/v1/refund", &refund).json(), json!({ "refunded": true, "units": 3 }));
    assert_eq!(client.call("/v1/refund", &refund).json(), json!({ "refunded": false, "units": 0 }));
    switch(Mode::On);
    assert_eq!(remaining(&client.call("/v1/peek", &json!({ "path": "/mine", "key": "k1" })).json()), [5]);
}
