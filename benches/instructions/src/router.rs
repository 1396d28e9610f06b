//! A router of axum with one limit per address, as most services have it; and the same without.
//!
//! `make bench-http` counts the same for a peer. What a limit costs is what it takes above `axum-bare`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::routing::get;
use futures_util::FutureExt as _;
use ratekeeper::MemoryStore;
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper_web::Gate;
use ratekeeper_web::axum::rate_limit;
use tower::Service as _;

use crate::{KEYS, PLENTY, Result, Run, policy};

/// Without limits.
pub(super) fn bare(run: &Run) -> Result<()> {
    ask(run, service(), |_| 200)
}

/// Allowed, with the two standard fields.
pub(super) fn allowed(run: &Run) -> Result<()> {
    ask(run, service().layer(rate_limit(limit(PLENTY)?)), |_| 200)
}

/// Denied, with the two standard fields and a problem document; the first request of each address is not.
pub(super) fn denied(run: &Run) -> Result<()> {
    let answers = |asked| if asked < KEYS { 200 } else { 429 };
    ask(run, service().layer(rate_limit(limit("1/d")?)), answers)
}

fn service() -> Router {
    Router::new().route("/", get(|| async { "ok" }))
}

fn limit(quota: &str) -> Result<Gate> {
    let policy = format!(
        "service = 'bench'\n[[rules]]\nname = 'per-ip'\nkeys = 'ip:{{client.ip}}'\nquota = '{quota}'\n"
    );
    let policies = Policies::builder().mode(None).build()?;
    policies.install("bench.toml", PolicySpec::read("bench.toml", Format::Toml, policy.as_bytes()), None)?;
    let limiter = PolicyLimiter::on(Arc::new(MemoryStore::new()), policies);
    Ok(Gate::new(limiter.service("bench")?))
}

/// Requests are made before they are counted.
fn ask(run: &Run, mut service: Router, status: impl Fn(u64) -> u16) -> Result<()> {
    let requests: Result<Vec<_>> = (0..run.steps()).map(|number| request(number % KEYS)).collect();
    let mut requests = requests?.into_iter();
    let mut asked = 0;
    run.count(|_| {
        let response = requests.next().and_then(|request| service.call(request).now_or_never());
        asked += 1;
        matches!(response, Some(Ok(response)) if response.status() == status(asked - 1))
    })
}

fn request(number: u64) -> Result<Request> {
    let peer = SocketAddr::from((policy::peer(number), 4_711));
    let request = Request::builder().uri("/").header("host", "api.example.com");
    Ok(request.extension(ConnectInfo(peer)).body(Body::empty())?)
}
