//! What handlers ask: limits of their own, costs that they find in a body, what was decided.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use http::{Request, StatusCode};
use ratekeeper::Store;
use ratekeeper_web::axum::{Apply, Limits, Refused, rate_limit};
use ratekeeper_web::ready::{PathLimit, ProjectLimit};
use ratekeeper_web::{Gate, HttpOptions, Identity, Legacy};
use std::time::Duration;
use tower::ServiceExt as _;

use super::{Remote, field, fields, gate, gate_on, store, text};

const MINUTE: Duration = Duration::from_secs(60);

fn elements(store: Arc<dyn Store>) -> Arc<Gate> {
    Arc::new(ProjectLimit::new(10).expiry(MINUTE).key_suffix("/elements").gate(store).unwrap())
}

fn batch(items: usize) -> Request<Body> {
    let json = serde_json::to_vec(&vec![0; items]).unwrap();
    let request = Request::post("/batch").header("content-type", "application/json");
    request.extension(Identity::new().org("1").project("2")).body(Body::from(json)).unwrap()
}

async fn count(
    State(elements): State<Arc<Gate>>,
    apply: Apply,
    Json(items): Json<Vec<u32>>,
) -> Result<(Apply, String), Refused> {
    apply.cost(&elements, items.len() as u64).await?;
    Ok((apply, format!("{} items", items.len())))
}

#[tokio::test]
async fn requests_and_elements_are_two_counters_of_one_endpoint_and_in_one_header() {
    let stores: [Arc<dyn Store>; 2] = [store().0, Remote::new()];
    for store in stores {
        let requests = ProjectLimit::new(5).expiry(MINUTE).gate(store.clone()).unwrap();
        let app = Router::new()
            .route("/batch", post(count))
            .layer(rate_limit(requests))
            .with_state(elements(store));
        let response = app.clone().oneshot(batch(4)).await.unwrap();
        let policies = r#""requests";q=5;w=60, "elements";q=10;w=60"#;
        assert_eq!(field(&response, "ratelimit-policy"), Some(policies));
        assert_eq!(field(&response, "ratelimit"), Some(r#""requests";r=4;t=60, "elements";r=6;t=60"#));
        assert_eq!(text(response).await, "4 items");
        // 4 + 7 > 10: denied whole, nothing of it is counted.
        let denied = app.clone().oneshot(batch(7)).await.unwrap();
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&denied, "ratelimit-policy"), Some(policies));
        assert_eq!(field(&denied, "ratelimit"), Some(r#""requests";r=3;t=60, "elements";r=6;t=60"#));
        assert_eq!(field(&denied, "retry-after"), Some("60"));
        assert!(text(denied).await.contains(r#""violated-policies":["elements"]"#));
        assert_eq!(app.oneshot(batch(6)).await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn without_a_layer_the_handlers_answer_tells() {
    let app = Router::new().route("/batch", post(count)).with_state(elements(store().0));
    let response = app.clone().oneshot(batch(4)).await.unwrap();
    assert_eq!(field(&response, "ratelimit"), Some(r#""elements";r=6;t=60"#));
    let denied = app.oneshot(batch(7)).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&denied, "ratelimit-policy"), Some(r#""elements";q=10;w=60"#));
    assert_eq!(field(&denied, "content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn a_gate_is_told_about_in_its_own_words_without_a_layer() {
    let options = HttpOptions::default().without_standard().legacy(Legacy::RateLimit);
    let limit = PathLimit::new(10).expiry(MINUTE).gate(store().0).unwrap().options(options);
    let app = Router::new().route("/batch", post(count)).with_state(Arc::new(limit));
    for (items, status) in [(4, 200), (7, 429)] {
        let response = app.clone().oneshot(batch(items)).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(field(&response, "ratelimit-limit"), Some("10"));
        assert_eq!(field(&response, "ratelimit"), None);
    }
}

#[tokio::test]
async fn nobody_passes_by_asking_for_more_than_can_be_counted() {
    let gate = Arc::new(PathLimit::new(1_000).gate(store().0).unwrap());
    let ask = |units: u64| {
        let gate = gate.clone();
        let handler = move |apply: Apply| async move { apply.cost(&gate, units).await.map(drop) };
        Router::new().route("/batch", post(handler)).oneshot(batch(0))
    };
    for units in [1_001, 1_000_000_000, 1_000_000_001, u64::MAX] {
        let response = ask(units).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{units}");
        assert_eq!(field(&response, "retry-after"), None, "it never passes");
    }
    assert_eq!(ask(0).await.unwrap().status(), StatusCode::OK);
    assert_eq!(gate.counts().failed, 0);
}

#[tokio::test]
async fn a_handler_reads_what_was_decided() {
    async fn handler(limits: Limits) -> String {
        let left = |decision: ratekeeper::Decision| decision.verdicts()[0].remaining();
        format!("{:?}, {}", limits.decision().map(left), limits.tally().is_empty())
    }
    let rules = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '9/60s fixed_window'\n";
    let limited = Router::new().route("/batch", post(handler)).layer(rate_limit(gate(rules).0));
    assert_eq!(text(limited.oneshot(batch(0)).await.unwrap()).await, "Some(8), false");
    let free = Router::new().route("/batch", post(handler));
    assert_eq!(text(free.oneshot(batch(0)).await.unwrap()).await, "None, true");
}

/// A place that a handler took is its own until it drops the admission.
#[tokio::test]
async fn a_handler_holds_a_place_as_long_as_it_keeps_the_admission() {
    let rules = "[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/30s concurrency'\n";
    let gate = Arc::new(gate_on(store().0, rules));
    let app = Router::new()
        .route(
            "/batch",
            post(|State(gate): State<Arc<Gate>>, apply: Apply| async move {
                let place = apply.limit(&gate).await?;
                let second = apply.limit(&gate).await.unwrap_err();
                assert_eq!(second.decision().unwrap().strictest().unwrap().name().label(), "busy");
                drop(place);
                apply.limit(&gate).await.map(|_| "ok")
            }),
        )
        .with_state(gate);
    let response = app.oneshot(batch(0)).await.unwrap();
    assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]), "it was not handed back");
}
