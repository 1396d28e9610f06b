//! Policies on real servers: what several instances share, and what they do not.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::policy::{Ask, Format, Policies, PolicyLimiter, PolicySpec, RequestFacts, ServiceLimiter};
use ratekeeper::{
    Clock, Level, ManualClock, Override, OverrideScope, RedisStore, RedisStoreBuilder, Timestamp,
    all_rules_of,
};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{PATIENCE, fresh_prefix};
use crate::setup::until;

fn builder(server: &Server, prefix: &str) -> RedisStoreBuilder {
    RedisStore::builder(&server.url()).prefix(prefix).deadline(PATIENCE)
}

fn limiter(server: &Server, prefix: &str, policy: &str) -> PolicyLimiter {
    limiter_on(builder(server, prefix), policy)
}

fn limiter_on(builder: RedisStoreBuilder, policy: &str) -> PolicyLimiter {
    let policies = Policies::builder().mode(None).build().unwrap();
    let read = PolicySpec::read("policy.toml", Format::Toml, policy.as_bytes());
    policies.install("policy.toml", read, None).unwrap();
    PolicyLimiter::new(builder.build().unwrap(), policies)
}

fn by(user: &str) -> RequestFacts {
    RequestFacts::new("GET", "/").claim("user", user.to_owned()).claim("org", 7_i64).claim("project", 9_i64)
}

async fn is_allowed(service: &ServiceLimiter, facts: &RequestFacts) -> bool {
    service.check(&Ask::request(facts)).await.unwrap().is_allowed()
}

const PENAL: &str = r#"
    service = "search"
    [[rules]]
    name = "per-user"
    keys = "user:{identity.user}"
    quota = "2/s fixed_window"
    penalty = { denials = 3, within = "1min", duration = "10min", escalate = 2, max = "1h" }
"#;

#[tokio::test]
async fn instances_share_penalties_and_pardons() {
    for flavour in Flavour::ALL {
        let (server, prefix) = (Server::start(flavour), fresh_prefix());
        let [one, other] = [0, 1].map(|_| limiter(&server, &prefix, PENAL).service("search").unwrap());
        let ann = by("ann");
        let mut denied = one.check(&Ask::request(&ann)).await.unwrap();
        while denied.strictest().unwrap().name().label() != "per-user.penalty" {
            denied = one.check(&Ask::request(&ann)).await.unwrap();
        }
        let wait = denied.retry_after().as_micros().unwrap();
        assert!((590_000_000..=600_000_000).contains(&wait), "{flavour}: {wait}");
        let found = other.check(&Ask::request(&ann)).await.unwrap();
        assert_eq!(found.strictest().unwrap().name().label(), "per-user.penalty", "{flavour}");
        assert!(is_allowed(&other, &by("bob")).await, "{flavour}: nobody else");
        assert!(one.reset(&Ask::request(&ann)).await.unwrap() >= 2, "{flavour}");
        until("a pardon reaches the other instance", async || is_allowed(&other, &ann).await).await;
    }
}

#[tokio::test]
async fn what_this_process_denies_is_charged_nowhere_and_the_other_way_round() {
    let policy = r#"
        service = "search"
        [[rules]]
        name = "guard"
        keys = "all"
        quota = "3/1d fixed_window"
        scope = "process"
        [[rules]]
        name = "per-user"
        keys = "user:{identity.user}"
        quota = "2/1d fixed_window"
    "#;
    let (server, prefix) = (Server::start(Flavour::Redis7), fresh_prefix());
    let [one, other] = [0, 1].map(|_| limiter(&server, &prefix, policy).service("search").unwrap());
    assert!(is_allowed(&one, &by("ann")).await && is_allowed(&one, &by("ann")).await);
    for _ in 0..5 {
        assert!(!is_allowed(&one, &by("ann")).await, "the shared limit denies");
    }
    assert!(is_allowed(&one, &by("bob")).await, "what it denied was given back to the guard");
    for _ in 0..5 {
        assert!(!is_allowed(&one, &by("bob")).await, "the guard denies");
    }
    assert!(is_allowed(&other, &by("bob")).await, "what the guard denied was not charged in the store");
    assert!(!is_allowed(&other, &by("bob")).await);
}

#[tokio::test]
async fn a_service_is_switched_for_a_while_everywhere() {
    let policy = "service = 'search'\n[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/1d fixed_window'\n";
    let (server, prefix) = (Server::start(Flavour::Redis7), fresh_prefix());
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let on_clock = |_| builder(&server, &prefix).clock(Arc::new(clock.clone()));
    let limiters = [0, 1].map(|index| limiter_on(on_clock(index), policy));
    let [one, other] = [0, 1].map(|index: usize| limiters[index].service("search").unwrap());
    assert!(is_allowed(&one, &by("ann")).await && !is_allowed(&other, &by("ann")).await);
    let end = clock.now().after(Duration::from_secs(1_800));
    let switch = format!("mode=monitor until={}", end.as_micros()).parse().unwrap();
    limiters[0].store().control().set_switch(&all_rules_of("search"), switch).await.unwrap();
    until("monitor reaches both", async || {
        is_allowed(&one, &by("ann")).await && is_allowed(&other, &by("ann")).await
    })
    .await;
    clock.set(end);
    assert!(
        !is_allowed(&one, &by("ann")).await && !is_allowed(&other, &by("ann")).await,
        "it ends by itself"
    );
    assert!(limiters[0].policies().status_of("search").unwrap().rules[0].over_limit > 0);
}

#[tokio::test]
async fn hashed_keys_leave_no_value_on_the_server() {
    let policy = r#"
        service = "search"
        hash_keys = true
        [[rules]]
        name = "per-key"
        keys = "key:{header.x-api-key}"
        quotas = ["5/s", "3/1min sliding_log", "2/1min concurrency"]
    "#;
    let (server, prefix) = (Server::start(Flavour::Redis7), fresh_prefix());
    let service = limiter(&server, &prefix, policy).service("search").unwrap();
    let facts = RequestFacts::new("GET", "/").header("x-api-key", "very-secret-value");
    assert!(is_allowed(&service, &facts).await);
    let keys = server.cli(&["KEYS", "*"]);
    assert!(keys.lines().count() >= 3 && keys.contains("per-key"), "{keys}");
    assert!(!keys.contains("very-secret-value"), "{keys}");
}

#[tokio::test]
async fn overrides_hold_for_the_rules_of_a_policy() {
    let policy = r#"
        service = "search"
        [[rules]]
        name = "per-project"
        keys = "{identity.org}:{identity.project}"
        rpm = 2
        rpd = 100
        overrides = true
    "#;
    let (server, prefix) = (Server::start(Flavour::Redis7), fresh_prefix());
    let limiter = limiter(&server, &prefix, policy);
    let service = limiter.service("search").unwrap();
    let scope = OverrideScope::project("search/per-project.rpm", "7", "9").unwrap();
    limiter.store().overrides().set(scope, Override::limit(5)).await.unwrap();
    for left in (0..5).rev() {
        let decision = service.check(&Ask::request(&by("ann"))).await.unwrap();
        let minute = &decision.verdicts()[0];
        assert_eq!((minute.remaining(), minute.level()), (left, Level::Project));
    }
    assert!(!is_allowed(&service, &by("ann")).await);
}
