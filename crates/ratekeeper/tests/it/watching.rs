//! Rules that only watch while the store is away, and ids under rules that change.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{
    Charge, Check, Decision, Key, Limiter, MemoryStore, Mode, Name, OnOutage, Origin, Quota, Reservation,
    Rule, Store,
};

use crate::away::Away;

/// Whom a rule may deny.
type May = Mode;

fn per_key(name: &str) -> Rule<May> {
    Rule::new(name, |_: &May| Some("all".into())).quotas("5/min")
}

async fn decided(store: &Arc<dyn Store>, rules: Vec<Rule<May>>, may: May) -> Decision {
    let builder =
        rules.into_iter().fold(Limiter::builder_on(Arc::clone(store)), ratekeeper::LimiterBuilder::rule);
    let decision = builder.build().unwrap().check(&may).await.unwrap();
    assert_eq!(decision.origin(), Origin::Outage);
    decision
}

#[tokio::test]
async fn whoever_only_watches_denies_nobody_in_an_outage() {
    let store = Away::store();
    let strict = |name| per_key(name).on_outage(OnOutage::Deny);
    let follows = |name| strict(name).mode_of(|may: &May| *may);

    let denied = decided(&store, vec![strict("a")], Mode::On).await;
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after().duration(), Some(Duration::from_secs(1)), "not at once");
    assert!(decided(&store, vec![strict("a").shadow()], Mode::On).await.is_allowed());
    assert!(decided(&store, vec![follows("a")], Mode::Monitor).await.is_allowed());
    assert!(!decided(&store, vec![follows("a")], Mode::On).await.is_allowed());
    let both = || vec![strict("a").shadow(), per_key("b").on_outage(OnOutage::Local)];
    assert_eq!(decided(&store, both(), Mode::On).await.verdicts().len(), 1, "the other decides here");
    let watched = || vec![per_key("b").on_outage(OnOutage::Local).shadow()];
    assert_eq!(decided(&store, watched(), Mode::On).await.verdicts().len(), 1, "it goes on watching");

    store.control().set_switch("a", "mode=monitor".parse().unwrap()).await.unwrap();
    assert!(decided(&store, vec![strict("a")], Mode::On).await.is_allowed());
    store.control().set_switch("a", "enforce=0".parse().unwrap()).await.unwrap();
    assert!(decided(&store, vec![strict("a")], Mode::On).await.is_allowed(), "outside of the ramp");
}

#[tokio::test]
async fn an_id_stands_for_its_request_also_when_limits_have_changed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let limiter = |quotas: &str| -> Limiter<str> {
        let rule = Rule::new("per-user", |user: &str| Some(user.into())).quotas(quotas);
        Limiter::builder_on(Arc::clone(&store)).rule(rule).build().unwrap()
    };
    let (before, after, hold) =
        (limiter("5/min fixed_window"), limiter("6/min fixed_window"), Duration::from_secs(60));
    let first = before.reserve("ann", 2, "order-1", hold).await.unwrap();
    let again = after.reserve("ann", 2, "order-1", hold).await.unwrap();
    assert_eq!(again.origin(), Origin::Repeat);
    assert_eq!(again.verdicts(), first.verdicts(), "what was decided then");
    assert_eq!(after.peek("ann").await.unwrap().verdicts()[0].remaining(), 4, "charged once");

    let error = after.reserve("ann", 3, "order-1", hold).await.unwrap_err().to_string();
    assert!(error.contains("got id `order-1` for another check"), "{error}");
    assert!(after.reserve("bob", 2, "order-1", hold).await.is_err());
    let error = before.reserve("ann", 1, r#"say "ah""#, hold).await.map(|_| ());
    assert!(error.is_ok());
    let error = before.reserve("bob", 1, r#"say "ah""#, hold).await.unwrap_err().to_string();
    assert!(error.contains(r#"`say "ah"`"#), "as it was said: {error}");
}

/// Whoever says the limit itself says something else with another one.
#[tokio::test]
async fn a_quota_that_the_caller_names_is_part_of_what_it_says() {
    let store = MemoryStore::new();
    let once = Reservation::once("order-2", Duration::from_secs(60)).unwrap();
    let key = Key::new(Name::new("named").unwrap(), "ann").unwrap();
    let (five, six): (Quota, Quota) = ("5/min".parse().unwrap(), "6/min".parse().unwrap());
    assert!(store.reserve(&Check::one(&Charge::new(key, &five)), &once).await.is_ok());
    assert!(store.reserve(&Check::one(&Charge::new(key, &six)), &once).await.is_err());
}
