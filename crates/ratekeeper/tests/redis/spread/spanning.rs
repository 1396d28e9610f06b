//! Checks whose counters are on several servers, one after the other.

use std::time::Duration;

use ratekeeper::{Charge, Check, Enforcement, Origin, Store, Verdict};
use ratekeeper_testkit::penal::PenalRule;

use super::rig::{Rig, SERVERS};
use crate::setup::{FIVES, charge, quota, together};

#[tokio::test]
async fn a_check_over_all_servers_is_charged_on_each_and_told_in_its_order() {
    let rig = Rig::new().await;
    let quotas = [quota("5/h"), quota("7/h fixed_window"), quota("9/h sliding_log")];
    let charges: Vec<Charge<'_>> = (0..SERVERS)
        .map(|server| charge(&format!("all{server}"), rig.on(2 - server, 0), quotas[server]))
        .collect();
    for round in 1..=2 {
        let decision = rig.ask(&charges).await.unwrap();
        assert!(decision.is_allowed());
        let left: Vec<u32> = decision.verdicts().iter().map(Verdict::remaining).collect();
        assert_eq!(left, [5 - round, 7 - round, 9 - round]);
        let names: Vec<&str> = decision.verdicts().iter().map(|verdict| verdict.name().label()).collect();
        assert_eq!(names, ["all0", "all1", "all2"]);
    }
    assert_eq!(rig.counts(), [2, 0, 0]);
    // Two on one server are no spanning check.
    let here = [charge("one", rig.on(0, 0), quotas[0]), charge("two", rig.on(0, 1), quotas[1])];
    assert!(rig.ask(&here).await.unwrap().is_allowed());
    assert_eq!(rig.counts(), [2, 0, 0]);
}

#[tokio::test]
async fn a_denial_of_one_part_leaves_the_others_as_they_were() {
    let rig = Rig::new().await;
    let full = quota("1/h fixed_window");
    for (number, text) in FIVES.into_iter().enumerate() {
        let (own, other) = (format!("own{number}"), format!("full{number}"));
        let own = charge(&own, rig.on(0, 0), quota(text));
        let other = charge(&other, rig.on(1, 0), full);
        assert!(rig.ask(&[own, other]).await.unwrap().is_allowed(), "{text}");
        let before = rig.store.check(&Check::one(&own).peek()).await.unwrap();
        let denied = rig.ask(&[own, other]).await.unwrap();
        assert!(!denied.is_allowed(), "{text}");
        let [here, there] = denied.verdicts() else { panic!("{denied:?}") };
        assert_eq!((here.remaining(), there.remaining()), (4, 0), "{text}: {denied:?}");
        assert!(here.is_admitted() && there.is_denied() && here.receipt().is_none());
        assert_eq!(denied.retry_after(), there.retry_after());
        let wait = denied.retry_after().as_micros().unwrap();
        assert!(wait <= Duration::from_secs(3_600).as_micros() as u64);
        let after = rig.store.check(&Check::one(&own).peek()).await.unwrap();
        assert_eq!(after.verdicts()[0].remaining(), before.verdicts()[0].remaining(), "{text}");
    }
    assert_eq!(rig.counts(), [12, 6, 0]);
}

#[tokio::test]
async fn the_longest_wait_of_all_parts_is_told() {
    let rig = Rig::new().await;
    let (short, long) = (quota("1/min fixed_window"), quota("1/d fixed_window"));
    let charges = [charge("short", rig.on(0, 0), short), charge("long", rig.on(2, 0), long)];
    assert!(rig.ask(&charges).await.unwrap().is_allowed());
    let denied = rig.ask(&charges).await.unwrap();
    assert!(denied.retry_after().as_micros().unwrap() > 3_600_000_000, "{denied}");
    assert!(denied.verdicts().iter().all(Verdict::is_denied));
    assert_eq!(rig.counts(), [2, 0, 0], "nothing was charged");
}

#[tokio::test]
async fn a_charge_that_only_watches_never_denies_and_is_not_charged_by_a_denial() {
    let rig = Rig::new().await;
    let (one, five) = (quota("1/h fixed_window"), quota("5/h fixed_window"));
    let watched = charge("watched", rig.on(0, 0), one).enforcement(Enforcement::Shadow);
    let enforced = charge("enforced", rig.on(1, 0), five);
    assert!(rig.ask(&[watched, enforced]).await.unwrap().is_allowed());
    let over = rig.ask(&[watched, enforced]).await.unwrap();
    assert!(over.is_allowed() && over.is_over_limit());
    // Denied elsewhere, what watches is given back, too.
    let other = charge("other", rig.on(2, 0), five).enforcement(Enforcement::Shadow);
    let full = charge("watched", rig.on(0, 0), one);
    let denied = rig.ask(&[full, other]).await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(rig.left(&other).await, 5);
    assert_eq!(rig.left(&enforced).await, 3);
}

#[tokio::test]
async fn a_peek_over_servers_changes_nothing() {
    let rig = Rig::new().await;
    let five = quota("5/h");
    let charges = [charge("peeked", rig.on(0, 0), five), charge("peeked", rig.on(1, 0), five)];
    let charges = together(&charges);
    for _ in 0..3 {
        let seen = rig.store.check(&charges.check().unwrap().peek()).await.unwrap();
        assert_eq!(seen.verdicts().iter().map(Verdict::remaining).collect::<Vec<_>>(), [5, 5]);
    }
    assert_eq!(rig.counts(), [0, 0, 0]);
}

#[tokio::test]
async fn a_refund_goes_to_every_part_and_never_gives_more_than_was_charged() {
    let rig = Rig::new().await;
    let five = quota("5/h");
    let charges = [charge("back", rig.on(0, 0), five), charge("back", rig.on(1, 0), five).cost(3).unwrap()];
    let charges = together(&charges);
    let check = charges.check().unwrap();
    let decision = rig.store.check(&check).await.unwrap();
    assert_eq!(decision.origin(), Origin::Store);
    for expected in [3, 1, 0] {
        assert_eq!(rig.store.refund(&check, &decision, 2).await.unwrap(), expected);
    }
    for charge in check.charges() {
        assert_eq!(rig.left(charge).await, 5);
    }
    assert_eq!(rig.counts(), [1, 0, 0], "it is no refund after a denial");
}

/// What the code of a program does not say of its keys, the store notices.
#[tokio::test]
async fn a_counter_without_its_organisation_in_the_key_is_refused_where_it_follows_overrides() {
    let rig = Rig::new().await;
    let scope = ratekeeper::OverrideScope::organisation("/search", "acme").unwrap();
    let apart = charge("per-address", "10.0.0.7", quota("5/h")).overridable(scope);
    let error = rig.ask(&[apart]).await.unwrap_err();
    assert_eq!(error.kind(), ratekeeper::StoreErrorKind::Input);
    let error = error.into_input().unwrap().to_string();
    assert!(error.contains("per-address, which follows overrides"), "{error}");
    let within = charge("per-user", "acme:ann", quota("5/h")).overridable(scope);
    assert!(rig.ask(&[within, charge("other", rig.on(0, 0), quota("5/h"))]).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_strike_belongs_to_the_part_of_its_rule() {
    let rig = Rig::new().await;
    let rule = PenalRule::new("penal", "2/1h fixed_window", &["1/1h fixed_window"], None);
    let ask = async |subject: &'static str, other: Charge<'static>| {
        let penalties = [rule.penalty(subject, 0..1)];
        let charges = together(&[charge("penal", subject, quota("1/h fixed_window")), other]);
        rig.store.check(&charges.check().unwrap().with_penalties(&penalties).unwrap()).await.unwrap()
    };
    let beside = charge("beside", rig.on(1, 0), quota("9/h"));
    assert!(ask(rig.on(0, 0), beside).await.is_allowed());
    let struck = ask(rig.on(0, 0), beside).await;
    assert!(!struck.is_allowed() && struck.tipped().is_empty(), "{struck:?}");
    let tipped = ask(rig.on(0, 0), beside).await;
    assert_eq!(tipped.tipped(), [rule.counters[0].0], "{tipped:?}");
    let shut = ask(rig.on(0, 0), beside).await;
    let names: Vec<&str> = shut.verdicts().iter().map(|verdict| verdict.name().label()).collect();
    assert_eq!(names, ["penal", "beside", rule.counters[0].0.label()]);
    assert_eq!(rig.left(&beside).await, 8, "denials charge nothing");
    // Another part denies: that is no strike here.
    let full = charge("full", rig.on(1, 1), quota("1/h fixed_window"));
    assert!(rig.ask(&[full]).await.unwrap().is_allowed());
    for _ in 0..4 {
        assert!(!ask(rig.on(0, 1), full).await.is_allowed());
    }
    assert!(ask(rig.on(0, 1), beside).await.is_allowed(), "nothing was charged, and no gate is shut");
}
