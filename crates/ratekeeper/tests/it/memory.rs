//! The memory store against the tables and the model; its bound.

use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::{Config, TestRunner};
use ratekeeper::{
    Algorithm, Charge, Charges, Check, Emergency, Key, ManualClock, MemoryStore, Name, Override,
    OverrideScope, Overrides, Quota, Store, Timestamp,
};
use ratekeeper_testkit::{history, vectors};

use crate::engine::StoreEngine;

#[test]
fn it_follows_the_tables() {
    let steps = vectors::run_all_of_stores(StoreEngine::memory);
    assert!(steps >= 200, "{steps} steps");
}

#[test]
fn it_agrees_with_the_model_over_random_histories() {
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let result = runner.run(&history::histories(120), |history| {
        history::run(&mut StoreEngine::memory(), &history).map_err(proptest::test_runner::TestCaseError::fail)
    });
    if let Err(difference) = result {
        panic!("{difference}");
    }
}

fn store(max_keys: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    (MemoryStore::with_clock(max_keys, Arc::new(clock.clone())), clock)
}

fn allowed(store: &MemoryStore, name: &str, subject: &str, quota: &Quota) -> bool {
    let key = Key::new(Name::new(name).unwrap(), subject).unwrap();
    store.decide(&Check::one(&Charge::new(key, quota))).unwrap().is_allowed()
}

#[test]
fn memory_stays_bounded_while_keys_come_and_go() {
    let (store, clock) = store(1_000_000);
    let quota: Quota = "10/s".parse().unwrap();
    for n in 0..300_000 {
        allowed(&store, "api", &format!("visitor-{n}"), &quota);
        clock.advance(Duration::from_millis(1));
    }
    assert!(store.len() < 20_000, "{} counters for 100 live ones", store.len());
    assert_eq!(store.evicted(), 0);
}

#[test]
fn overrides_are_managed_per_project_and_organisation() {
    let (store, clock) = store(1_000);
    let project = OverrideScope::project("/a", "1", "42").unwrap();
    let other = OverrideScope::project("/b:c", "1", "42").unwrap();
    let organisation = project.without_project();
    let with_reason = Override { reason: "ticket 7".into(), author: "ann".into(), ..Override::limit(5) };
    let brief =
        Override { expires_at: Some(store_now(&clock).after(Duration::from_secs(9))), ..Override::limit(6) };
    store.set(other, brief.clone()).now().unwrap().unwrap();
    store.set(project, with_reason.clone()).now().unwrap().unwrap();
    store.set(organisation, Override::limit(7)).now().unwrap().unwrap();

    let list = |project| store.list("1", project).now().unwrap().unwrap();
    assert_eq!(store.get(project).now().unwrap().unwrap(), Some(with_reason.clone()));
    assert_eq!(list(Some("42")), [("/a".to_owned(), with_reason), ("/b:c".to_owned(), brief)]);
    assert_eq!(list(None), [("/a".to_owned(), Override::limit(7))]);
    assert_eq!(list(Some("43")), []);

    clock.advance(Duration::from_secs(9));
    assert_eq!(list(Some("42")).len(), 1, "the brief one is gone");
    assert_eq!(store.get(other).now().unwrap().unwrap(), None);
    assert!(!store.delete(other).now().unwrap().unwrap());
    assert!(store.delete(project).now().unwrap().unwrap());
    assert!(!store.delete(project).now().unwrap().unwrap());
    assert_eq!(store.clear("1", None).now().unwrap().unwrap(), 1);
    assert_eq!(store.clear("1", None).now().unwrap().unwrap(), 0);
}

fn store_now(clock: &ManualClock) -> Timestamp {
    ratekeeper::Clock::now(clock)
}

#[test]
fn a_full_store_still_denies_what_a_counter_in_it_denies() {
    let (store, _) = store(1);
    let quota: Quota = "1/h".parse().unwrap();
    let (user, address) = (Name::new("user").unwrap(), Name::new("address").unwrap());
    let subjects: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    assert!(allowed(&store, "user", "villain", &quota));
    for subject in &subjects {
        let mut charges = Charges::new();
        charges.push(Charge::new(Key::new(user, "villain").unwrap(), &quota)).unwrap();
        charges.push(Charge::new(Key::new(address, subject).unwrap(), &quota)).unwrap();
        let decision = store.decide(&charges.check().unwrap()).expect("the exhausted counter answers");
        assert!(!decision.is_allowed(), "made-up addresses lifted the limit on the user");
    }
}

#[test]
fn an_override_beyond_a_bound_fails_no_check() {
    let (store, _) = store(10_000);
    let log: Quota = "3/h sliding_log".parse().unwrap();
    let scope = OverrideScope::project("log", "1", "42").unwrap();
    let charge = Charge::new(Key::new(Name::new("log").unwrap(), "key").unwrap(), &log).overridable(scope);
    store.set(scope, Override::limit(20_000)).now().unwrap().unwrap();
    let decision = store.decide(&Check::one(&charge)).unwrap();
    assert_eq!(decision.verdicts()[0].quota().limit(), 10_000, "the most that a log can count");
}

#[test]
fn a_decision_about_something_else_refunds_nothing() {
    let (store, _) = store(10_000);
    let quota: Quota = "3/h fixed_window".parse().unwrap();
    let charge = |name: &str| Charge::new(Key::new(Name::new(name).unwrap(), "key").unwrap(), &quota);
    // Windows of one instant, so that the receipt of one would do for the other.
    let (one, other) = (charge("one"), charge("other"));
    let decision = store.decide(&Check::one(&one)).unwrap();
    store.decide(&Check::one(&other)).unwrap();
    store.refund(&Check::one(&other), &decision, 1).now().unwrap().unwrap();
    let left = |charge| store.decide(&Check::one(charge).peek()).unwrap().verdicts()[0].remaining();
    assert_eq!((left(&one), left(&other)), (2, 2));
}

/// Denials are judged on copies of counters: none may outlive what it is a copy of.
#[test]
fn a_denial_is_judged_anew_when_its_counter_has_changed() {
    for quota in ["1/h", "1/h fixed_window", "1/h sliding_window", "1/h leaky_bucket"] {
        let ((store, clock), quota) = (store(1_000), quota.parse::<Quota>().unwrap());
        let name = Name::new("changing").unwrap();
        let charge = Charge::new(Key::new(name, "ann").unwrap(), &quota);
        let check = Check::one(&charge);
        let decide = || store.decide(&check).unwrap();
        let is_denied = || (0..3).all(|_| !decide().is_allowed());

        let admitted = decide();
        assert!(is_denied(), "{quota}");
        assert_eq!(store.refund(&check, &admitted, 1).now().unwrap().unwrap(), 1);
        assert!(decide().is_allowed(), "{quota}: it was given back");

        assert!(is_denied(), "{quota}");
        assert!(store.reset(charge.key(), quota.algorithm()).now().unwrap().unwrap());
        assert!(decide().is_allowed(), "{quota}: it was reset");

        assert!(is_denied(), "{quota}");
        let (before, wait) = (decide(), Duration::from_secs(60));
        clock.advance(wait);
        let after = decide().retry_after().duration().unwrap();
        assert_eq!(before.retry_after().duration().unwrap(), after + wait, "{quota}: the clock has moved");

        let lifted = charge.emergency(Emergency::Lift);
        assert!(store.decide(&Check::one(&lifted)).unwrap().is_allowed(), "{quota}: lifted");
        assert!(is_denied(), "{quota}: no longer lifted");

        // A bucket has the whole debt of the smaller quota.
        let more = quota.overridden(100, None);
        let charge = Charge::new(charge.key(), &more);
        let is_allowed = store.decide(&Check::one(&charge)).unwrap().is_allowed();
        // Nothing queues in a leaky bucket unless the quota says so.
        assert!(is_allowed || quota.algorithm() == Algorithm::LeakyBucket, "{quota}: a larger quota");
        clock.advance(Duration::from_secs(7_200));
        assert!(decide().is_allowed(), "{quota}: time has passed");

        assert!(is_denied(), "{quota}");
        clock.set(Timestamp::from_secs(1_600_000_000));
        let wait = decide().retry_after().duration().unwrap();
        assert!(wait <= Duration::from_secs(7_200), "{quota}: {wait:?} after a step of the clock");
    }
}

/// Whoever else is pushed out, what was denied is admitted once its counter is gone.
#[test]
fn a_denial_goes_with_its_counter() {
    let ((store, _), quota) = (store(1), "1/h".parse::<Quota>().unwrap());
    let everybody: Vec<String> = (0..1_000).map(|number| format!("user:{number}")).collect();
    let denied = |user: &str| (0..2).all(|_| !allowed(&store, "crowded", user, &quota));
    assert!(everybody.iter().all(|user| allowed(&store, "crowded", user, &quota) && denied(user)));
    let is_pushed_out =
        everybody[..100].iter().filter(|user| allowed(&store, "crowded", user, &quota)).count();
    assert!(is_pushed_out > 50, "{is_pushed_out} of 100 that went first are new again");
}
