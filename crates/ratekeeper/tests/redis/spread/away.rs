//! A server that is down or hangs, and what becomes of checks with counters there.

use std::time::Duration;

use ratekeeper::{BreakerPolicy, Check, Limiter, OnOutage, Origin, Rule, SpreadStore, Store, StoreErrorKind};

use super::rig::{Rig, SERVERS};
use crate::setup::{charge, quota, until};

/// Two rules, each on the subject that stands in its half of the request.
fn limiter(store: &SpreadStore, here: OnOutage, there: OnOutage) -> Limiter<(String, String)> {
    let one = Rule::new("here", |request: &(String, String)| Some(request.0.as_str().into()));
    let two = Rule::new("there", |request: &(String, String)| Some(request.1.as_str().into()));
    let rules = [one.quotas("5/h").on_outage(here), two.quotas("5/h").on_outage(there)];
    rules.into_iter().fold(Limiter::builder(store.clone()), ratekeeper::LimiterBuilder::rule).build().unwrap()
}

fn request(rig: &Rig, number: usize) -> (String, String) {
    (rig.on(0, number).to_owned(), rig.on(1, number).to_owned())
}

async fn left_here(rig: &Rig, number: usize) -> u32 {
    rig.left(&charge("here", rig.on(0, number), quota("5/h"))).await
}

async fn a_part_that_is_away_is_decided_by_its_rules(rig: &Rig) {
    let store = &rig.store;
    // Its rule lets pass: the answer of the other stands, and is charged.
    let decision = limiter(store, OnOutage::Deny, OnOutage::Allow).check(&request(rig, 0)).await.unwrap();
    assert!(decision.is_allowed());
    assert_eq!((decision.origin(), decision.verdicts().len()), (Origin::Store, 1));
    assert_eq!(left_here(rig, 0).await, 4);
    // It counts for itself.
    let local = limiter(store, OnOutage::Deny, OnOutage::Local);
    for round in 1..=5 {
        let decision = local.check(&request(rig, 1)).await.unwrap();
        assert!(decision.is_allowed(), "{round}: {decision}");
        assert_eq!((decision.verdicts().len(), left_here(rig, 1).await), (2, 5 - round));
    }
    assert_eq!(local.outages().local, 5);
    // It denies: what the other has charged is given back.
    let before = rig.counts();
    let decision = limiter(store, OnOutage::Allow, OnOutage::Deny).check(&request(rig, 2)).await.unwrap();
    assert!(!decision.is_allowed());
    assert_eq!(decision.origin(), Origin::Outage);
    assert_eq!(left_here(rig, 2).await, 5);
    assert_eq!(rig.counts()[1], before[1] + 1, "{:?}", rig.counts());
    // To a caller that decides itself it is an error, and charges nothing.
    let both = limiter(store, OnOutage::Allow, OnOutage::Allow);
    let two = request(rig, 3);
    let error = both.demand(&two).strict().check().await.unwrap_err();
    assert_ne!(error.kind(), StoreErrorKind::Input);
    assert_eq!(left_here(rig, 3).await, 5);
    // Where the other part denies, that is the answer.
    for _ in 0..5 {
        assert!(rig.ask(&[charge("here", rig.on(0, 4), quota("5/h"))]).await.unwrap().is_allowed());
    }
    let decision = both.check(&request(rig, 4)).await.unwrap();
    assert!(!decision.is_allowed());
    assert_eq!(decision.origin(), Origin::Store);
    // Keys elsewhere are decided as ever.
    let elsewhere = [charge("here", rig.on(0, 5), quota("5/h")), charge("here", rig.on(2, 5), quota("5/h"))];
    assert!(rig.ask(&elsewhere).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_server_that_is_down_affects_its_keys_alone() {
    let mut rig = Rig::new().await;
    rig.servers[1].kill();
    let gone = charge("gone", rig.on(1, 0), quota("5/h"));
    until("the server noticed as down", async || rig.store.check(&Check::one(&gone)).await.is_err()).await;
    let error = rig.store.ping().await.unwrap_err().to_string();
    assert!(error.starts_with(&rig.servers[1].url()), "{error}");
    a_part_that_is_away_is_decided_by_its_rules(&rig).await;
    let places = rig.store.places();
    assert_eq!(places.len(), SERVERS);
    let mut taking = Vec::new();
    for (name, store) in places {
        taking.push((name == rig.servers[1].url(), store.check(&Check::one(&gone)).await.is_err()));
    }
    assert_eq!(taking, [(false, false), (true, true), (false, false)]);
    rig.servers[1].restart();
    until("the server back", async || rig.store.check(&Check::one(&gone)).await.is_ok()).await;
}

#[tokio::test]
async fn a_server_that_hangs_affects_its_keys_alone() {
    // Two calls wait for the server that hangs. A busy machine may need all of it for an answer of the others.
    let (deadline, breaker) =
        (Duration::from_secs(4), BreakerPolicy { consecutive: 2, ..BreakerPolicy::default() });
    let rig = Rig::with(|builder| builder.deadline(deadline).total(deadline * 4).breaker(breaker)).await;
    rig.servers[1].pause();
    a_part_that_is_away_is_decided_by_its_rules(&rig).await;
    rig.servers[1].resume();
    let back = charge("back", rig.on(1, 0), quota("5/h"));
    until("the server back", async || rig.store.check(&Check::one(&back)).await.is_ok()).await;
}
