//! The document at `/openapi.json` tells the truth: every call is in it, and every example
//! is answered as it says, to the microsecond.

use std::collections::BTreeSet;

use ratekeeper_server::serve::{Access, Body, CALLS, Call, Method};
use serde_json::{Value as Json, json};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, RefOr, Response, Schema};

use crate::client::{Client, Reply};
use crate::rig::Setup;

/// Set, it makes a test write what was answered into the document instead of comparing.
const UPDATE: &str = "RATEKEEPER_UPDATE_EXAMPLES";
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/openapi.json");

fn document() -> Json {
    let (rig, _) = Setup::default().in_memory();
    let reply = rig.client().get("/openapi.json");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    reply.json()
}

/// Pages are for people.
fn calls() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().filter(|call| call.access != Access::Page)
}

/// Path, method, who may call and whether it reads a body, of every call.
#[test]
fn all_calls_are_in_it_and_no_others() {
    let document = document();
    let mut told = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            told.insert((
                path.as_str(),
                method.as_str(),
                operation["security"].is_array(),
                !schema.is_null(),
            ));
        }
    }
    let known = calls().map(|call| {
        let method = match call.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        (call.path, method, call.access.takes_token(), call.body != Body::None)
    });
    assert_eq!(told, known.collect());
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}

/// Every call that has a body, or needs the store, may find that there is no room or no store.
#[test]
fn every_call_that_changes_something_can_be_a_503() {
    let document = document();
    for (path, item) in document["paths"].as_object().unwrap() {
        let told = item["post"]["responses"].as_object();
        assert!(told.is_none_or(|told| told.contains_key("503")), "{path}");
    }
}

#[test]
fn it_is_an_openapi_document() {
    let document = document();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let typed = serde_json::from_value::<RefOr<Schema>>(schema.clone());
        typed.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let typed = serde_json::from_value::<Response>(response.clone());
                typed.unwrap_or_else(|error| panic!("{method} {path} {status}: {error}"));
            }
            let typed = serde_json::from_value::<Operation>(operation.clone());
            typed.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        }
    }
    let typed: OpenApi = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(typed.paths.paths.len(), calls().count());
    // What is referred to is there.
    let text = document.to_string();
    let mut references = text.match_indices(r##""$ref":"#"##).map(|(at, found)| &text[at + found.len()..]);
    assert!(references.all(|rest| document.pointer(rest.split('"').next().unwrap()).is_some()));
}

/// Every field that the document tells of is known to the server, wherever it belongs.
#[test]
fn fields_are_those_that_are_read() {
    let document = document();
    let (rig, _) = Setup::default().in_memory();
    let mut client = rig.client();
    let calls = [
        ("/v1/limit", "LimitCall"),
        ("/v1/check", "CheckCall"),
        ("/v1/reserve", "ReserveCall"),
        ("/v1/refund", "RefundCall"),
        ("/v1/overrides/set", "SetOverrideCall"),
        ("/v1/overrides/get", "OneOverrideCall"),
        ("/v1/overrides/delete", "OneOverrideCall"),
        ("/v1/overrides/list", "ListOverridesCall"),
        ("/v1/overrides/clear", "AllOverridesCall"),
        ("/v1/modes/set", "SetModeCall"),
        ("/v1/modes/clear", "ClearCall"),
        ("/v1/emergencies/set", "SetEmergencyCall"),
        ("/v1/emergencies/clear", "ClearCall"),
        ("/v1/usage", "UsageCall"),
        ("/v1/inspect", "InspectCall"),
        ("/v1/audit", "AuditCall"),
        ("/v1/counters/list", "CountersCall"),
        ("/v1/counters/reset", "InspectCall"),
        ("/v1/policies/get", "PolicyGetCall"),
        ("/v1/demo", "DemoCall"),
    ];
    for (path, schema) in calls {
        let fields = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        for field in fields.keys() {
            // The wrong type, so that it must be read to be refused.
            let reply = client.call(path, &json!({ field: [[]] }));
            let told = reply.json();
            let detail = told["detail"].as_str().unwrap();
            assert!(!detail.contains("unknown field"), "{path} {field}: {detail}");
        }
        let reply = client.call(path, &json!({ "no_such_field": 1 }));
        assert_eq!(
            (reply.status, &reply.json()["field"]),
            (422, &json!("no_such_field")),
            "{}",
            reply.text()
        );
    }
}

#[test]
fn examples_are_what_is_answered() {
    let mut document: Json = serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap();
    let as_it_was = document.clone();
    let mut count = 0;
    for (path, item) in as_it_was["paths"].as_object().unwrap() {
        let content = &item["post"]["requestBody"]["content"]["application/json"];
        for name in content["examples"].as_object().into_iter().flat_map(serde_json::Map::keys) {
            let reply = run(&as_it_was, path, name);
            let status = if reply.status == 400 { "4XX".to_owned() } else { reply.status.to_string() };
            let content_type = reply.header("content-type").unwrap();
            let place =
                ["", "paths", &path.replace('/', "~1"), "post", "responses", &status, "content"].join("/");
            let place = format!("{place}/{}/examples/{name}/value", content_type.replace('/', "~1"));
            let told = document
                .pointer_mut(&place)
                .unwrap_or_else(|| panic!("{path}#{name}: no {place}: {}", reply.text()));
            if std::env::var_os(UPDATE).is_some() {
                *told = reply.json();
            }
            assert_eq!(*told, reply.json(), "{path}#{name}");
            count += 1;
        }
    }
    assert!(count >= 20, "{count} examples");
    if document != as_it_was {
        std::fs::write(FILE, serde_json::to_string_pretty(&document).unwrap() + "\n").unwrap();
    }
}

/// Runs an example on a server of its own, and what comes before it.
fn run(document: &Json, path: &str, name: &str) -> Reply {
    let policy = document["x-example-policy"].as_str().unwrap().to_owned();
    let (rig, _clock) = Setup::policy(policy.leak()).in_memory();
    let mut client = rig.client();
    let example = example(document, path, name);
    for before in example["x-after"].as_array().into_iter().flatten() {
        let (path, name) = before.as_str().unwrap().split_once('#').unwrap();
        ask(&mut client, path, &self::example(document, path, name)["value"]);
    }
    ask(&mut client, path, &example["value"])
}

fn example<'d>(document: &'d Json, path: &str, name: &str) -> &'d Json {
    let example =
        &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"][name];
    assert!(example.is_object(), "there is no {path}#{name}");
    example
}

fn ask(client: &mut Client, path: &str, call: &Json) -> Reply {
    match call {
        // What is no JSON stands there as text.
        Json::String(text) => client.post(path, text),
        call => client.call(path, call),
    }
}
