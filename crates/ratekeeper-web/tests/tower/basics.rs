//! Fields, denials, bodies and what is held.

use axum::Router;
use axum::body::Body;
use axum::routing::{get as on_get, post};
use http::{Request, StatusCode};
use ratekeeper_web::axum::rate_limit;
use tower::{Layer as _, ServiceExt as _};

use super::{field, gate, get, text};

#[tokio::test]
async fn every_response_carries_the_fields_and_a_denial_says_when_to_come_back() {
    let (gate, _) = gate("[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '2/60s fixed_window'\n");
    let app = Router::new().route("/", on_get(|| async { "ok" })).layer(rate_limit(gate));
    for left in [1, 0] {
        let response = app.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(&response, "ratelimit-policy"), Some(r#""all";q=2;w=60"#));
        assert_eq!(field(&response, "ratelimit"), Some(format!(r#""all";r={left};t=60"#).as_str()));
        assert_eq!(field(&response, "retry-after"), None);
    }
    let response = app.oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "retry-after"), Some("60"));
    assert_eq!(field(&response, "ratelimit"), Some(r#""all";r=0;t=60"#));
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    assert!(text(response).await.contains(r#""violated-policies":["all"]"#));
}

#[tokio::test]
async fn rules_look_into_bodies_and_the_service_gets_them_whole() {
    let rules = "[[rules]]\nname = 'items'\nwhen = \"route == '/sum'\"\nkeys = 'tenant:{body.tenant}'\n\
                 quota = '5/60s fixed_window'\ncost = 'size(body.items)'\n";
    let (gate, _) = gate(rules);
    let app = Router::new()
        .route("/sum", post(|body: String| async move { body }))
        .layer(rate_limit(gate.body_bytes_max(1_000)));
    let ask = |body: String| {
        let request = Request::post("/sum").header("content-type", "application/json; charset=utf-8");
        app.clone().oneshot(request.body(Body::from(body)).unwrap())
    };
    let body = r#"{"tenant":"a","items":[1,2,3]}"#;
    let response = ask(body.into()).await.unwrap();
    assert_eq!(field(&response, "ratelimit"), Some(r#""items";r=2;t=60"#));
    assert_eq!(text(response).await, body);
    assert_eq!(ask(body.into()).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    // What cannot be read has a counter of its own and costs all there is; the service gets it.
    let response = ask("{".to_owned()).await.unwrap();
    assert_eq!(
        (response.status(), field(&response, "ratelimit")),
        (StatusCode::OK, Some(r#""items";r=0;t=60"#))
    );
    assert_eq!(text(response).await, "{");
    let long = format!("{{\"tenant\":\"{}\"}}", "x".repeat(2_000));
    assert_eq!(ask(long).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn places_come_back_when_the_response_has_been_sent_or_dropped() {
    let (gate, _) = gate("[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/30s concurrency'\n");
    let app = Router::new().route("/", on_get(|| async { "ok" })).layer(rate_limit(gate));
    let first = app.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(app.clone().oneshot(get("/")).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(text(first).await, "ok");
    drop(app.clone().oneshot(get("/")).await.unwrap());
    assert_eq!(app.oneshot(get("/")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn around_a_router_it_limits_what_no_route_matches_too() {
    let (gate, _) = gate("[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '2/60s fixed_window'\n");
    let app = rate_limit(gate).layer(Router::new().route("/", on_get(|| async { "ok" })));
    let asked = async |path: &str| {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        let told = field(&response, "ratelimit").map(str::to_owned);
        (response.status(), told, text(response).await)
    };
    assert_eq!(asked("/").await, (StatusCode::OK, Some(r#""all";r=1;t=60"#.into()), "ok".into()));
    let missing = asked("/nothing").await;
    assert_eq!((missing.0, missing.1.as_deref()), (StatusCode::NOT_FOUND, Some(r#""all";r=0;t=60"#)));
    assert_eq!(asked("/").await.0, StatusCode::TOO_MANY_REQUESTS);
}
