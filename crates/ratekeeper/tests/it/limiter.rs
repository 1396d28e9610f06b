//! Rules in code: layers, waiting, reservations, outages, bad input.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::away::Away;
use ratekeeper::{
    Clock, Level, Limiter, LimiterBuilder, ManualClock, MemoryStore, Mode, OnOutage, Origin, Override,
    OverrideScope, Owner, Rule, Settled, Timestamp, Verdict,
};

struct Request {
    ip: &'static str,
    user: Option<&'static str>,
}

const ANN: Request = Request { ip: "192.0.2.1", user: Some("ann") };
const BOB: Request = Request { ip: "192.0.2.1", user: Some("bob") };
const GUEST: Request = Request { ip: "192.0.2.2", user: None };

fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    (MemoryStore::with_clock(10_000, Arc::new(clock.clone())), clock)
}

fn per_user() -> Rule<Request> {
    Rule::new("per-user", |request: &Request| request.user.map(Cow::Borrowed))
}

fn per_ip() -> Rule<Request> {
    Rule::new("per-ip", |request: &Request| Some(request.ip.into()))
}

#[test]
fn the_strictest_layer_wins_and_is_named() {
    let (store, clock) = store();
    let limiter = Limiter::builder(store)
        .rule(per_user().quotas("2/min"))
        .rule(per_ip().quotas("3/min"))
        .rule(Rule::global("global").quotas("{rps=100, rpm=1000}"))
        .build()
        .unwrap();
    let denied_by = |request: &Request| {
        let decision = limiter.check_now(request).unwrap();
        (!decision.is_allowed()).then(|| decision.strictest().unwrap().name().as_str())
    };
    assert_eq!([denied_by(&ANN), denied_by(&ANN)], [None, None]);
    assert_eq!(denied_by(&ANN), Some("per-user"));
    assert_eq!(denied_by(&BOB), None, "the denial above took nothing from the shared address");
    assert_eq!(denied_by(&BOB), Some("per-ip"));
    assert_eq!(denied_by(&GUEST), None, "no user: that rule does not apply");
    clock.advance(Duration::from_secs(30));
    assert_eq!(denied_by(&ANN), None);
}

#[test]
fn without_a_rule_that_applies_nothing_is_limited() {
    let limiter = Limiter::builder(store().0).rule(per_user().quotas("1/h")).build().unwrap();
    for _ in 0..3 {
        let decision = limiter.check_now(&GUEST).unwrap();
        assert_eq!(decision.origin(), Origin::Unlimited);
        assert_eq!(decision.explain(), "allowed: no limit applies");
    }
}

#[test]
fn a_shadow_rule_tells_and_never_denies() {
    let limiter = Limiter::builder(store().0)
        .rule(per_user().quotas("1/h").shadow())
        .rule(per_ip().quotas("9/h"))
        .build()
        .unwrap();
    assert!(limiter.check_now(&ANN).unwrap().verdicts()[0].is_admitted());
    let decision = limiter.check_now(&ANN).unwrap();
    assert!(decision.is_allowed());
    assert!(!decision.verdicts()[0].is_admitted(), "the shadow saw it");
}

#[tokio::test]
async fn a_cost_counts_units_where_the_rule_does_and_requests_elsewhere() {
    let limiter = Limiter::builder(store().0)
        .rule(per_user().quotas("3/h").per_request())
        .rule(per_ip().quotas("1000/h"))
        .build()
        .unwrap();
    let decision = limiter.check_cost(&ANN, 400).await.unwrap();
    let left: Vec<u32> = decision.verdicts().iter().map(Verdict::remaining).collect();
    assert_eq!(left, [2, 600]);
    assert!(!limiter.check_cost(&ANN, 601).await.unwrap().is_allowed());
    assert!(limiter.check_cost(&ANN, u64::MAX).await.unwrap_err().to_string().starts_with("cost: got"));
    limiter.refund(&ANN, &decision, 400).await.unwrap();
    assert_eq!(limiter.peek(&ANN).await.unwrap().verdicts()[1].remaining(), 1_000);
}

#[tokio::test]
async fn a_reservation_is_settled_with_what_it_really_cost() {
    let (store, clock) = store();
    let limiter = Limiter::builder(store)
        .rule(per_user().quotas("5/h").per_request())
        .rule(per_ip().quotas("1000/h"))
        .build()
        .unwrap();
    let left = async || {
        let decision = limiter.peek(&ANN).await.unwrap();
        decision.verdicts().iter().map(Verdict::remaining).collect::<Vec<_>>()
    };
    let minute = Duration::from_secs(60);
    for _ in 0..3 {
        assert!(limiter.reserve(&ANN, 500, "call-1", minute).await.unwrap().is_allowed());
    }
    assert_eq!(left().await, [4, 500], "charged once");
    assert_eq!(limiter.settle("call-1", 120).await.unwrap(), Settled::Done);
    assert_eq!(left().await, [4, 880], "one request stays one request");
    assert_eq!(limiter.settle("call-1", 120).await.unwrap(), Settled::Already);
    limiter.reserve(&ANN, 500, "call-2", minute).await.unwrap();
    assert_eq!(limiter.cancel("call-2").await.unwrap(), Settled::Done);
    assert_eq!(left().await, [4, 880]);
    limiter.reserve(&ANN, 80, "call-3", minute).await.unwrap();
    clock.advance(minute);
    assert_eq!(limiter.settle("call-3", 1).await.unwrap(), Settled::Lapsed);
    assert!(
        limiter
            .reserve(&ANN, 81, "call-3", minute)
            .await
            .unwrap_err()
            .to_string()
            .contains("a new id for each")
    );
    assert!(limiter.settle("call-3", u64::MAX).await.unwrap_err().into_input().is_some());
}

/// Time of the paused runtime, which moves as soon as everybody waits.
#[derive(Debug)]
struct PausedTime(tokio::time::Instant);

impl Clock for PausedTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_700_000_000).after(self.0.elapsed())
    }
}

fn paused_limiter(quota: &str) -> Limiter<Request> {
    let clock = Arc::new(PausedTime(tokio::time::Instant::now()));
    Limiter::builder(MemoryStore::with_clock(1_000, clock)).rule(per_user().quotas(quota)).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_the_request_passes() {
    let limiter = paused_limiter("1/s");
    let start = tokio::time::Instant::now();
    for _ in 0..4 {
        assert!(limiter.until_allowed(&ANN, Duration::from_secs(10)).await.unwrap().is_allowed());
    }
    let waited = start.elapsed();
    assert!(
        (Duration::from_secs(3)..Duration::from_millis(3_310)).contains(&waited),
        "{waited:?}: jitter only lengthens"
    );
    let start = tokio::time::Instant::now();
    let denied = limiter.until_allowed(&ANN, Duration::from_millis(500)).await.unwrap();
    assert!(!denied.is_allowed());
    assert!(start.elapsed() < Duration::from_millis(1), "too little patience is known at once");
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_waits_for_its_turn_and_gives_up_without_a_trace() {
    let limiter = paused_limiter("1/s leaky_bucket queue 9");
    let start = tokio::time::Instant::now();
    for turn in 0..3 {
        assert!(limiter.until_allowed(&ANN, Duration::from_secs(10)).await.unwrap().is_allowed());
        assert_eq!(start.elapsed().as_secs(), turn);
    }
    let ahead = limiter.check(&ANN).await.unwrap();
    assert_eq!(ahead.proceed_after().as_secs(), 1, "someone takes the next turn");
    let before = limiter.peek(&ANN).await.unwrap();
    let given_up = limiter.until_allowed(&ANN, Duration::from_millis(1_500)).await.unwrap();
    assert!(!given_up.is_allowed());
    assert_eq!(given_up.explain(), "given up: per-user would let it proceed in 2s");
    limiter.refund(&ANN, &given_up, 1).await.unwrap();
    assert_eq!(given_up.retry_after().duration(), Some(Duration::from_secs(2)));
    assert_eq!(limiter.peek(&ANN).await.unwrap().verdicts()[0].remaining(), before.verdicts()[0].remaining());
}

#[tokio::test]
async fn overrides_apply_to_the_owner_of_a_request() {
    let (store, _) = store();
    let store: Arc<dyn ratekeeper::Store> = Arc::new(store);
    fn owner(request: &Request) -> Option<Owner<'_>> {
        request.user.map(|user| Owner {
            organisation: "acme".into(),
            project: Some(user.into()),
            endpoint: None,
        })
    }
    let limiter = Limiter::builder_on(Arc::clone(&store))
        .rule(per_user().quotas("{rps=1, rpm=10}").overridable(owner))
        .build()
        .unwrap();
    let scope = OverrideScope::project("per-user.rps", "acme", "ann").unwrap();
    store.overrides().set(scope, Override::limit(5)).await.unwrap();
    let decision = limiter.check(&ANN).await.unwrap();
    assert_eq!(decision.verdicts()[0].level(), Level::Project);
    assert_eq!((decision.verdicts()[0].remaining(), decision.verdicts()[1].remaining()), (4, 9));
    assert_eq!(limiter.check(&BOB).await.unwrap().verdicts()[0].level(), Level::Default);
    assert_eq!(
        limiter.explain(&ANN).await.unwrap(),
        "allowed: per-user.rps has 4 of 5 left (5/s, overridden for the project), full again in 200ms\n\
         - per-user.rps: 4 of 5 left, 5/s (set by: project)\n\
         - per-user.rpm: 9 of 10 left, 10/min (set by: default)",
    );
    assert_eq!(limiter.reset(&ANN).await.unwrap(), 2);
    assert_eq!(limiter.reset(&ANN).await.unwrap(), 0);
}

#[tokio::test]
async fn an_owner_may_say_the_endpoint_of_its_overrides() {
    let (store, _) = store();
    let store: Arc<dyn ratekeeper::Store> = Arc::new(store);
    fn owner(_: &Request) -> Option<Owner<'_>> {
        Some(Owner { organisation: "acme".into(), project: None, endpoint: Some("/search".into()) })
    }
    let limiter = |quotas: &str| {
        let rule = per_user().quotas(quotas).overridable(owner);
        Limiter::builder_on(Arc::clone(&store)).rule(rule).build().unwrap()
    };
    for (endpoint, limit) in [("/search", 7), ("/search.rpm", 70), ("per-user", 1)] {
        let scope = OverrideScope::organisation(endpoint, "acme").unwrap();
        store.overrides().set(scope, Override::limit(limit)).await.unwrap();
    }
    let limits = async |quotas: &str| {
        let decision = limiter(quotas).peek(&ANN).await.unwrap();
        decision.verdicts().iter().map(|verdict| verdict.quota().limit()).collect::<Vec<_>>()
    };
    assert_eq!(limits("5/s").await, [7]);
    assert_eq!(limits("{rps=5, rpm=50}").await, [5, 70]);
}

#[tokio::test]
async fn a_request_may_let_a_rule_do_less() {
    struct Asked(Mode);
    let (store, _) = store();
    let limiter = Limiter::builder(store)
        .rule(Rule::global("rule").quotas("1/s").mode_of(|asked: &Asked| asked.0))
        .build()
        .unwrap();
    assert!(limiter.check(&Asked(Mode::On)).await.unwrap().is_allowed());
    assert!(!limiter.check(&Asked(Mode::On)).await.unwrap().is_allowed());
    let watched = limiter.check(&Asked(Mode::Monitor)).await.unwrap();
    assert!(watched.is_allowed() && watched.is_over_limit());
    let off = limiter.check(&Asked(Mode::Off)).await.unwrap();
    assert!(off.is_allowed() && off.verdicts().is_empty());
    let switch = "mode=monitor".parse().unwrap();
    limiter.store().control().set_switch("rule", switch).await.unwrap();
    assert!(limiter.check(&Asked(Mode::On)).await.unwrap().is_allowed());
    assert!(limiter.check(&Asked(Mode::Off)).await.unwrap().verdicts().is_empty());
    let switch = "mode=on".parse().unwrap();
    limiter.store().control().set_switch("rule", switch).await.unwrap();
    assert!(limiter.check(&Asked(Mode::Monitor)).await.unwrap().is_allowed(), "never more than asked");
}

#[test]
fn each_rule_says_what_an_outage_means() {
    for (on_outage, allowed) in [(OnOutage::Allow, true), (OnOutage::Deny, false)] {
        let limiter: Limiter<String> = Limiter::builder_on(Away::store())
            .rule(Rule::new("lenient", |key: &String| Some(key.as_str().into())).quotas("1/h"))
            .rule(
                Rule::new("strict", |key: &String| Some(key.as_str().into()))
                    .quotas("1/h")
                    .on_outage(on_outage),
            )
            .build()
            .unwrap();
        let decision = limiter.check_now(&"key".to_owned()).unwrap();
        assert_eq!((decision.origin(), decision.is_allowed()), (Origin::Outage, allowed));
    }
}

#[test]
fn rules_that_cannot_be_used_are_named() {
    let build = |rules: Vec<Rule<Request>>| {
        let builder = rules.into_iter().fold(Limiter::builder(store().0), LimiterBuilder::rule);
        let error = builder.build().unwrap_err();
        format!("{error}: {}", error.source)
    };
    assert!(build(vec![per_user()]).contains("rule `per-user`: quota: got none; expected a quota"));
    assert!(
        build(vec![per_user().quotas("1000000001/s")]).contains("rule `per-user`: limit: got 1000000001")
    );
    assert!(build(vec![Rule::global("").quotas("1/s")]).contains("name: got ``"));
    let twice = vec![per_user().quotas("1/s"), per_user().quotas("2/s")];
    assert!(build(twice).contains("got a second quota named per-user"));
    let tier = vec![per_user().quotas("{rpm=1}"), Rule::global("per-user.rpm").quotas("1/s")];
    assert!(build(tier).contains("got a second quota named per-user.rpm"));
    let many = (0..=64).map(|n| Rule::global(format!("rule-{n}")).quotas("1/s")).collect();
    assert!(build(many).contains("at most 64 quotas in all rules"));
    assert!(build(vec![per_user().quotas("1/s").quotas("2/s")]).contains("add others with `also`"));
}

#[test]
fn keys_from_requests_are_bounded() {
    let limiter: Limiter<String> = Limiter::builder(store().0)
        .rule(Rule::new("any", |key: &String| Some(key.as_str().into())).quotas("1/s"))
        .build()
        .unwrap();
    for key in [String::new(), "x".repeat(1 << 20)] {
        let error = limiter.check_now(&key).unwrap_err().to_string();
        assert!(error.contains("expected 1 to 1024 bytes"), "{error}");
    }
}

#[test]
fn a_rule_can_have_quotas_of_different_kinds() {
    let rule = per_user().quotas("10/s burst 20").also("monthly", "30 per calendar month");
    let limiter = Limiter::builder(store().0).rule(rule).build().unwrap();
    let decision = limiter.check_now(&ANN).unwrap();
    let left: Vec<_> = decision.verdicts().iter().map(|v| (v.name().as_str(), v.remaining())).collect();
    assert_eq!(left, [("per-user", 19), ("per-user.monthly", 29)]);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_place_ends_when_a_holder_comes_back() {
    let limiter = Arc::new(paused_limiter("1/1h concurrency"));
    let holder = limiter.check(&ANN).await.unwrap();
    let other = Arc::clone(&limiter);
    // Three seconds of the paused runtime's time, which take none.
    let release = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        other.refund(&ANN, &holder, 1).await.unwrap();
    });
    let start = tokio::time::Instant::now();
    assert!(limiter.until_allowed(&ANN, Duration::from_secs(10)).await.unwrap().is_allowed());
    assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&start.elapsed()));
    release.await.unwrap();
    assert!(!limiter.until_allowed(&ANN, Duration::from_secs(1)).await.unwrap().is_allowed());
}

#[tokio::test]
async fn an_estimate_of_nothing_is_refused() {
    let limiter = Limiter::builder(store().0).rule(per_user().quotas("5/h")).build().unwrap();
    let error = limiter.reserve(&ANN, 0, "id", Duration::from_secs(1)).await.unwrap_err();
    assert!(error.to_string().contains("at least 1"), "{error}");
}
