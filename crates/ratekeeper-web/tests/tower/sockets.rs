//! Real connections on a loopback port: clients that hang up, bodies that stream.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{any, get as on_get};
use http::Response;
use http_body::Frame;
use ratekeeper::{MemoryStore, Store};
use ratekeeper_web::Gate;
use ratekeeper_web::axum::rate_limit;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Remote, gate_on, store};

/// How long something may take that happens as soon as it can.
const PATIENCE: Duration = Duration::from_secs(10);
const ONE_AT_A_TIME: &str = "[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/600s concurrency'\n";

/// A body that sends a little, again and again.
struct Drip(tokio::time::Interval);

impl http_body::Body for Drip {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"drip")))))
    }
}

/// How many requests have reached the handler that never answers.
static FOREVER: AtomicUsize = AtomicUsize::new(0);

async fn forever() {
    FOREVER.fetch_add(1, Ordering::SeqCst);
    std::future::pending::<()>().await;
}

async fn serve(gate: Gate) -> SocketAddr {
    let drip = || Body::new(Drip(tokio::time::interval(Duration::from_millis(10))));
    let app = Router::new()
        .route("/", on_get(|| async { "ok" }))
        .route("/drip", on_get(move || async move { Response::new(drip()) }))
        .route("/forever", on_get(forever))
        .route("/panic", any(|| async { panic!("this panic is part of the test") as () }))
        .layer(rate_limit(gate));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

/// The first bytes of the answer, to the end of the head at least.
async fn head(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut buffer = [0; 4_096];
        let length = stream.read(&mut buffer).await.unwrap_or(0);
        if length == 0 {
            break;
        }
        read.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

async fn status(address: SocketAddr, request: &str) -> String {
    let head = head(&mut send(address, request).await).await;
    head.split(' ').nth(1).unwrap_or("none").to_owned()
}

/// Waits until there is room again. The stores' leases are longer than anybody waits here.
async fn becomes_free(address: SocketAddr) {
    let free = async {
        while status(address, "GET /").await != "200" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, free).await.expect("the place comes back");
}

fn stores() -> [Arc<dyn Store>; 2] {
    [Arc::new(MemoryStore::new()), Remote::new()]
}

#[tokio::test]
async fn who_hangs_up_in_the_middle_of_a_response_gives_back_what_was_held() {
    for store in stores() {
        let address = serve(gate_on(store, ONE_AT_A_TIME)).await;
        let mut stream = send(address, "GET /drip").await;
        assert!(head(&mut stream).await.contains("200 OK"));
        let mut some = [0; 8];
        stream.read_exact(&mut some).await.unwrap();
        assert_eq!(status(address, "GET /").await, "429", "it is still streaming");
        drop(stream);
        becomes_free(address).await;
    }
}

#[tokio::test]
async fn who_hangs_up_before_the_response_gives_back_what_was_held() {
    for store in stores() {
        let address = serve(gate_on(store, ONE_AT_A_TIME)).await;
        let before = FOREVER.load(Ordering::SeqCst);
        let stream = send(address, "GET /forever").await;
        let taken = async {
            while FOREVER.load(Ordering::SeqCst) == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, taken).await.expect("the place is taken");
        assert_eq!(status(address, "GET /").await, "429");
        drop(stream);
        becomes_free(address).await;
    }
}

#[tokio::test]
async fn a_panic_gives_back_what_was_held_and_the_server_lives_on() {
    for store in stores() {
        let address = serve(gate_on(store, ONE_AT_A_TIME)).await;
        assert_eq!(status(address, "GET /panic").await, "none");
        becomes_free(address).await;
    }
}

#[tokio::test]
async fn a_response_without_a_body_gives_back_what_was_held() {
    let address = serve(gate_on(store().0, ONE_AT_A_TIME)).await;
    for _ in 0..3 {
        assert_eq!(status(address, "HEAD /").await, "200");
        becomes_free(address).await;
    }
}

#[tokio::test]
async fn a_denied_head_request_has_a_head_alone() {
    let rules = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/600s fixed_window'\n";
    let address = serve(gate_on(store().0, rules)).await;
    assert_eq!(status(address, "GET /").await, "200");
    let mut stream = send(address, "HEAD /").await;
    let answer = head(&mut stream).await;
    assert!(answer.contains("429 Too Many Requests") && answer.contains("ratelimit: \"all\";r=0;t=600"));
    // What follows on the same connection is the next answer, not a body.
    stream.write_all(b"HEAD / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 429"));
    assert!(answer.ends_with("\r\n\r\n"));
}
