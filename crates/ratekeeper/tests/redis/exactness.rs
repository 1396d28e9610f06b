//! Many callers at once on several connections: what a limit lets pass is exactly
//! the limit, and a check that one charge denies leaves no trace in the others.

use std::sync::Arc;

use futures_util::future::join_all;
use ratekeeper::{Charges, Check, Quota, RedisStore, Store};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::fresh_prefix;
use crate::setup::{FIVES, charge, left, quota, store, tiers, together};

const CALLERS: usize = 1_000;
const STORES: usize = 4;
const LIMIT: usize = 5;
/// Quotas that have room for everybody; what comes back in an hour is less than one.
const AMPLE: [&str; 6] = [
    "2000/366d fixed_window",
    "2000/366d sliding_window",
    "2000/366d sliding_log",
    "2000/366d",
    "2000/366d leaky_bucket queue 1999",
    "2000/h concurrency",
];

async fn stores(server: &Server, prefix: &str) -> Vec<RedisStore> {
    join_all((0..STORES).map(|_| store(server, prefix))).await
}

/// How many of many callers at once are let in.
async fn admitted(stores: &[RedisStore], charges: Charges<'static>) -> usize {
    let charges = Arc::new(charges);
    let callers = (0..CALLERS).map(|caller| {
        let (store, charges) = (stores[caller % STORES].clone(), Arc::clone(&charges));
        tokio::spawn(async move { store.check(&charges.check().unwrap()).await.unwrap().is_allowed() })
    });
    join_all(callers).await.into_iter().filter(|admitted| *admitted.as_ref().unwrap()).count()
}

async fn a_limit_is_exact_on(flavour: Flavour) {
    let server = Server::start(flavour);
    let stores = stores(&server, &fresh_prefix()).await;
    for (index, text) in FIVES.into_iter().enumerate() {
        let charges = tiers(&format!("alone{index}"), &[quota(text)]);
        assert_eq!(admitted(&stores, together(&charges)).await, LIMIT, "{text} on {flavour}");
        assert_eq!(left(&stores[0], &charges[0]).await, 0, "{text} on {flavour}");
    }
}

/// One tight quota among five with room, at every place in the check in turn.
async fn a_denial_leaves_no_trace_on(flavour: Flavour) {
    let server = Server::start(flavour);
    let stores = stores(&server, &fresh_prefix()).await;
    for tight in 0..FIVES.len() {
        let text = |index: usize| if index == tight { FIVES[index] } else { AMPLE[index] };
        let quotas: Vec<&Quota> = (0..FIVES.len()).map(|index| quota(text(index))).collect();
        let charges = tiers(&format!("mixed{tight}"), &quotas);
        let mut before = Vec::new();
        for charge in &charges {
            before.push(left(&stores[0], charge).await);
        }
        assert_eq!(admitted(&stores, together(&charges)).await, LIMIT, "{} on {flavour}", text(tight));
        for (charge, before) in charges.iter().zip(before) {
            let used = before - left(&stores[1], charge).await;
            assert_eq!(used as usize, LIMIT, "{} beside {} on {flavour}", charge.quota(), text(tight));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_exact() {
    for flavour in Flavour::ALL {
        a_limit_is_exact_on(flavour).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_leaves_no_trace() {
    for flavour in Flavour::ALL {
        a_denial_leaves_no_trace_on(flavour).await;
    }
}

#[tokio::test]
async fn a_batch_is_decided_in_its_order() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, &fresh_prefix()).await;
    for text in FIVES {
        let own = charge("q", "s", quota(text));
        let check = Check::one(&own);
        let batches = store.health().batches;
        let (first, reset, last) = tokio::join!(
            join_all((0..4).map(|_| store.check(&check))),
            store.reset(own.key(), own.quota().algorithm()),
            join_all((0..4).map(|_| store.check(&check))),
        );
        assert!(store.health().batches - batches < 9, "they travel together");
        assert!(reset.unwrap(), "{text}: there was a counter");
        for decision in first.iter().chain(&last) {
            assert!(decision.as_ref().unwrap().is_allowed(), "{text}");
        }
        assert_eq!(left(&store, &own).await, 1, "{text}");
    }
}
