//! What documents say about limits, checked on their JSON.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::MemoryStore;
use ratekeeper::policy::{CompileOptions, Format, Policies, Policy, PolicyLimiter, PolicySpec};
use ratekeeper_web::openapi::DescribeLimits;
use ratekeeper_web::ready::{PathLimit, ProjectLimit};
use ratekeeper_web::{Body, Gate, HttpOptions, Legacy};
use serde_json::{Value, json};
use utoipa::OpenApi;

/// Search for items.
///
/// In all of them.
#[utoipa::path(get, path = "/search", responses((status = 200, description = "found")))]
#[allow(dead_code, reason = "only described")]
fn search() {}

#[utoipa::path(post, path = "/items/{id}", params(("id" = u32, Path)),
    responses((status = 200), (status = 429, description = "come back later")))]
#[allow(dead_code, reason = "only described")]
fn change() {}

/// Health.
#[utoipa::path(get, path = "/health", responses((status = 200)))]
#[allow(dead_code, reason = "only described")]
fn health() {}

#[derive(OpenApi)]
#[openapi(paths(search, change, health))]
struct Api;

fn described(limits: &DescribeLimits) -> Value {
    let mut document = Api::openapi();
    limits.apply(&mut document);
    let once = serde_json::to_value(&document).unwrap();
    limits.apply(&mut document);
    assert_eq!(serde_json::to_value(&document).unwrap(), once, "the second time changes nothing");
    once
}

fn ready(limit: &PathLimit) -> Gate {
    limit.gate(Arc::new(MemoryStore::new())).unwrap()
}

fn minute(limit: u64) -> PathLimit {
    PathLimit::new(limit).expiry(Duration::from_secs(60))
}

fn spec(rules: &str) -> PolicySpec {
    PolicySpec::read("test", Format::Toml, format!("service = 'test'\n{rules}").as_bytes()).unwrap()
}

fn policy(rules: &str) -> Arc<Policy> {
    Arc::new(Policy::compile(&spec(rules), "test", &CompileOptions::default()).unwrap())
}

#[test]
fn a_ready_made_limit_is_described_where_it_is() {
    let document = described(&DescribeLimits::new().on("get", "/search", &ready(&minute(100))));
    let search = &document["paths"]["/search"]["get"];
    assert_eq!(
        (&search["x-ratelimit-limit"], &search["x-ratelimit-window-seconds"]),
        (&json!(100), &json!(60))
    );
    assert_eq!(search["x-ratelimit-policies"], Value::Null);
    assert_eq!(search["summary"], "Search for items.");
    assert_eq!(search["description"], "In all of them.\n\n**Ratelimit:** 100/60s");
    let plain = serde_json::to_value(Api::openapi()).unwrap();
    for other in ["/health", "/items/{id}"] {
        assert_eq!(document["paths"][other], plain["paths"][other]);
    }
    // Compared as text too: the JSON of nothing must not change either.
    assert_eq!(search["responses"]["200"], plain["paths"]["/search"]["get"]["responses"]["200"]);
}

#[test]
fn the_denial_is_described_with_its_fields_unless_the_program_does() {
    let gate = ready(&minute(100));
    let document = described(&DescribeLimits::new().everywhere(&gate));
    let denial = &document["paths"]["/search"]["get"]["responses"]["429"];
    let schema = &denial["content"]["application/problem+json"]["schema"];
    assert_eq!(schema["properties"]["violated-policies"]["items"]["type"], "string");
    assert_eq!(schema["required"], json!(["detail", "type", "title", "status", "violated-policies"]));
    let mut headers: Vec<_> = denial["headers"].as_object().unwrap().keys().cloned().collect();
    headers.sort();
    assert_eq!(headers, ["RateLimit", "RateLimit-Policy", "Retry-After"]);
    assert_eq!(denial["headers"]["Retry-After"]["schema"]["type"], "integer");
    let own = &document["paths"]["/items/{id}"]["post"]["responses"]["429"];
    assert_eq!(own, &json!({ "description": "come back later" }));

    let gate = gate.options(HttpOptions::without_fields().legacy(Legacy::XRateLimit).body(Body::Detail));
    let document = described(&DescribeLimits::new().everywhere(&gate));
    let denial = &document["paths"]["/search"]["get"]["responses"]["429"];
    assert!(denial["content"]["application/json"]["schema"]["properties"]["detail"].is_object());
    let headers: Vec<_> = denial["headers"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(headers, ["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]);
}

#[test]
fn several_limits_are_one_line_and_a_list() {
    let (requests, elements) = (ready(&minute(100)), ready(&minute(5_000).key_suffix("/elements")));
    let both = DescribeLimits::new().everywhere(&requests).on("POST", "/items/{id}", &elements);
    let document = described(&both);
    let change = &document["paths"]["/items/{id}"]["post"];
    assert_eq!(change["description"], "**Ratelimit:** 100/60s (requests), 5000/60s (elements)");
    assert_eq!(change["x-ratelimit-limit"], 100);
    let policies = json!([
        { "name": "requests", "limit": 100, "window-seconds": 60 },
        { "name": "elements", "limit": 5_000, "window-seconds": 60 },
    ]);
    assert_eq!(change["x-ratelimit-policies"], policies);
    assert_eq!(document["paths"]["/search"]["get"]["x-ratelimit-policies"], Value::Null);
}

const RULES: &str = r#"
    [[rules]]
    name = "writes"
    when = "method == 'POST' && path.startsWith('/items/')"
    keys = "user:{identity.user}"
    quotas = { rps = 5, rpd = 1000 }
    [[rules]]
    name = "free"
    when = "identity.plan == 'free' && route != '/health'"
    keys = "user:{identity.user}"
    quota = "10/60s"
    [[rules]]
    name = "search-slots"
    when = "route == '/search'"
    keys = "all"
    quota = "8/30s concurrency"
    [[rules]]
    name = "switched-off"
    keys = "all"
    quota = "1/s"
    mode = "off"
    [[rules]]
    name = "plans-alone"
    keys = "user:{identity.user}"
    quota = "unlimited"
    plans = { gold = "9/s" }
"#;

#[test]
fn the_rules_of_a_policy_are_described_where_they_apply_or_may() {
    let document = described(&DescribeLimits::new().policy(policy(RULES)));
    let change = &document["paths"]["/items/{id}"]["post"];
    assert_eq!(
        change["description"],
        "**Ratelimit:** 5/1s (writes.rps), 1000/86400s (writes.rpd), 10/60s (free, may apply)"
    );
    assert_eq!((&change["x-ratelimit-limit"], &change["x-ratelimit-window-seconds"]), (&json!(5), &json!(1)));
    assert_eq!(change["x-ratelimit-policies"][2]["conditional"], true);

    let search = &document["paths"]["/search"]["get"];
    assert_eq!(
        search["description"],
        "In all of them.\n\n**Ratelimit:** 10/60s (free, may apply), 8 at once (search-slots)"
    );
    // Neither is a rate that holds for every request.
    assert_eq!(search["x-ratelimit-limit"], Value::Null);
    let slots = json!({ "name": "search-slots", "limit": 8, "unit": "concurrent-requests" });
    assert_eq!(search["x-ratelimit-policies"][1], slots);

    let plain = serde_json::to_value(Api::openapi()).unwrap();
    assert_eq!(document["paths"]["/health"], plain["paths"]["/health"]);
}

#[test]
fn a_document_is_described_by_the_rules_in_force_and_once_more_by_others() {
    let rule = |quota: &str| format!("[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '{quota}'\n");
    let policies = Policies::builder().mode(None).build().unwrap();
    let service = PolicyLimiter::new(MemoryStore::new(), policies.clone()).service("test").unwrap();
    let limits = DescribeLimits::new().everywhere(&Gate::new(service));
    let mut document = Api::openapi();
    for (quota, told) in [("", None), ("7/500ms", Some("7/500ms")), ("20/h", Some("20/3600s"))] {
        if !quota.is_empty() {
            policies.install("test", Ok(spec(&rule(quota))), None).unwrap();
        }
        utoipa::Modify::modify(&limits, &mut document);
        let health = &serde_json::to_value(&document).unwrap()["paths"]["/health"]["get"];
        let line = told.map(|told| format!("**Ratelimit:** {told}"));
        assert_eq!(health["description"].as_str(), line.as_deref());
    }
    let health = &serde_json::to_value(&document).unwrap()["paths"]["/health"]["get"];
    assert_eq!(
        (&health["x-ratelimit-limit"], &health["x-ratelimit-window-seconds"]),
        (&json!(20), &json!(3_600))
    );
}

#[test]
fn operations_that_are_not_there_change_nothing() {
    let gate = ProjectLimit::new(1).gate(Arc::new(MemoryStore::new())).unwrap();
    let document = described(&DescribeLimits::new().on("GET", "/serach", &gate).on("PUT", "/search", &gate));
    assert_eq!(document, serde_json::to_value(Api::openapi()).unwrap());
}
