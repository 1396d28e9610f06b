//! What gRPC callers get.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use ratekeeper_web::Gate;
use ratekeeper_web::ready::{OnMissingIdentity, ProjectLimit};
use ratekeeper_web::tower::{RateLimitLayer, RequestBody};
use tower::{Layer as _, ServiceExt as _};

use super::{Remote, field, gate, gate_on, store};

const METHOD: &str = "/shop.v1.Orders/Place";

fn call(content_type: &str) -> Request<Body> {
    Request::post(METHOD).header("content-type", content_type).body(Body::from("\0\0\0\0\0")).unwrap()
}

async fn answer(gate: Gate, calls: usize, content_type: &str) -> Response<impl http_body::Body> {
    let service = tower::service_fn(|_: Request<RequestBody<Body>>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    });
    let limited = RateLimitLayer::new(gate).layer(service);
    for _ in 1..calls {
        limited.clone().oneshot(call(content_type)).await.unwrap();
    }
    limited.oneshot(call(content_type)).await.unwrap()
}

#[tokio::test]
async fn a_denial_is_trailers_alone_and_has_the_fields() {
    let rules = "[[rules]]\nname = 'orders'\nwhen = \"route == '/shop.v1.Orders/Place'\"\nkeys = 'all'\n\
                 quota = '1/60s fixed_window'\n";
    for asked in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
        let response = answer(gate(rules).0, 2, asked).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(&response, "content-type"), Some("application/grpc"));
        assert_eq!(field(&response, "grpc-status"), Some("8"));
        assert!(field(&response, "grpc-message").unwrap().contains("orders"));
        assert_eq!(field(&response, "retry-after"), Some("60"));
        assert_eq!(field(&response, "ratelimit-policy"), Some(r#""orders";q=1;w=60"#));
        assert_eq!(field(&response, "ratelimit"), Some(r#""orders";r=0;t=60"#));
        assert!(response.into_body().is_end_stream(), "so the headers are the trailers");
    }
}

#[tokio::test]
async fn a_call_from_a_browser_is_answered_in_its_own_kind() {
    let rules = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/60s fixed_window'\n";
    let cases = [
        ("application/grpc-web", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text+proto"),
    ];
    for (asked, answered) in cases {
        let response = answer(gate(rules).0, 2, asked).await;
        assert_eq!(field(&response, "content-type"), Some(answered));
        assert_eq!(field(&response, "grpc-status"), Some("8"));
    }
    let response = answer(gate(rules).0, 2, "application/grpcish").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "that is not gRPC");
}

#[tokio::test]
async fn an_outage_that_denies_is_unavailable() {
    let rules = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/60s'\non_outage = 'deny'\n";
    let response = answer(gate_on(Remote::away(), rules), 1, "application/grpc").await;
    assert_eq!((response.status(), field(&response, "grpc-status")), (StatusCode::OK, Some("14")));
    assert_eq!(field(&response, "ratelimit"), None);
}

#[tokio::test]
async fn a_call_of_nobody_is_refused_as_an_internal_error() {
    let limit = ProjectLimit::new(1).on_missing_identity(OnMissingIdentity::Refuse);
    let response = answer(limit.gate(store().0).unwrap(), 1, "application/grpc").await;
    assert_eq!((response.status(), field(&response, "grpc-status")), (StatusCode::OK, Some("13")));
    assert!(field(&response, "grpc-message").unwrap().contains("identity"));
}

#[tokio::test]
async fn a_call_without_an_address_is_told_that() {
    let service = tower::service_fn(|_: Request<RequestBody<Body>>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    });
    let limited = ratekeeper_web::tower::per_ip("1/min").unwrap().layer(service);
    let response = limited.oneshot(call("application/grpc")).await.unwrap();
    assert_eq!((response.status(), field(&response, "grpc-status")), (StatusCode::OK, Some("13")));
    let told = field(&response, "grpc-message").unwrap();
    assert!(told.contains("client's address") && told.contains("Peer"), "{told}");
}

/// Only a POST is a call: nobody turns a denial into an empty page that is stored.
#[tokio::test]
async fn a_page_that_is_asked_for_as_if_it_were_a_call_is_denied_as_a_page() {
    let (gate, _) = gate("[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/60s fixed_window'\n");
    let service = tower::service_fn(|_: Request<RequestBody<Body>>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    });
    let limited = RateLimitLayer::new(gate).layer(service);
    let page = || Request::get("/").header("content-type", "application/grpc").body(Body::empty()).unwrap();
    assert_eq!(limited.clone().oneshot(page()).await.unwrap().status(), StatusCode::OK);
    assert_eq!(limited.clone().oneshot(page()).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    let denied = limited.oneshot(call("application/grpc")).await.unwrap();
    assert_eq!((denied.status(), field(&denied, "cache-control")), (StatusCode::OK, Some("no-store")));
}
