//! What the tests share: stores, gates, requests, and what was logged.

use std::fmt::Debug;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response};
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{ManualClock, MemoryStore, Store, Timestamp};
use ratekeeper_web::Gate;

/// A store whose time stands still until it is told otherwise.
pub(crate) fn store() -> (Arc<MemoryStore>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_secs(1_700_000_000)));
    (Arc::new(MemoryStore::with_clock(10_000, clock.clone())), clock)
}

/// A gate with the rules of a policy in TOML, on a store of its own.
pub(crate) fn gate(rules: &str) -> (Gate, Arc<ManualClock>) {
    let (store, clock) = store();
    (gate_on(store, rules), clock)
}

pub(crate) fn gate_on(store: Arc<dyn Store>, rules: &str) -> Gate {
    let policies = Policies::builder().mode(None).build().unwrap();
    let policy = format!("service = \"test\"\n{rules}");
    policies.install("test", PolicySpec::read("test", Format::Toml, policy.as_bytes()), None).unwrap();
    Gate::new(PolicyLimiter::on(store, policies).service("test").unwrap())
}

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

pub(crate) fn field<'r, B>(response: &'r Response<B>, name: &str) -> Option<&'r str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// The names of all fields about limits.
pub(crate) fn fields<B>(response: &Response<B>) -> Vec<&str> {
    let names = response.headers().keys().map(http::HeaderName::as_str);
    names.filter(|name| name.contains("ratelimit") || *name == "retry-after").collect()
}

pub(crate) async fn text<B>(response: Response<B>) -> String
where
    B: http_body::Body<Error: Debug>,
{
    use http_body_util::BodyExt as _;
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
