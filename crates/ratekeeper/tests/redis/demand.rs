//! Demands on a store that needs I/O: prepared once, awaited, and let go of anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratekeeper::policy::{Ask, Format, KeyFunction, Policies, PolicyLimiter, PolicySpec, RequestFacts};
use ratekeeper::{Labels, Limiter, Origin, RedisStore, Rule, Started};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{PATIENCE, fresh_prefix};

fn store(server: &Server) -> RedisStore {
    RedisStore::builder(&server.url()).prefix(&fresh_prefix()).deadline(PATIENCE).build().unwrap()
}

const POLICY: &str = r#"
    service = "search"
    [[rules]]
    name = "places"
    caller_key = true
    quota = "1/1h concurrency"
    [[rules]]
    name = "here"
    keys = "all"
    quota = "5/h fixed_window"
    scope = "process"
"#;

/// A policy whose key function counts how often it is asked.
fn limiter(server: &Server) -> (PolicyLimiter, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let key = KeyFunction::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some("ann".into())
    });
    let policies = Policies::builder().mode(None).key_function("places", key).build().unwrap();
    policies.install("policy.toml", PolicySpec::read("p", Format::Toml, POLICY.as_bytes()), None).unwrap();
    (PolicyLimiter::new(store(server), policies), calls)
}

/// A request was matched a second time when its store turned out to need I/O, and what this process counts
/// was charged, given back and charged again.
#[tokio::test]
async fn a_request_is_looked_at_once() {
    let server = Server::start(Flavour::Redis7);
    let (limiter, calls) = limiter(&server);
    let service = limiter.service("search").unwrap();
    let facts = RequestFacts::new("GET", "/");
    let Started::Waits(demand) = service.start(&Ask::request(&facts)) else { panic!("it needs I/O") };
    let admission = demand.admit().await.unwrap();
    assert!(admission.decision.is_allowed(), "{}", admission.decision);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let left: Vec<u32> = admission.decision.verdicts().iter().map(ratekeeper::Verdict::remaining).collect();
    assert_eq!(left, [4, 0], "this process's part once");
    assert!(service.check_now(&Ask::request(&facts)).is_err(), "nothing is charged without a wait");
}

/// Dropping a place reached a timer, and that panics outside of a runtime.
#[test]
fn a_place_may_be_dropped_outside_of_a_runtime() {
    let server = Server::start(Flavour::Redis7);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let facts = RequestFacts::new("GET", "/");
    let (service, hold) = runtime.block_on(async {
        let service = limiter(&server).0.service("search").unwrap();
        let admission = service.admit(&Ask::request(&facts)).await.unwrap();
        (service, admission.hold.expect("a place"))
    });
    drop(hold);
    let denied = runtime.block_on(service.check(&Ask::request(&facts))).unwrap();
    assert!(!denied.is_allowed(), "the place comes back when its lease ends: {denied}");
}

#[tokio::test]
async fn every_verb_takes_a_cost_and_an_id() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let rule = Rule::new("per-user", |user: &str| Some(user.into())).quotas("10/h");
        let limiter: Limiter<str> = Limiter::builder(store(&server)).rule(rule).build().unwrap();
        let once =
            |id: &'static str| limiter.demand("ann").cost(3).once(id, Duration::from_secs(60)).unwrap();
        let seen = |decision: ratekeeper::Decision| (decision.verdicts()[0].remaining(), decision.origin());
        assert_eq!(seen(once("a").peek().await.unwrap()), (10, Origin::Store), "{flavour}");
        assert_eq!(seen(once("a").check().await.unwrap()), (7, Origin::Store));
        assert_eq!(seen(once("a").check().await.unwrap()), (7, Origin::Repeat));
        assert_eq!(seen(once("a").peek().await.unwrap()), (7, Origin::Repeat));
        let explained = once("a").explain(Labels::default()).await.unwrap();
        assert!(explained.starts_with("repeated, charged once: "), "{explained}");
        assert_eq!(seen(once("b").until_allowed(PATIENCE).await.unwrap()), (4, Origin::Store));
        assert_eq!(seen(once("b").until_allowed(PATIENCE).await.unwrap()), (4, Origin::Repeat));
        let ann = limiter.demand("ann");
        assert!(ann.now().peek().is_err(), "it needs I/O, and nothing was sent");
        assert!(ann.now().standing().is_err());
        let strict = ann.strict().now();
        let errors =
            [strict.check(), strict.peek(), strict.reserve("c", PATIENCE), strict.until_allowed(PATIENCE)];
        for error in errors.map(Result::unwrap_err) {
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("the form of this call that is awaited"), "{cause}");
        }
        let decision = limiter.check("ann").await.unwrap();
        let mixed_up = limiter.refund("bob", &decision, 1).await.unwrap_err().to_string();
        assert!(mixed_up.contains("a request with other keys in `per-user`"), "{mixed_up}");
        assert_eq!(limiter.peek("ann").await.unwrap().verdicts()[0].remaining(), 3, "bob's is another");
        limiter.refund("ann", &decision, 1).await.unwrap();
        assert_eq!(limiter.peek("ann").await.unwrap().verdicts()[0].remaining(), 4);
    }
}
