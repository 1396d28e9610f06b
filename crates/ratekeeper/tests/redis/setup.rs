//! What the tests of the store have in common.

use std::time::{Duration, Instant};

use ratekeeper::{Charge, Charges, Check, Decision, Key, Name, Quota, RedisStore, Store, StoreError};
use ratekeeper_testkit::servers::Server;

use crate::engine::{PATIENCE, builder};

/// What operators are told, which is to be true.
pub(crate) const DOCS: &str = include_str!("../../../../docs/redis.md");

/// One quota of each algorithm that lets five units pass in the hour of a test.
pub(crate) const FIVES: [&str; 6] = [
    "5/h fixed_window",
    "5/h sliding_window",
    "5/h sliding_log",
    "5/h",
    "5/h leaky_bucket queue 4",
    "5/h concurrency",
];

/// A store that is connected: calls then go out in the order they were made.
pub(crate) async fn store(server: &Server, prefix: &str) -> RedisStore {
    let store = builder(&server.url()).prefix(prefix).build().unwrap();
    store.ping().await.unwrap();
    store
}

/// A quota for the rest of the process, so that a charge can go anywhere.
pub(crate) fn quota(text: &str) -> &'static Quota {
    Box::leak(Box::new(text.parse().unwrap()))
}

pub(crate) fn charge<'a>(
    name: &str,
    subject: &'a (impl AsRef<[u8]> + ?Sized),
    quota: &'a Quota,
) -> Charge<'a> {
    Charge::new(Key::new(Name::new(name).unwrap(), subject).unwrap(), quota)
}

/// Charges on the tiers of one rule: as far as they can be, they are packed into one value.
pub(crate) fn tiers(rule: &str, quotas: &[&'static Quota]) -> Vec<Charge<'static>> {
    let rule = Name::new(rule).unwrap();
    let tiers = quotas.iter().enumerate().map(|(index, quota)| {
        let name = Name::joined(rule, &format!("t{index}")).unwrap();
        Charge::new(Key::new(name, "s").unwrap(), quota)
    });
    tiers.collect()
}

pub(crate) fn together<'a>(charges: &[Charge<'a>]) -> Charges<'a> {
    let mut all = Charges::new();
    charges.iter().for_each(|charge| all.push(*charge).unwrap());
    all
}

pub(crate) async fn ask(store: &RedisStore, charge: &Charge<'_>) -> Result<Decision, StoreError> {
    store.check(&Check::one(charge)).await
}

pub(crate) async fn is_allowed(store: &RedisStore, charge: &Charge<'_>) -> bool {
    ask(store, charge).await.unwrap().is_allowed()
}

/// What a peek says is left.
pub(crate) async fn left(store: &RedisStore, charge: &Charge<'_>) -> u32 {
    store.check(&Check::one(charge).peek()).await.unwrap().verdicts()[0].remaining()
}

/// The milliseconds a key has to live.
#[track_caller]
pub(crate) fn pttl(server: &Server, key: &str) -> i64 {
    server.cli(&["PTTL", key]).parse().unwrap()
}

/// All keys of a server, in order.
pub(crate) fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.cli(&["--scan"]).lines().map(str::to_owned).collect();
    keys.sort();
    keys
}

/// Asks until `done`.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !done().await {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
