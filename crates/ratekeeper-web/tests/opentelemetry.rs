//! `ratelimit.over_limit` on the span of a request, as an exporter sees it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use http::Request;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use ratekeeper::{MemoryStore, Mode};
use ratekeeper_web::Gate;
use ratekeeper_web::axum::{Apply, Refused};
use ratekeeper_web::ready::PathLimit;
use ratekeeper_web::tower::RateLimitLayer;
use tower::ServiceExt as _;
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;

const ROUTE: &str = "/items/{id}";

fn limit(max_requests: u64, mode: Mode) -> Gate {
    PathLimit::new(max_requests).mode(mode).gate(Arc::new(MemoryStore::new())).unwrap()
}

/// Asks twice, each time in a span of its own; the spans that are exported.
async fn spans(app: Router) -> Vec<SpanData> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    for _ in 0..2 {
        let request = Request::get("/items/7").body(Body::empty()).unwrap();
        let root = tracing::info_span!("request");
        let response = app.clone().oneshot(request).instrument(root).await.unwrap();
        drop(response);
    }
    provider.force_flush().unwrap();
    exporter.get_finished_spans().unwrap()
}

/// The attribute on each span of that name.
fn marks(spans: &[SpanData], name: &str) -> Vec<Option<Value>> {
    let named = spans.iter().filter(|span| span.name == name);
    let mark = |attributes: &[KeyValue]| {
        let mut found = attributes.iter().filter(|pair| pair.key.as_str() == "ratelimit.over_limit");
        let first = found.next().map(|pair| pair.value.clone());
        assert!(found.next().is_none(), "once");
        first
    };
    named.map(|span| mark(&span.attributes)).collect()
}

fn router() -> Router<Arc<Gate>> {
    Router::new().route(ROUTE, get(|| async { "ok" }))
}

#[tokio::test]
async fn a_limit_that_watches_marks_the_requests_span_with_the_endpoint() {
    for spans_too in [false, true] {
        let gate = limit(1, Mode::Monitor).spans(spans_too);
        let app = router().layer(RateLimitLayer::new(gate)).with_state(Arc::new(limit(1, Mode::Off)));
        let spans = spans(app).await;
        assert_eq!(marks(&spans, "request"), [None, Some(Value::from(ROUTE))]);
        assert_eq!(marks(&spans, "ratelimit.check").len(), if spans_too { 2 } else { 0 });
        assert!(marks(&spans, "ratelimit.check").iter().all(Option::is_none));
    }
}

#[tokio::test]
async fn a_limit_that_denies_marks_nothing() {
    let app = router().layer(RateLimitLayer::new(limit(1, Mode::On)));
    let spans = spans(app.with_state(Arc::new(limit(1, Mode::Off)))).await;
    assert_eq!(marks(&spans, "request"), [None, None]);
}

#[tokio::test]
async fn an_inner_layer_and_a_handler_mark_the_span_around_all_layers() {
    async fn applies(State(gate): State<Arc<Gate>>, apply: Apply) -> Result<&'static str, Refused> {
        apply.limit(&gate).instrument(tracing::info_span!("handler")).await.map(|_| "ok")
    }
    let outer = || RateLimitLayer::new(limit(100, Mode::On));
    let inner = axum::middleware::from_fn(|request, next: axum::middleware::Next| {
        next.run(request).instrument(tracing::info_span!("inner"))
    });
    let layered = router().layer(RateLimitLayer::new(limit(1, Mode::Monitor))).layer(inner).layer(outer());
    let handled = Router::new().route(ROUTE, get(applies)).layer(outer());
    for app in [layered, handled] {
        let spans = spans(app.with_state(Arc::new(limit(1, Mode::Monitor)))).await;
        assert_eq!(marks(&spans, "request"), [None, Some(Value::from(ROUTE))]);
        for name in ["inner", "handler"] {
            assert!(marks(&spans, name).iter().all(Option::is_none), "{name}");
        }
    }
}

/// A layer around the router does not know the route yet: then it is the path.
#[tokio::test]
async fn without_a_route_the_endpoint_is_the_path() {
    use tower::Layer as _;
    let service = router().with_state(Arc::new(limit(1, Mode::Off)));
    let limited = RateLimitLayer::new(limit(1, Mode::Monitor)).layer(service);
    let spans = spans(Router::new().fallback_service(limited)).await;
    assert_eq!(marks(&spans, "request"), [None, Some(Value::from("/items/7"))]);
}
