//! Header fields, and the layer in front of a service.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use futures_util::FutureExt as _;
use http::{Request, Response};
use ratekeeper::MemoryStore;
use ratekeeper::policy::{Ask, RequestFacts};
use ratekeeper_http::{HttpOptions, Legacy, Tally};
use ratekeeper_web::Gate;
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::tower::Peer;
use tower::{Layer as _, Service as _};

use crate::{KEYS, Result, Run, policy};

fn options() -> HttpOptions {
    HttpOptions::default().legacy(Legacy::XRateLimit)
}

/// The fields of a response to a request that met three limits.
pub(super) fn fields(run: &Run) -> Result<()> {
    let service = policy::limiter(Arc::new(MemoryStore::new()))?.service("bench")?;
    let request = RequestFacts::new("POST", "/expensive").peer([192, 0, 2, 1]).header("x-user", "ann");
    let decision = service.check_now(&Ask::request(&request))?;
    let options = options();
    let expected = Tally::of(&decision).fields(&options).count();
    run.count(|_| {
        Tally::of(&decision).fields(&options).filter(|(_, value)| !value.is_empty()).count() == expected
    })
}

/// A service that does nothing, behind limits. Requests are made before they are counted.
pub(super) fn layer(run: &Run) -> Result<()> {
    let service = policy::limiter(Arc::new(MemoryStore::new()))?.service("bench")?;
    let mut limited = rate_limit(Gate::new(service).options(options())).layer(tower::service_fn(answer));
    let requests: Result<Vec<_>> = (0..run.steps()).map(|number| request(number % KEYS)).collect();
    let mut requests = requests?.into_iter();
    run.count(|_| {
        let response = requests.next().and_then(|request| limited.call(request).now_or_never());
        matches!(response, Some(Ok(response)) if response.status() == 200 && response.headers().len() > 2)
    })
}

fn answer(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}

fn request(number: u64) -> Result<Request<Body>> {
    let (method, path) = if number.is_multiple_of(2) { ("POST", "/expensive") } else { ("GET", "/cheap") };
    let mut request = Request::builder().method(method).uri(path).header("x-user", format!("user-{number}"));
    for (name, value) in policy::HEADERS {
        request = request.header(name, value);
    }
    Ok(request.extension(Peer(IpAddr::from(policy::peer(number)))).body(Body::empty())?)
}
