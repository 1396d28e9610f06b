//! The layer as a tower service: readiness, errors, panics, what is held.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use ratekeeper::Store;
use ratekeeper_testkit::wait::PATIENCE;
use ratekeeper_web::Gate;
use ratekeeper_web::ready::CustomLimit;
use ratekeeper_web::tower::{RateLimit, RateLimitLayer, RequestBody};
use tower::{Layer as _, Service, ServiceExt as _};

use super::{Remote, gate, gate_on, get, store};

const TWO: &str = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '2/60s fixed_window'\n";
const ONE_AT_A_TIME: &str = "[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/30s concurrency'\n";

/// A service that insists on what tower asks for: whoever is called was ready, and a
/// clone is not.
#[derive(Debug, Default)]
struct Strict {
    is_ready: bool,
    calls: Arc<AtomicUsize>,
    polls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false, calls: self.calls.clone(), polls: self.polls.clone() }
    }
}

impl Service<Request<RequestBody<Body>>> for Strict {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Body>, &'static str>>;

    /// Busy the first time.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match self.polls.fetch_add(1, Ordering::SeqCst) {
            0 => Poll::Pending,
            7.. => Poll::Ready(Err("worn out")),
            _ => {
                self.is_ready = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn call(&mut self, request: Request<RequestBody<Body>>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without being ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(match request.uri().path() {
            "/error" => Err("it failed"),
            _ => Ok(Response::new(Body::from("ok"))),
        })
    }
}

fn strict(gate: Gate) -> (RateLimit<Strict>, Arc<AtomicUsize>) {
    let service = Strict::default();
    let calls = service.calls.clone();
    (RateLimitLayer::new(gate).layer(service), calls)
}

async fn asks_who_is_ready_and_nobody_else(store: Arc<dyn Store>) {
    let (mut limited, calls) = strict(gate_on(store, TWO));
    let mut context = Context::from_waker(Waker::noop());
    assert!(limited.poll_ready(&mut context).is_pending(), "the service is busy, so this is");
    for (asked, status) in [(1, 200), (2, 200), (2, 429), (2, 429)] {
        assert!(limited.poll_ready(&mut context).is_ready());
        assert_eq!(limited.call(get("/")).await.unwrap().status(), status);
        assert_eq!(calls.load(Ordering::SeqCst), asked);
    }
    // A clone is not ready yet, and becomes so by itself.
    let mut clone = limited.clone();
    assert!(clone.poll_ready(&mut context).is_ready());
    assert_eq!(clone.call(get("/")).await.unwrap().status(), 429);
    assert!(limited.poll_ready(&mut context).is_ready());
    assert!(matches!(limited.poll_ready(&mut context), Poll::Ready(Err("worn out"))));
}

#[tokio::test]
async fn readiness_is_the_services_where_decisions_take_no_io() {
    asks_who_is_ready_and_nobody_else(store().0).await;
}

#[tokio::test]
async fn readiness_is_the_services_where_decisions_take_io() {
    asks_who_is_ready_and_nobody_else(Remote::new()).await;
}

#[tokio::test]
async fn an_error_of_the_service_is_handed_up_and_nothing_stays_held() {
    for remote in [false, true] {
        let counting = Remote::new();
        let store: Arc<dyn Store> = if remote { counting.clone() } else { store().0 };
        let (mut limited, _) = strict(gate_on(store, ONE_AT_A_TIME));
        let _busy = limited.poll_ready(&mut Context::from_waker(Waker::noop()));
        for round in 1..=2 {
            let failed = limited.ready().await.unwrap().call(get("/error")).await;
            assert_eq!(failed.unwrap_err(), "it failed");
            // What is given back over I/O is given back in the background.
            if remote {
                refunded(&counting, round).await;
            }
        }
    }
}

/// Waits until so many refunds were asked of the store, and not one more.
async fn refunded(remote: &Remote, count: usize) {
    counted("refunds", &remote.refunds, count).await;
}

async fn counted(what: &str, counter: &AtomicUsize, count: usize) {
    let start = std::time::Instant::now();
    while counter.load(Ordering::SeqCst) < count {
        assert!(start.elapsed() < PATIENCE, "not {count} {what}");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(counter.load(Ordering::SeqCst), count, "{what}");
}

/// What happens to a request that is cut off while the service is at work.
#[tokio::test]
async fn what_a_request_holds_is_given_back_once_when_it_is_cut_off() {
    let (remote, arrivals) = (Remote::new(), Arc::new(AtomicUsize::new(0)));
    let arrived = Arc::clone(&arrivals);
    let never = tower::service_fn(move |_: Request<RequestBody<Body>>| {
        arrived.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    let limited = RateLimitLayer::new(gate_on(remote.clone(), ONE_AT_A_TIME)).layer(never);
    for round in 1..=2 {
        let under_way = tokio::spawn(limited.clone().oneshot(get("/")));
        counted("requests at work", &arrivals, round).await;
        let second = tokio::time::timeout(PATIENCE, limited.clone().oneshot(get("/"))).await;
        assert_eq!(second.expect("an answer").unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        under_way.abort();
        refunded(&remote, round).await;
    }
}

#[tokio::test]
async fn what_a_response_holds_is_given_back_once_whether_it_is_read_or_dropped() {
    let remote = Remote::new();
    let answers = tower::service_fn(|_: Request<RequestBody<Body>>| {
        ready(Ok::<_, Infallible>(Response::new(Body::from("ok"))))
    });
    let limited = RateLimitLayer::new(gate_on(remote.clone(), ONE_AT_A_TIME)).layer(answers);
    for (round, read) in [true, false, true].into_iter().enumerate() {
        let response = limited.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        match read {
            true => assert_eq!(super::text(response).await, "ok"),
            false => drop(response),
        }
        refunded(&remote, round + 1).await;
    }
}

#[tokio::test]
async fn a_panic_gives_back_what_the_request_held() {
    let (gate, _) = gate(ONE_AT_A_TIME);
    let panics = tower::service_fn(|request: Request<RequestBody<Body>>| async move {
        assert!(request.uri().path() != "/panic", "this panic is part of the test");
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let limited = RateLimitLayer::new(gate).layer(panics);
    for _ in 0..2 {
        let panicked = tokio::spawn(limited.clone().oneshot(get("/panic"))).await;
        assert!(panicked.unwrap_err().is_panic());
    }
    assert_eq!(limited.oneshot(get("/")).await.unwrap().status(), StatusCode::OK);
}

/// Whatever the store, a request is matched once: a key function may count, log, or take long.
#[tokio::test]
async fn a_request_is_looked_at_once() {
    let stores: [Arc<dyn Store>; 2] = [store().0, Remote::new()];
    for store in stores {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = looks.clone();
        let limit = CustomLimit::new(2, move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            Some("all".into())
        });
        let (mut limited, _) = strict(limit.gate(store).unwrap());
        let _busy = limited.poll_ready(&mut Context::from_waker(Waker::noop()));
        for seen in 1..4 {
            limited.ready().await.unwrap().call(get("/")).await.unwrap();
            assert_eq!(looks.load(Ordering::SeqCst), seen);
        }
    }
}

/// The store has charged, and whoever asked is gone before it says so.
#[tokio::test]
async fn a_request_that_is_cut_off_while_the_store_is_asked_holds_nothing() {
    let remote = Remote::new();
    let answers = tower::service_fn(|_: Request<RequestBody<Body>>| {
        ready(Ok::<_, Infallible>(Response::new(Body::from("ok"))))
    });
    let limited = RateLimitLayer::new(gate_on(remote.clone(), ONE_AT_A_TIME)).layer(answers);
    for turns in 0..4 {
        let refunds = remote.refunds.load(Ordering::SeqCst);
        let checks = remote.checks.load(Ordering::SeqCst);
        let mut asking = Box::pin(limited.clone().oneshot(get("/")));
        let _ = futures_util::poll!(&mut asking);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        drop(asking);
        // Whatever began is brought to its end; what never began holds nothing.
        let began = async {
            while remote.checks.load(Ordering::SeqCst) == checks {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), began).await.unwrap();
        refunded(&remote, refunds + 1).await;
        assert_eq!(limited.clone().oneshot(get("/")).await.unwrap().status(), StatusCode::OK, "{turns}");
        refunded(&remote, refunds + 2).await;
    }
}
