//! Bad input: no panic, bounded work, an outcome that is documented.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::any;
use http::{HeaderName, HeaderValue, Request, StatusCode};
use ratekeeper_testkit::cpu;
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::tower::Peer;
use ratekeeper_web::{Identity, ready::CustomLimit, ready::PathLimit, ready::ProjectLimit};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;

use super::{Remote, field, fields, gate, gate_on, get, store, text};

const RULES: &str = "trusted_proxies = ['192.0.2.0/24']\n\
    [[rules]]\nname = 'header'\nkeys = 'h:{header.x-key}'\nquota = '1/60s fixed_window'\n\
    [[rules]]\nname = 'cookie'\nkeys = 'c:{cookie.session}'\nquota = '1/60s fixed_window'\n\
    [[rules]]\nname = 'query'\nkeys = 'q:{query.k}'\nquota = '1/60s fixed_window'\n\
    [[rules]]\nname = 'client'\nkeys = 'ip:{client.ip}'\nquota = '1000000/s'\n";

fn app(rules: &str) -> Router {
    let layer = rate_limit(gate(rules).0.body_bytes_max(64 << 10));
    Router::new().fallback(any(|body: Bytes| async move { body.len().to_string() })).layer(layer)
}

fn with(name: &'static str, value: impl AsRef<[u8]>) -> Request<Body> {
    let mut request = get("/");
    request.headers_mut().insert(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
    request.extensions_mut().insert(std::net::SocketAddr::from(([192, 0, 2, 1], 1)));
    request
}

#[tokio::test]
async fn header_values_of_any_length_count_like_others() {
    let app = app(RULES);
    let long = "k".repeat(100_000);
    for (name, value) in [("x-key", long.clone()), ("cookie", format!("session={long}"))] {
        for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
            let response = app.clone().oneshot(with(name, &value)).await.unwrap();
            assert_eq!(response.status(), status, "{name}");
            assert!(field(&response, "ratelimit").unwrap().len() < 200, "nothing of it comes back");
        }
        let other = app.clone().oneshot(with(name, format!("{value}2"))).await.unwrap();
        assert_eq!(other.status(), StatusCode::OK, "another value is another key, to the last byte");
    }
}

#[tokio::test]
async fn headers_that_are_not_text_are_no_key() {
    let app = app(RULES);
    for (name, value) in
        [("x-key", &b"\xff\xfe"[..]), ("cookie", b"session=\xff"), ("x-forwarded-for", b"\xff")]
    {
        for _ in 0..2 {
            let response = app.clone().oneshot(with(name, value)).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(field(&response, "ratelimit-policy"), Some(r#""client";q=1000000;w=1"#));
        }
    }
}

#[tokio::test]
async fn headers_without_end_and_with_odd_names_are_looked_at_in_bounded_time() {
    let app = app(RULES);
    let mut request = with("x-key", "a");
    let headers = request.headers_mut();
    for number in 0..5_000 {
        let hop = HeaderValue::from_str(&format!("203.0.113.{}, , \"", number % 256)).unwrap();
        headers.append("x-forwarded-for", hop);
        headers.append("cookie", HeaderValue::from_static("session"));
        headers.append(
            HeaderName::try_from(format!("x!#$%&'*+.^_`|~-{number}")).unwrap(),
            HeaderValue::from_static(""),
        );
    }
    headers.insert(HeaderName::try_from("y".repeat(60_000)).unwrap(), HeaderValue::from_static("1"));
    let before = cpu::of_this_thread();
    assert_eq!(app.oneshot(request).await.unwrap().status(), StatusCode::OK);
    let took = cpu::of_this_thread() - before;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn paths_and_queries_of_any_length_count_like_others() {
    let long = "p".repeat(60_000);
    let gates = [
        PathLimit::new(1).gate(store().0).unwrap(),
        ProjectLimit::new(1).gate(store().0).unwrap(),
        CustomLimit::new(1, |facts| facts.path().map(Into::into)).gate(store().0).unwrap(),
    ];
    for gate in gates {
        let gate = Arc::new(gate);
        let app = Router::new().fallback(any(|| async { "ok" })).layer(rate_limit(gate.clone()));
        for (path, status) in
            [(format!("/{long}"), 200), (format!("/{long}"), 429), (format!("/{long}2"), 200)]
        {
            let mut request = get(&path);
            request.extensions_mut().insert(Identity::new().org("1").project("2"));
            assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status);
        }
        assert_eq!(gate.counts().failed, 0);
    }
    let odd = ["/?k=%FF", "/?k", "/?&&&=&k=%", "/%00%ff?k=%00", "/?k=%F0%9F%98%80"];
    for path in odd {
        let mut request = get(path);
        request.extensions_mut().insert(Peer([192, 0, 2, 1].into()));
        assert!(app(RULES).oneshot(request).await.unwrap().status().is_success(), "{path}");
    }
}

/// Whatever it says it is, a body is looked into; one that cannot be read is no absence. It reaches the service whole.
#[tokio::test]
async fn bodies_that_cannot_be_read_are_no_absence_and_reach_the_service() {
    let rules = "[[rules]]\nname = 'tenants'\nkeys = 'tenant:{body.tenant}'\nquota = '9/60s fixed_window'\n\
                 [[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1000/60s fixed_window'\n";
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let wide = format!("[{}0]", "{\"\":0},".repeat(8_000));
    let big = format!("{{\"tenant\":\"{}\"}}", "x".repeat(1 << 20));
    let json = "application/json";
    let bodies: [(&str, Vec<u8>, bool); 12] = [
        ("text/plain", br#"{"tenant":"a"}"#.to_vec(), true),
        ("", br#"{"tenant":"a"}"#.to_vec(), true),
        (json, b"{".to_vec(), true),
        (json, b"\xff\xfe\x00".to_vec(), true),
        (json, br#"{"tenant":1e999}"#.to_vec(), true),
        (json, br#"{"tenant":"\ud800"}"#.to_vec(), true),
        ("image/png", br#"{"tenant":"a"}"#.to_vec(), true),
        (json, b"null".to_vec(), false),
        (json, br#"{"tenant":{"a":1}}"#.to_vec(), false),
        (json, deep.into_bytes(), true),
        (json, wide.into_bytes(), false),
        (json, big.into_bytes(), true),
    ];
    let app = app(rules);
    for (content_type, body, has_key) in bodies {
        let length = body.len().to_string();
        let request = Request::post("/").header("content-type", content_type).body(Body::from(body)).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let told = if has_key { r#""tenants";q=9;w=60, "all";q=1000;w=60"# } else { r#""all";q=1000;w=60"# };
        assert_eq!(field(&response, "ratelimit-policy"), Some(told), "{content_type}");
        assert_eq!(text(response).await, length, "it arrives whole");
    }
    let good = Request::post("/").header("content-type", json).body(Body::from(r#"{"tenant":"a"}"#)).unwrap();
    assert!(field(&app.oneshot(good).await.unwrap(), "ratelimit").unwrap().contains("\"tenants\";r=6"));
}

/// More work than one request may be is denied whole, with a reason of its own; a rule that only watches denies nothing.
#[tokio::test]
async fn a_request_beyond_its_budget_is_denied_whole() {
    let rules = "[[rules]]\nname = 'tags'\nwhen = \"has(body.tags) && body.tags.exists(t, t == 'x')\"\nkeys = 'all'\n\
                 quota = '9/60s'\n[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '9/60s fixed_window'\n";
    let zeros = format!("{{\"tags\":[{}0]}}", "0,".repeat(30_000));
    let ask = |body: &str| Request::post("/").body(Body::from(body.to_owned())).unwrap();
    for gate in [gate(rules).0, gate_on(Remote::new(), rules)] {
        let layer = rate_limit(gate.body_bytes_max(64 << 10));
        let app = Router::new().fallback(any(|| async { "ok" })).layer(layer);
        let denied = app.clone().oneshot(ask(&zeros)).await.unwrap();
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(fields(&denied), Vec::<String>::new(), "nor a time to come back");
        assert_eq!(field(&denied, "content-type"), Some("application/problem+json"));
        let told = text(denied).await;
        assert!(told.contains(r#""reason":"condition_budget""#) && told.contains("abnormal-usage"), "{told}");
        let next = app.oneshot(ask("{}")).await.unwrap();
        assert_eq!(field(&next, "ratelimit"), Some(r#""all";r=8;t=60"#), "nothing was charged");
    }
    let watching = app(&rules.replacen("keys", "mode = 'monitor'\nkeys", 1));
    let passed = watching.oneshot(ask(&zeros)).await.unwrap();
    assert_eq!(field(&passed, "ratelimit"), Some(r#""all";r=8;t=60"#));
}

#[tokio::test]
async fn content_types_of_any_kind_are_no_trouble() {
    let rules = "[[rules]]\nname = 'tenants'\nkeys = 'tenant:{body.tenant}'\nquota = '9/60s fixed_window'\n";
    let app = app(rules);
    let long = format!("application/json; x={}", "y".repeat(100_000));
    let cases: [(&[u8], bool); 6] = [
        (b"application/vnd.api+json", true),
        (long.as_bytes(), true),
        (b"\xff/json", true),
        (b"json", true),
        (b"application/grpc\xff", true),
        (b";;;", true),
    ];
    for (content_type, told) in cases {
        let mut request = Request::post("/").body(Body::from(r#"{"tenant":"a"}"#)).unwrap();
        request.headers_mut().insert("content-type", HeaderValue::from_bytes(content_type).unwrap());
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(
            (response.status(), !fields(&response).is_empty()),
            (StatusCode::OK, told),
            "{content_type:?}"
        );
    }
}
