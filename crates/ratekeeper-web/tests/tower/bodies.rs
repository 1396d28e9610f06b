//! Bodies on their way in and out: whole, streaming, with trailers, late, broken.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method};
use axum::routing::get as on_get;
use http::{Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use ratekeeper_web::Gate;
use ratekeeper_web::tower::{RateLimitLayer, RequestBody};
use tokio::sync::mpsc;
use tower::{Layer as _, ServiceExt as _};

use super::{field, fields, gate, get};

const BY_TENANT: &str =
    "[[rules]]\nname = 'tenants'\nkeys = 'tenant:{body.tenant}'\nquota = '9/60s fixed_window'\n";
const ALL: &str = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '9/60s fixed_window'\n";

type Sent = Result<Frame<Bytes>, &'static str>;

/// A body whose frames the test sends one by one.
struct Channel(mpsc::Receiver<Sent>);

fn channel() -> (mpsc::Sender<Sent>, Body) {
    let (sender, receiver) = mpsc::channel(16);
    (sender, Body::new(Channel(receiver)))
}

impl http_body::Body for Channel {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Sent>> {
        self.0.poll_recv(context)
    }
}

fn data(text: &'static str) -> Sent {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn trailers() -> Sent {
    Ok(Frame::trailers([(http::header::ETAG, "x".parse().unwrap())].into_iter().collect()))
}

fn json(body: Body) -> Request<Body> {
    Request::post("/").header("content-type", "application/json").body(body).unwrap()
}

/// Passes a request through the layer; what the service got, and what the client is told.
async fn through(gate: Gate, request: Request<Body>) -> (RequestBody<Body>, Response<impl http_body::Body>) {
    let (sender, mut receiver) = mpsc::channel(1);
    let service = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let sender = sender.clone();
        async move {
            sender.try_send(request.into_body()).unwrap();
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    let response = RateLimitLayer::new(gate).layer(service).oneshot(request).await.unwrap();
    (receiver.try_recv().unwrap(), response)
}

/// The frames of a body as text, and how it ended.
async fn frames(mut body: RequestBody<Body>) -> Vec<String> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        read.push(match frame.map(Frame::into_data) {
            Ok(Ok(data)) => String::from_utf8(data.to_vec()).unwrap(),
            Ok(Err(frame)) => format!("{:?}", frame.into_trailers().unwrap_or_else(|_| HeaderMap::new())),
            Err(error) => format!("error: {error}"),
        });
    }
    assert!(body.frame().await.is_none());
    read
}

#[tokio::test]
async fn bodies_stream_where_no_rule_looks_into_them() {
    let (sender, body) = channel();
    let (mut got, _) = tokio::time::timeout(Duration::from_secs(5), through(gate(ALL).0, json(body)))
        .await
        .expect("nobody waits for a body that nobody looks into");
    for piece in ["a", "b"] {
        sender.send(data(piece)).await.unwrap();
        assert_eq!(got.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
    }
}

#[tokio::test]
async fn a_body_that_was_looked_into_goes_on_whole_with_its_trailers() {
    let (sender, body) = channel();
    for frame in [data("{\"tenant\""), data(":\"a\"}"), trailers()] {
        sender.send(frame).await.unwrap();
    }
    drop(sender);
    let (got, response) = through(gate(BY_TENANT).0, json(body)).await;
    assert_eq!(field(&response, "ratelimit"), Some(r#""tenants";r=8;t=60"#));
    assert_eq!((got.size_hint().exact(), got.is_end_stream()), (Some(14), false));
    assert_eq!(frames(got).await, ["{\"tenant\":\"a\"}", r#"{"etag": "x"}"#]);
}

#[tokio::test]
async fn an_error_in_a_body_is_the_services_to_handle() {
    let (sender, body) = channel();
    for frame in [data("{\"tenant\":"), Err("the line broke")] {
        sender.send(frame).await.unwrap();
    }
    let (got, response) = through(gate(BY_TENANT).0, json(body)).await;
    assert_eq!(
        field(&response, "ratelimit"),
        Some("\"tenants\";r=8;t=60"),
        "it counts as one that cannot be read"
    );
    assert_eq!(frames(got).await, ["{\"tenant\":", "error: the line broke"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_slow_body_longer_than_allowed() {
    let (sender, body) = channel();
    sender.send(data("{\"tenant\":")).await.unwrap();
    let began = tokio::time::Instant::now();
    let gate = gate(BY_TENANT).0.body_wait(Duration::from_secs(3));
    let (got, response) = through(gate, json(body)).await;
    assert_eq!(began.elapsed().as_secs(), 3);
    assert_eq!(
        field(&response, "ratelimit"),
        Some("\"tenants\";r=8;t=60"),
        "it counts as one that cannot be read"
    );
    for frame in [data("\"a\"}"), trailers()] {
        sender.send(frame).await.unwrap();
    }
    drop(sender);
    assert_eq!(frames(got).await, ["{\"tenant\":", "\"a\"}", r#"{"etag": "x"}"#]);
}

/// A body that has no end, and counts how much of it was taken.
struct Endless(Arc<std::sync::atomic::AtomicUsize>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 100])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[tokio::test]
async fn of_a_body_without_end_no_more_is_read_than_allowed() {
    let taken = Arc::default();
    let gate = gate(BY_TENANT).0.body_bytes_max(1_000);
    let (mut got, response) = through(gate, json(Body::new(Endless(Arc::clone(&taken))))).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        taken.load(std::sync::atomic::Ordering::SeqCst),
        11,
        "ten fit, one more tells that there is more"
    );
    assert_eq!(got.size_hint().lower(), 1_100);
    for length in [1_000, 100, 100] {
        assert_eq!(got.frame().await.unwrap().unwrap().into_data().unwrap().len(), length);
    }
}

#[tokio::test]
async fn a_body_that_says_it_is_too_long_is_not_even_begun() {
    let gate = gate(BY_TENANT).0.body_bytes_max(10);
    let (got, response) = through(gate, json(Body::from("{\"tenant\":\"a\"}"))).await;
    assert_eq!(
        (got.size_hint().exact(), field(&response, "ratelimit")),
        (Some(14), Some("\"tenants\";r=8;t=60"))
    );
    assert_eq!(frames(got).await, ["{\"tenant\":\"a\"}"]);
}

#[tokio::test]
async fn responses_stream_and_keep_their_trailers_and_errors() {
    let (gate, _) = gate("[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/30s concurrency'\n");
    let (bodies, given) = mpsc::channel(4);
    let given = Arc::new(tokio::sync::Mutex::new(given));
    let service = tower::service_fn(move |_: Request<RequestBody<Body>>| {
        let given = Arc::clone(&given);
        async move { Ok::<_, Infallible>(Response::new(given.lock().await.recv().await.unwrap())) }
    });
    let limited = RateLimitLayer::new(gate).layer(service);
    // One that is not denied waits for a body.
    let next = async || {
        let answer = limited.clone().oneshot(get("/"));
        tokio::time::timeout(Duration::from_secs(10), answer).await.expect("it is denied, or has a body")
    };

    let (sender, body) = channel();
    bodies.send(body).await.unwrap();
    let mut streaming = next().await.unwrap().into_body();
    sender.send(data("first")).await.unwrap();
    assert_eq!(streaming.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    assert_eq!(next().await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS, "it is not over");
    sender.send(trailers()).await.unwrap();
    drop(sender);
    assert!(streaming.frame().await.unwrap().unwrap().is_trailers());
    assert!(streaming.frame().await.is_none());

    // Over, though nobody has dropped it yet.
    let (sender, body) = channel();
    bodies.send(body).await.unwrap();
    let mut broken = next().await.unwrap().into_body();
    sender.send(Err("the disk is gone")).await.unwrap();
    assert!(broken.frame().await.unwrap().unwrap_err().to_string().contains("the disk is gone"));
    bodies.send(Body::empty()).await.unwrap();
    assert_eq!(next().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn responses_without_a_body_keep_none_and_carry_the_fields_unless_they_redirect() {
    let (gate, _) = gate(ALL);
    let app = Router::new()
        .route(
            "/{status}",
            on_get(|axum::extract::Path(status): axum::extract::Path<u16>| async move {
                StatusCode::from_u16(status).unwrap()
            }),
        )
        .layer(RateLimitLayer::new(gate));
    for (status, told) in [(204, true), (301, false), (304, false), (308, false), (404, true), (500, true)] {
        let response = app.clone().oneshot(get(&format!("/{status}"))).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(fields(&response).is_empty(), !told, "{status}");
        assert!(response.into_body().is_end_stream());
    }
    let head = Request::builder().method(Method::HEAD).uri("/200").body(Body::empty()).unwrap();
    let response = app.oneshot(head).await.unwrap();
    assert_eq!(fields(&response), ["ratelimit-policy", "ratelimit"]);
    assert_eq!(super::text(response).await, "");
}
