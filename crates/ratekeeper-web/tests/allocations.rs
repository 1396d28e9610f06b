//! What the layer allocates for a request that it lets pass. A binary of its own, because it
//! has an allocator of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response};
use ratekeeper::MemoryStore;
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper_testkit::allocations::{self, Counting};
use ratekeeper_web::tower::{Peer, RateLimitLayer, RequestBody};
use ratekeeper_web::{Gate, HttpOptions};
use tower::{Layer as _, Service};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn gate(options: HttpOptions) -> Gate {
    let policy =
        b"service = 'test'\n[[rules]]\nname = 'clients'\nkeys = 'ip:{client.ip}'\nquota = '1000000/s'\n";
    let policies = Policies::builder().mode(None).build().unwrap();
    policies.install("test", PolicySpec::read("test", Format::Toml, policy), None).unwrap();
    Gate::new(PolicyLimiter::on(Arc::new(MemoryStore::new()), policies).service("test").unwrap())
        .options(options)
}

/// What one call allocates when everything has been asked before.
fn allocations_of<S, B>(mut service: S) -> u64
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let request = || {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(Peer([192, 0, 2, 1].into()));
        request
    };
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut call = |request| {
        allocations::of(|| {
            let mut future = std::pin::pin!(service.call(request));
            let std::task::Poll::Ready(response) = future.as_mut().poll(&mut context) else {
                panic!("it is decided in place")
            };
            drop(response);
        })
    };
    let _ = (call(request()), call(request()));
    call(request())
}

#[test]
fn little_is_allocated_for_a_request_that_passes() {
    fn answers<B>(_: Request<B>) -> std::future::Ready<Result<Response<Body>, Infallible>> {
        std::future::ready(Ok(Response::new(Body::default())))
    }
    let bare = allocations_of(tower::service_fn(answers::<Body>));
    let limited = |options| {
        let service = tower::service_fn(answers::<RequestBody<Body>>);
        allocations_of(RateLimitLayer::new(gate(options)).layer(service)) - bare
    };
    // What the request is told, and its place among the extensions.
    assert_eq!(limited(HttpOptions::without_fields()), 2);
    // The value that is not kept, and the two parts of a map that was empty.
    assert_eq!(limited(HttpOptions::default()), 2 + 3);
}
