//! Requests that go out, to a real server on the loopback interface, which has limits of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratekeeper::testing::TestStore;
use ratekeeper_web::axum::global;
use ratekeeper_web::client::{NotSent, OutgoingError, OutgoingLimit, OutgoingService};
use tower::{Layer as _, ServiceExt as _};

type Http = Client<hyper_util::client::legacy::connect::HttpConnector, Body>;

/// Where it listens, and how many requests it has had.
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Server {
    /// Answers as `respond` does to the request of this number, the first of which is 0.
    async fn start(respond: impl Fn(usize) -> Response<Body> + Clone + Send + Sync + 'static) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&asked);
        let handler = move || {
            let response = respond(counting.fetch_add(1, Ordering::SeqCst));
            async move { response }
        };
        Self::serve(Router::new().route("/", get(handler)), asked).await
    }

    async fn serve(app: Router, asked: Arc<AtomicUsize>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn request(&self) -> Request<Body> {
        Request::get(format!("http://{}/", self.address)).body(Body::empty()).unwrap()
    }
}

fn client(limit: &OutgoingLimit) -> OutgoingService<Http> {
    limit.layer(Client::builder(TokioExecutor::new()).build_http())
}

async fn ask(client: &OutgoingService<Http>, server: &Server) -> Result<u16, NotSent> {
    match client.clone().oneshot(server.request()).await {
        Ok(response) => Ok(response.status().as_u16()),
        Err(OutgoingError::NotSent(why)) => Err(why),
        Err(OutgoingError::Client(error)) => panic!("{error}"),
    }
}

fn ok(_: usize) -> Response<Body> {
    Response::new(Body::from("ok"))
}

fn with(status: u16, fields: &[(&'static str, &str)]) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn what_has_no_room_is_refused_and_does_not_reach_the_other_side() {
    let (one, other) = (Server::start(ok).await, Server::start(ok).await);
    let store = TestStore::new();
    let limit = OutgoingLimit::per_host("2/min fixed_window").unwrap().refuse();
    let client = client(&limit.store(Arc::new(store.clone())).unwrap());
    for _ in 0..2 {
        assert_eq!(ask(&client, &one).await, Ok(200));
    }
    let refused = Err(NotSent::TooLong { retry_after: Some(Duration::from_secs(60)) });
    assert_eq!(ask(&client, &one).await, refused);
    assert_eq!(ask(&client, &other).await, Ok(200), "another host has a limit of its own");
    assert_eq!((one.asked(), other.asked()), (2, 1));
    store.clock().advance(Duration::from_secs(60));
    assert_eq!(ask(&client, &one).await, Ok(200));
}

#[tokio::test]
async fn what_has_no_room_waits_its_time() {
    let server = Server::start(ok).await;
    let client = client(&OutgoingLimit::per_host("1/200ms fixed_window").unwrap());
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(ask(&client, &server).await, Ok(200));
    }
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let server = Server::start(ok).await;
    let limit = OutgoingLimit::per_host("1/h fixed_window").unwrap().queue_max(2);
    let client = client(&limit.wait_at_most(Duration::from_secs(7_200)));
    assert_eq!(ask(&client, &server).await, Ok(200));
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut task = tokio::spawn(client.clone().oneshot(server.request()));
        let first = tokio::time::timeout(Duration::from_millis(20), &mut task).await;
        assert!(first.is_err(), "it waits");
        waiting.push(task);
    }
    let full = ask(&client, &server).await;
    assert_eq!(full, Err(NotSent::QueueFull { waiting: 2 }));
    // Who goes away leaves the queue.
    for task in waiting {
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    let again = tokio::time::timeout(Duration::from_millis(20), ask(&client, &server)).await;
    assert!(again.is_err(), "it waits, because there is room in the queue");
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn retry_after_stops_all_requests_to_the_host() {
    for status in [429, 503] {
        let server = Server::start(move |number| match number {
            0 => with(status, &[("retry-after", "60")]),
            _ => ok(number),
        })
        .await;
        let client =
            client(&OutgoingLimit::per_host("1000/s").unwrap().wait_at_most(Duration::from_secs(30)));
        assert_eq!(ask(&client, &server).await, Ok(status));
        for _ in 0..3 {
            let Err(NotSent::TooLong { retry_after: Some(after) }) = ask(&client, &server).await else {
                panic!("it waits for too long")
            };
            assert!((50..=60).contains(&after.as_secs()), "{after:?}");
        }
        assert_eq!(server.asked(), 1, "the other side is left alone");
    }
}

#[tokio::test]
async fn a_short_retry_after_is_waited_out() {
    let server = Server::start(|number| match number {
        0 => with(429, &[("retry-after", "1")]),
        _ => ok(number),
    })
    .await;
    let client = client(&OutgoingLimit::per_host("1000/s").unwrap());
    let start = Instant::now();
    assert_eq!((ask(&client, &server).await, ask(&client, &server).await), (Ok(429), Ok(200)));
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}

/// The fields of our own layer on the other side: no request is denied, because none too many is sent.
#[tokio::test]
async fn no_more_is_sent_than_the_other_side_says_is_left() {
    let app = Router::new().route("/", get(|| async { "ok" })).layer(global("3/h fixed_window").unwrap());
    let server = Server::serve(app, Arc::default()).await;
    let client = client(&OutgoingLimit::per_host("1000/s").unwrap().refuse());
    for _ in 0..3 {
        assert_eq!(ask(&client, &server).await, Ok(200));
    }
    let Err(NotSent::TooLong { retry_after: Some(after) }) = ask(&client, &server).await else {
        panic!("there is nothing left")
    };
    assert!(after > Duration::ZERO && after <= Duration::from_secs(3_600), "{after:?}");
}

#[tokio::test]
async fn requests_under_way_are_counted_in_what_is_left() {
    let server = Server::start(|_| with(200, &[("ratelimit", r#""all";r=2;t=600"#)])).await;
    let client = client(&OutgoingLimit::per_host("1000/s").unwrap().refuse());
    assert_eq!(ask(&client, &server).await, Ok(200));
    let crowd = (0..20).map(|_| {
        let (client, request) = (client.clone(), server.request());
        tokio::spawn(client.oneshot(request))
    });
    for task in crowd.collect::<Vec<_>>() {
        let _ = task.await.unwrap();
    }
    // Each answer says again that two are left, so it may be more than two in the end; but they are never all sent at once.
    assert!((2..21).contains(&server.asked()), "{}", server.asked());
}

#[tokio::test]
async fn a_key_of_ones_own_and_none() {
    let server = Server::start(ok).await;
    let limit = OutgoingLimit::per_key("1/h", |request| {
        request.headers.get("x-account")?.to_str().ok().map(Into::into)
    });
    let client = client(&limit.unwrap().refuse());
    let of = |account: Option<&'static str>| {
        let (client, mut request) = (client.clone(), server.request());
        if let Some(account) = account {
            request.headers_mut().insert("x-account", account.parse().unwrap());
        }
        async move { client.oneshot(request).await.is_ok_and(|response| response.status() == StatusCode::OK) }
    };
    assert!(of(Some("a")).await && of(Some("b")).await && !of(Some("a")).await);
    assert!(of(None).await && of(None).await, "without a key, nothing is limited");
}

#[test]
fn limits_that_cannot_be_are_refused() {
    let error = |quota| OutgoingLimit::per_host(quota).unwrap_err().to_string();
    assert!(error("ten a second").contains("expected"));
    assert!(error("5/30s concurrency").contains("ConcurrencyLimitLayer"));
}

#[cfg(feature = "reqwest")]
#[tokio::test]
async fn it_is_a_middleware_of_reqwest() {
    let server = Server::start(|number| match number {
        1 => with(429, &[("retry-after", "60")]),
        _ => ok(number),
    })
    .await;
    let limit = OutgoingLimit::per_host("1000/s").unwrap().refuse();
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(limit).build();
    let ask = || client.get(format!("http://{}/", server.address)).send();
    assert_eq!(ask().await.unwrap().status().as_u16(), 200);
    assert_eq!(ask().await.unwrap().status().as_u16(), 429);
    let error = ask().await.unwrap_err().to_string();
    assert!(error.contains("not sent: there is room in"), "{error}");
    assert_eq!(server.asked(), 2);
}
