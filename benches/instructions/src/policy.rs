//! Policies on the store in memory.

use std::sync::Arc;

use ratekeeper::policy::{Ask, Format, Policies, PolicyLimiter, PolicySpec, RequestFacts};
use ratekeeper::{MemoryStore, Store};

use crate::{KEYS, PLENTY, Result, Run, of};

/// What most services have: clients, users, and something expensive. The name of its service is `bench`.
pub(super) fn limiter(store: Arc<dyn Store>) -> Result<PolicyLimiter> {
    let policy = format!(
        "service = 'bench'
        [[rules]]
        name = 'per-ip'
        keys = 'ip:{{client.ip}}'
        quota = '{PLENTY}'
        [[rules]]
        name = 'per-user'
        keys = 'user:{{header.x-user}}'
        quota = '{PLENTY}'
        [[rules]]
        name = 'expensive'
        when = \"method == 'POST' && path == '/expensive'\"
        keys = 'user:{{header.x-user}}'
        quota = '{PLENTY}'"
    );
    let policies = Policies::builder().mode(None).build()?;
    policies.install("bench.toml", PolicySpec::read("bench.toml", Format::Toml, policy.as_bytes()), None)?;
    Ok(PolicyLimiter::on(store, policies))
}

/// What a request carries beside its user.
pub(super) const HEADERS: [(&str, &str); 5] = [
    ("host", "api.example.com"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
    ("accept", "application/json"),
    ("authorization", "Bearer 0123456789abcdef0123456789abcdef"),
    ("cookie", "session=0123456789abcdef; theme=dark"),
];

/// The address of a client.
pub(super) fn peer(number: u64) -> [u8; 4] {
    [10, 0, (number / 250) as u8, (number % 250) as u8]
}

/// Every second request meets all three rules, the others two.
fn facts(number: u64) -> RequestFacts {
    let (method, path) = if number.is_multiple_of(2) { ("POST", "/expensive") } else { ("GET", "/cheap") };
    let facts = RequestFacts::new(method, path).peer(peer(number));
    let facts = HEADERS.into_iter().fold(facts, |facts, (name, value)| facts.header(name, value));
    facts.header("x-user", format!("user-{number}"))
}

/// A decision by a policy.
pub(super) fn decision(run: &Run) -> Result<()> {
    let service = limiter(Arc::new(MemoryStore::new()))?.service("bench")?;
    let requests: Vec<RequestFacts> = (0..KEYS).map(facts).collect();
    run.count(|number| {
        let rules = if number.is_multiple_of(2) { 3 } else { 2 };
        let request: &RequestFacts = of(&requests, number);
        let decided = service.check_now(&Ask::request(request));
        decided.is_ok_and(|decision| decision.is_allowed() && decision.verdicts().len() == rules)
    })
}
