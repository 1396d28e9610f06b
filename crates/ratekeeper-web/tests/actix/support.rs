//! What the tests share: stores, gates, and what responses say.

use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::header::HeaderName;
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{ManualClock, MemoryStore, Store, Timestamp};
use ratekeeper_web::Gate;

/// A rule for everything, with room for two.
pub(crate) const TWO: &str = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '2/60s fixed_window'\n";
/// A rule for one request at a time.
pub(crate) const ONE_AT_A_TIME: &str =
    "[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/30s concurrency'\n";

/// A store whose time stands still.
pub(crate) fn store() -> Arc<MemoryStore> {
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_secs(1_700_000_000)));
    Arc::new(MemoryStore::with_clock(10_000, clock))
}

/// A gate with the rules of a policy in TOML, on a store of its own.
pub(crate) fn gate(rules: &str) -> Gate {
    gate_on(store(), rules)
}

pub(crate) fn gate_on(store: Arc<dyn Store>, rules: &str) -> Gate {
    let policies = Policies::builder().mode(None).build().unwrap();
    let policy = format!("service = \"test\"\n{rules}");
    policies.install("test", PolicySpec::read("test", Format::Toml, policy.as_bytes()), None).unwrap();
    Gate::new(PolicyLimiter::on(store, policies).service("test").unwrap())
}

pub(crate) fn field<'r, B>(response: &'r ServiceResponse<B>, name: &str) -> Option<&'r str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// How many fields about limits there are.
pub(crate) fn fields<B>(response: &ServiceResponse<B>) -> usize {
    let names = response.headers().keys().map(HeaderName::as_str);
    names.filter(|name| name.contains("ratelimit") || *name == "retry-after").count()
}

pub(crate) async fn text<B: MessageBody>(response: ServiceResponse<B>) -> String {
    String::from_utf8(actix_web::test::read_body(response).await.to_vec()).unwrap()
}
