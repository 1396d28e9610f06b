//! Every bound in `/openapi.json` is where the server has it: what is just within is taken,
//! what is just beyond is refused, and so is every type that is not told.

use serde_json::{Map, Value as Json, json};

use crate::client::Client;
use crate::rig::Setup;

const POLICY: &str = "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"1000000000/s\"\n";

/// Where members of a schema are tried, and what makes the rest of the call right.
struct Place {
    schema: &'static str,
    path: &'static str,
    /// Around the object that has the member.
    within: fn(Json) -> Json,
    /// The object without the member: for a member about charges, or one about a request.
    base: fn(member: &str) -> Json,
}

const REQUEST: [&str; 12] = [
    "service",
    "method",
    "path",
    "route",
    "query",
    "headers",
    "client",
    "identity",
    "body",
    "body_unreadable",
    "key",
    "cost",
];

fn charge() -> Json {
    json!({ "key": "k", "quota": "10/min" })
}

fn charges_or_request(member: &str) -> Json {
    if REQUEST.contains(&member) { json!({}) } else { json!({ "charges": [charge()] }) }
}

fn with(mut base: Json, name: &str, value: Json) -> Json {
    base[name] = value;
    base
}

/// Looks like one, but nobody signed it.
const RECEIPT: &str = "1.0.2.0123456789abcdef.0123456789abcdef.0123456789abcdef0123456789abcdef";

fn told_limit() -> Json {
    json!({ "name": "limit", "quota": "10/min", "cost": 1, "receipt": RECEIPT })
}

#[allow(clippy::needless_pass_by_value, reason = "what every place is")]
fn refund(decision: Json) -> Json {
    json!({ "charges": [charge()], "decision": decision })
}

const PLACES: [Place; 11] = [
    Place {
        schema: "LimitCall",
        path: "/v1/limit",
        within: |call| call,
        base: |_| json!({ "id": "l", "charges": [charge()] }),
    },
    Place {
        schema: "CheckCall",
        path: "/v1/check",
        within: |call| call,
        base: |member| match member {
            "keep_seconds" => json!({ "id": "c" }),
            _ => json!({}),
        },
    },
    Place {
        schema: "LookCall",
        path: "/v1/peek",
        within: |call| call,
        base: |member| with(charges_or_request(member), "id", "p".into()),
    },
    Place { schema: "Call", path: "/v1/reset", within: |call| call, base: charges_or_request },
    Place {
        schema: "ReserveCall",
        path: "/v1/reserve",
        within: |call| call,
        base: |member| with(charges_or_request(member), "id", "r".into()),
    },
    Place {
        schema: "SettleCall",
        path: "/v1/settle",
        within: |call| call,
        base: |_| json!({ "id": "none", "actual": 1 }),
    },
    Place {
        schema: "CancelCall",
        path: "/v1/cancel",
        within: |call| call,
        base: |_| json!({ "id": "none" }),
    },
    Place {
        schema: "RefundCall",
        path: "/v1/refund",
        within: |call| call,
        base: |member| {
            let decision = if REQUEST.contains(&member) {
                json!({ "limits": [], "origin": "unlimited" })
            } else {
                json!({ "limits": [told_limit()], "allowed": false })
            };
            with(charges_or_request(member), "decision", decision)
        },
    },
    Place {
        schema: "Charge",
        path: "/v1/limit",
        within: |charge| json!({ "charges": [charge] }),
        base: |_| charge(),
    },
    Place {
        schema: "ToldDecision",
        path: "/v1/refund",
        within: refund,
        base: |_| json!({ "limits": [told_limit()] }),
    },
    Place {
        schema: "ToldLimit",
        path: "/v1/refund",
        within: |limit| refund(json!({ "limits": [limit], "allowed": false })),
        base: |_| told_limit(),
    },
];

/// The names of two bounds, and a value of a size.
type OfSize<'a> = (&'a str, &'a str, &'a dyn Fn(u64) -> Json);

/// Values at the bounds of a member, and whether they are within.
fn at_bounds(name: &str, told: &Json, base: &Json) -> Vec<(Json, bool)> {
    let bound = |name: &str| told[name].as_u64();
    let mut values = Vec::new();
    for (name, beyond) in [("minimum", -1), ("maximum", 1)] {
        if let Some(bound) = told[name].as_i64() {
            values.extend([(json!(bound), true), (json!(bound + beyond), false)]);
        }
    }
    let text = |length: u64| match name {
        // Spaces say nothing.
        "quota" => json!(format!("{:<1$}", "10/min", usize::try_from(length).unwrap())),
        _ => json!("k".repeat(usize::try_from(length).unwrap())),
    };
    let list = |length: u64| {
        let charge = |number| json!({ "key": format!("k{number}"), "quota": "10/min" });
        (0..length).map(charge).collect::<Json>()
    };
    let object =
        |length: u64| Json::Object((0..length).map(|number| (format!("m{number}"), json!("v"))).collect());
    let sized: [OfSize<'_>; 3] = [
        ("minLength", "maxLength", &text),
        ("minItems", "maxItems", &list),
        ("minProperties", "maxProperties", &object),
    ];
    for (least, most, of_size) in sized {
        if let Some(least) = bound(least) {
            values.extend([(of_size(least), true), (of_size(least - 1), false)]);
        }
        // What a refund tells of must be what the call is about, so only beyond can be tried.
        if let Some(most) = bound(most) {
            values.extend((name != "limits").then(|| (of_size(most), true)));
            let beyond =
                if name == "limits" { vec![base["limits"][0].clone(); 65].into() } else { of_size(most + 1) };
            values.push((beyond, false));
        }
    }
    values.extend(told["enum"].as_array().into_iter().flatten().map(|word| (word.clone(), true)));
    if told["enum"].is_array() || told["pattern"].is_string() {
        values.push((json!("none-of-them\u{e9}"), false));
    }
    values
}

/// The schemas that a member may have.
fn alternatives(told: &Json) -> Vec<Json> {
    told["oneOf"].as_array().cloned().unwrap_or_else(|| vec![told.clone()])
}

/// A value of every type, and whether that type is told.
fn of_types(told: &Json) -> Vec<(Json, bool)> {
    let types: Vec<Json> = alternatives(told)
        .iter()
        .flat_map(|one| one["type"].as_array().cloned().unwrap_or_else(|| vec![one["type"].clone()]))
        .collect();
    let has = |name: &str| types.contains(&json!(name));
    let examples = [
        ("null", json!(null)),
        ("boolean", json!(true)),
        ("integer", json!(7)),
        ("string", json!("7")),
        ("array", json!([])),
        ("object", json!({})),
    ];
    let examples = examples.into_iter().filter(|(name, _)| !(*name == "integer" && has("number")));
    // Of those that are told, only these are right whatever else is told of them.
    let told_right = ["null", "boolean"];
    let kept = examples.filter(|(name, _)| !has(name) || told_right.contains(name));
    kept.map(|(name, example)| (example, has(name))).collect()
}

#[track_caller]
fn try_member(client: &mut Client, place: &Place, name: &str, value: &Json, is_right: bool) {
    let call = (place.within)(with((place.base)(name), name, value.clone()));
    let reply = client.call(place.path, &call);
    let shown: String = value.to_string().chars().take(80).collect();
    let told: String = reply.text().chars().take(300).collect();
    let is_taken = !matches!(reply.status, 400 | 422);
    assert_eq!(
        is_taken, is_right,
        "{} {}.{name} = {shown}: {} {told}",
        place.path, place.schema, reply.status
    );
}

#[test]
fn bounds_and_types_are_as_they_are_told() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let document = client.get("/openapi.json").json();
    let mut count = 0;
    for place in &PLACES {
        let schema = &document["components"]["schemas"][place.schema];
        let members: &Map<String, Json> = schema["properties"].as_object().unwrap();
        for (name, told) in members.iter().filter(|(_, told)| told["$ref"].is_null()) {
            let base = (place.base)(name);
            let bounds = alternatives(told).into_iter().flat_map(|one| at_bounds(name, &one, &base));
            for (value, is_right) in bounds.chain(of_types(told)) {
                try_member(&mut client, place, name, &value, is_right);
                count += 1;
            }
        }
    }
    assert!(count > 300, "{count} values");
}

/// What must be there is refused without it, and `null` is as good as nothing.
#[test]
fn what_is_required_must_be_there() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let document = client.get("/openapi.json").json();
    for place in &PLACES {
        let schema = &document["components"]["schemas"][place.schema];
        for name in schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()) {
            let mut base = (place.base)(name);
            try_member(&mut client, place, name, &Json::Null, false);
            base.as_object_mut().unwrap().remove(name);
            let reply = client.call(place.path, &(place.within)(base));
            assert_eq!(reply.status, 422, "{} without {name}: {}", place.schema, reply.text());
        }
    }
}

/// A name that is refused is shown as it was sent, not as the server would have kept it.
#[test]
fn names_are_refused_in_words_of_the_caller() {
    let (rig, _) = Setup::default().in_memory();
    let call = json!({ "charges": [{ "key": "k", "quota": "1/s", "name": "n".repeat(121) }] });
    let told = rig.client().call("/v1/limit", &call).json();
    assert_eq!(told["field"], "charges[0].name");
    assert_eq!(told["detail"], "charges[0].name: expected 1 to 120 printable ASCII characters");
}
