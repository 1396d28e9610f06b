//! The store for tests of programs: it fails as a store on a server does, and answers again.

use std::time::Duration;

use ratekeeper::store::CounterClaim;
use ratekeeper::testing::{Failure, START, TestStore};
use ratekeeper::{Limiter, OnOutage, Origin, Rule, Store as _, StoreErrorKind};

fn limiter(store: &TestStore, on_outage: OnOutage) -> Limiter<str> {
    let rule = Rule::new("per-user", |user: &str| Some(user.into()));
    Limiter::builder(store.clone())
        .rule(rule.quotas("3/min fixed_window").on_outage(on_outage))
        .build()
        .unwrap()
}

#[test]
fn every_failure_is_the_rules_to_decide_and_charges_nothing() {
    for (failure, kind) in [
        (Failure::Outage, StoreErrorKind::Unavailable),
        (Failure::Slow, StoreErrorKind::Timeout),
        (Failure::Overload, StoreErrorKind::Overloaded),
        (Failure::Full, StoreErrorKind::Capacity),
        (Failure::ReadOnly, StoreErrorKind::ReadOnly),
    ] {
        for (on_outage, passes) in [(OnOutage::Allow, true), (OnOutage::Deny, false)] {
            let store = TestStore::new();
            let limiter = limiter(&store, on_outage);
            assert!(limiter.check_now("ann").unwrap().is_allowed());
            store.fail(failure);
            assert_eq!(store.failure(), Some(failure));
            assert_eq!(store.shared_secret().now().unwrap().unwrap_err().kind(), kind);
            for _ in 0..5 {
                let decision = limiter.check_now("ann").unwrap();
                assert_eq!(
                    (decision.is_allowed(), decision.origin()),
                    (passes, Origin::Outage),
                    "{failure:?}"
                );
            }
            store.recover();
            assert_eq!(store.failure(), None);
            let left = limiter.check_now("ann").unwrap();
            assert_eq!((left.is_allowed(), left.origin()), (true, Origin::Store), "{failure:?}");
            assert_eq!(left.verdicts()[0].remaining(), 1, "what was charged before, and no more");
        }
    }
}

#[test]
fn time_goes_by_its_clock_alone() {
    let store = TestStore::default();
    let limiter = limiter(&store, OnOutage::Allow);
    assert_eq!(store.now(), START);
    let asked = |times: usize| (0..times).filter(|_| limiter.check_now("ann").unwrap().is_allowed()).count();
    assert_eq!(asked(5), 3);
    store.clock().advance(Duration::from_secs(59));
    assert_eq!(asked(5), 0);
    store.clock().advance(Duration::from_secs(1));
    assert_eq!(asked(5), 3);
}

/// What a program would be refused on its real store, its tests refuse, too.
#[test]
fn limits_that_share_a_counter_with_other_numbers_are_refused() {
    let store = TestStore::new();
    let claims = store.counter_claims().expect("it knows who uses which counters");
    let claim = |quota: &str| CounterClaim::new(Some("/x"), "", quota.parse().unwrap());
    let _first = claims.claim(claim("10/s fixed_window")).unwrap();
    let error = claims.claim(claim("20/s fixed_window")).unwrap_err().to_string();
    assert!(error.contains("20/s") && error.contains("10/s"), "{error}");
}
