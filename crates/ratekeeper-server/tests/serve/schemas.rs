//! Answers are what the schemas of `/openapi.json` say, also where a schema has a choice.

use std::sync::Arc;

use ratekeeper::RedisStore;
use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::{Value as Json, json};

use crate::client::Reply;
use crate::rig::{RUNTIME, Setup};

/// Whether a value is what a schema says, as far as our schemas say something.
fn fits(document: &Json, schema: &Json, value: &Json) -> bool {
    if let Some(at) = schema["$ref"].as_str() {
        return fits(document, document.pointer(&at[1..]).unwrap(), value);
    }
    let choices = |kind: &str| {
        let of_kind = schema[kind].as_array();
        of_kind.map(|of_kind| of_kind.iter().filter(|choice| fits(document, choice, value)).count())
    };
    let is_type = |name: &Json| match name.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("no such type: {other}"),
    };
    let types = match &schema["type"] {
        Json::Null => true,
        Json::Array(names) => names.iter().any(is_type),
        name => is_type(name),
    };
    let listed = |of: &Json| of.as_array().is_none_or(|of| of.contains(value));
    let required = |names: &Json| {
        names.as_array().into_iter().flatten().all(|name| value.get(name.as_str().unwrap()).is_some())
    };
    let members = value.as_object().is_none_or(|members| {
        members.iter().all(|(name, member)| match schema["properties"].get(name) {
            Some(own) => fits(document, own, member),
            None => match &schema["additionalProperties"] {
                Json::Null | Json::Bool(true) => true,
                Json::Bool(false) => false,
                others => fits(document, others, member),
            },
        })
    });
    let items = value.as_array().is_none_or(|items| {
        schema["items"].is_null() || items.iter().all(|item| fits(document, &schema["items"], item))
    });
    types
        && listed(&schema["enum"])
        && required(&schema["required"])
        && members
        && items
        && choices("oneOf").is_none_or(|fit| fit == 1)
        && choices("anyOf").is_none_or(|fit| fit > 0)
        && choices("allOf").is_none_or(|fit| fit == schema["allOf"].as_array().unwrap().len())
}

#[track_caller]
pub(crate) fn is_told(document: &Json, path: &str, reply: &Reply) {
    let content_type = reply.header("content-type").unwrap();
    let responses = &document["paths"][path]["post"]["responses"];
    let of_status = responses.get(reply.status.to_string());
    let told = of_status.unwrap_or(&responses["4XX"])["content"][content_type]["schema"].clone();
    assert!(!told.is_null(), "{path}: no schema for {} {content_type}", reply.status);
    assert!(fits(document, &told, &reply.json()), "{path}: {} is not {told}", reply.text());
}

const POLICY: &str =
    "service = 's'\n[[rules]]\nname = 'shut'\nkeys = 'all'\non_outage = 'deny'\nquota = '2/min'\n";

#[test]
fn answers_of_every_status_are_what_the_document_says() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let document = client.get("/openapi.json").json();
    let call = |cost: u32| json!({ "charges": [{ "key": "k", "quota": "2/min", "cost": cost }] });
    for (path, body, status) in [
        ("/v1/check", json!({}), 200),
        ("/v1/check", json!({ "cost": 3 }), 429),
        ("/v1/check", json!({ "no": 1 }), 422),
        ("/v1/limit", call(1), 200),
        ("/v1/limit", call(2), 429),
        ("/v1/limit", call(3), 429),
        ("/v1/peek", call(3), 200),
        ("/v1/reset", call(1), 200),
    ] {
        let reply = client.call(path, &body);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        is_told(&document, path, &reply);
    }
}

/// A denial without a store and a store that cannot be asked are both 503. A denial is a problem, too: the
/// schema said that exactly one of both fits.
#[test]
fn answers_without_a_store_are_what_the_document_says() {
    let mut server = Server::start(Flavour::Valkey9);
    server.kill();
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&server.url()).build().unwrap()
    };
    let rig = Setup::policy(POLICY).start(Arc::new(store));
    let mut client = rig.client();
    let document = client.get("/openapi.json").json();
    let call = json!({ "charges": [{ "key": "k", "quota": "2/min" }], "on_outage": "deny" });
    for (path, body, status) in [
        ("/v1/check", json!({}), 503),
        ("/v1/limit", call.clone(), 503),
        ("/v1/reserve", json!({ "charges": call["charges"], "on_outage": "deny", "id": "i" }), 503),
        ("/v1/peek", call.clone(), 200),
        ("/v1/settle", json!({ "id": "i", "actual": 1 }), 503),
    ] {
        let reply = client.call(path, &body);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        is_told(&document, path, &reply);
    }
}
