//! Stores that are away, and limits that are off.

use axum::Router;
use axum::routing::get as on_get;
use http::StatusCode;
use ratekeeper::Mode;
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::ready::PathLimit;
use ratekeeper_web::{Body, Gate, HttpOptions};
use tower::ServiceExt as _;

use super::{Remote, field, fields, gate_on, get, store, text};

fn app(gate: Gate) -> Router {
    Router::new().route("/", on_get(|| async { "ok" })).layer(rate_limit(gate))
}

fn on_outage(says: &str) -> Gate {
    let rules = format!(
        "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/60s fixed_window'\non_outage = '{says}'\n"
    );
    gate_on(Remote::away(), &rules)
}

#[tokio::test]
async fn a_rule_that_denies_in_an_outage_is_503_and_says_when_to_try_again() {
    let response = app(on_outage("deny")).oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fields(&response), ["retry-after"]);
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    assert!(text(response).await.contains("#temporary-reduced-capacity"));

    let options = HttpOptions::default().body(Body::Detail);
    let response = app(on_outage("deny").options(options)).oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(response).await.starts_with("{\"detail\": "));
}

#[tokio::test]
async fn a_rule_that_allows_in_an_outage_tells_nothing() {
    for _ in 0..3 {
        let response = app(on_outage("allow")).oneshot(get("/")).await.unwrap();
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]));
    }
}

#[tokio::test]
async fn a_process_that_counts_for_itself_tells_what_it_counted() {
    let app = app(on_outage("local"));
    let first = app.clone().oneshot(get("/")).await.unwrap();
    assert_eq!((first.status(), field(&first, "ratelimit").is_some()), (StatusCode::OK, true));
    assert_eq!(app.oneshot(get("/")).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn nothing_is_sent_when_limits_are_off() {
    let app = app(PathLimit::new(1).mode(Mode::Off).gate(store().0).unwrap());
    for _ in 0..3 {
        let response = app.clone().oneshot(get("/")).await.unwrap();
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]));
    }
}

#[tokio::test]
async fn places_that_this_process_gave_out_by_itself_come_back_to_it() {
    let rules = "[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/600s concurrency'\non_outage = 'local'\n";
    let app = app(gate_on(Remote::away(), rules));
    for _ in 0..3 {
        let under_way = app.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(under_way.status(), StatusCode::OK);
        assert_eq!(app.clone().oneshot(get("/")).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        drop(under_way);
    }
}
