//! Ids and reservations over several servers.

use std::time::Duration;

use ratekeeper::{Charges, Check, Decision, Origin, Reservation, Settled, Store, StoreError};
use ratekeeper_testkit::servers::Server;

use super::rig::Rig;
use crate::setup::{charge, keys, quota, together, until};

const KEEP: Duration = Duration::from_secs(600);

async fn once(rig: &Rig, charges: &Charges<'_>, id: &str) -> Result<Decision, StoreError> {
    let under = Reservation::once(id, KEEP).unwrap();
    rig.store.reserve(&charges.check().unwrap(), &under).await
}

fn two(rig: &Rig, rule: &str, limit: &str) -> Charges<'static> {
    together(&[charge(rule, rig.on(0, 0), quota(limit)), charge(rule, rig.on(1, 0), quota(limit))])
}

async fn left(rig: &Rig, charges: &Charges<'_>) -> Vec<u32> {
    let mut left = Vec::new();
    for charge in charges.check().unwrap().charges() {
        left.push(rig.left(charge).await);
    }
    left
}

fn records(servers: &[Server]) -> usize {
    servers.iter().flat_map(keys).filter(|key| key.contains("rk:i:") || key.contains("rk:n:")).count()
}

#[tokio::test]
async fn a_request_over_servers_is_charged_once_under_an_id() {
    let rig = Rig::new().await;
    let charges = two(&rig, "once", "5/h");
    let first = once(&rig, &charges, "order-1").await.unwrap();
    assert_eq!((first.is_allowed(), first.origin()), (true, Origin::Store));
    for _ in 0..3 {
        let again = once(&rig, &charges, "order-1").await.unwrap();
        assert_eq!(again.origin(), Origin::Repeat);
        assert_eq!((again.verdicts(), again.at()), (first.verdicts(), first.at()));
    }
    assert_eq!(left(&rig, &charges).await, [4, 4]);
    let peek = charges.check().unwrap().peek();
    let under = Reservation::once("order-1", KEEP).unwrap();
    assert_eq!(rig.store.reserve(&peek, &under).await.unwrap().origin(), Origin::Repeat);
    // For other counters it is another request, wherever these are.
    for server in 0..3 {
        let other = together(&[charge("other", rig.on(server, 2), quota("5/h"))]);
        let error = once(&rig, &other, "order-1").await.unwrap_err().into_input().unwrap().to_string();
        assert!(error.contains("id `order-1` for another check"), "{error}");
        assert_eq!(left(&rig, &other).await, [5]);
    }
}

#[tokio::test]
async fn a_denial_frees_the_id_and_what_it_took() {
    let rig = Rig::new().await;
    let full = charge("full", rig.on(1, 0), quota("1/h fixed_window"));
    assert!(rig.ask(&[full]).await.unwrap().is_allowed());
    let room = charge("room", rig.on(0, 0), quota("5/h"));
    for hold in [false, true] {
        let under = if hold { Reservation::hold("id", KEEP) } else { Reservation::once("id", KEEP) }.unwrap();
        let charges = together(&[room, full]);
        let denied = rig.store.reserve(&charges.check().unwrap(), &under).await.unwrap();
        assert!(!denied.is_allowed());
        assert_eq!((rig.left(&room).await, records(&rig.servers)), (5, 0), "{hold}");
        assert_eq!(rig.store.settle(b"id", None).await.unwrap(), Settled::Unknown);
    }
    // So the same id is good for another request.
    let other = together(&[charge("other", rig.on(2, 0), quota("5/h"))]);
    assert!(once(&rig, &other, "id").await.unwrap().is_allowed());
    assert_eq!(rig.counts()[1..], [2, 0]);
}

#[tokio::test]
async fn a_retry_charges_only_what_is_missing() {
    let mut rig = Rig::new().await;
    let charges = two(&rig, "missing", "100/h");
    rig.servers[1].kill();
    // Ids that are on the server that is away fail whole; the others charge what they reach.
    let mut failed = None;
    for number in 0..100 {
        let name = format!("late-{number}");
        let before = left_of_first(&rig, &charges).await;
        assert!(once(&rig, &charges, &name).await.is_err());
        if left_of_first(&rig, &charges).await < before {
            failed = Some(name);
            break;
        }
    }
    let (id, taken) = (failed.unwrap(), left_of_first(&rig, &charges).await);
    rig.servers[1].restart();
    let there = charges.check().unwrap().charges()[1];
    until("the server back", async || rig.store.check(&Check::one(&there).peek()).await.is_ok()).await;
    let completed = once(&rig, &charges, &id).await.unwrap();
    assert!(completed.is_allowed());
    assert_eq!(left(&rig, &charges).await, [taken, 99], "the first was charged before");
    assert_eq!(once(&rig, &charges, &id).await.unwrap().origin(), Origin::Repeat);
}

async fn left_of_first(rig: &Rig, charges: &Charges<'_>) -> u32 {
    let check = charges.check().unwrap();
    rig.store.check(&Check::one(&check.charges()[0]).peek()).await.unwrap().verdicts()[0].remaining()
}

#[tokio::test]
async fn a_reservation_over_servers_is_settled_in_each() {
    let rig = Rig::new().await;
    let held = |rule: &'static str| {
        let of = |server: usize| charge(rule, rig.on(server, 0), quota("9/h")).cost(4).unwrap();
        together(&[of(0), of(1), of(2)])
    };
    let hold = |id: &'static str| Reservation::hold(id, KEEP).unwrap();
    for (id, rule, actual, expected) in
        [("less", "less", Some(1), 8), ("more", "more", Some(6), 3), ("none", "none", None, 9)]
    {
        let charges = held(rule);
        let check = charges.check().unwrap();
        assert!(rig.store.reserve(&check, &hold(id)).await.unwrap().is_allowed());
        assert_eq!(left(&rig, &charges).await, [5; 3]);
        assert_eq!(rig.store.settle(id.as_bytes(), actual).await.unwrap(), Settled::Done);
        assert_eq!(left(&rig, &charges).await, [expected; 3], "{id}");
        assert_eq!(rig.store.settle(id.as_bytes(), actual).await.unwrap(), Settled::Already);
    }
    assert_eq!(rig.store.settle(b"nobody's", None).await.unwrap(), Settled::Unknown);
}
