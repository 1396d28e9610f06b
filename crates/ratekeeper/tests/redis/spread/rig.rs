//! Three servers, one store over them, and subjects of which it is known where they are.

use std::sync::OnceLock;

use futures_util::future::join_all;
use ratekeeper::{Charge, Check, Decision, RedisStoreBuilder, SpreadStore, Store, StoreError};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{fresh_prefix, spread_over, urls_of};
use crate::setup::{charge, keys, quota, together};

/// How many servers there are.
pub(super) const SERVERS: usize = 3;
/// Subjects to find some on each server among.
const SUBJECTS: usize = 60;

pub(super) struct Rig {
    pub(super) servers: Vec<Server>,
    pub(super) store: SpreadStore,
    /// By server.
    subjects: OnceLock<Vec<Vec<&'static str>>>,
}

pub(super) fn servers() -> Vec<Server> {
    // One of each kind we support: together they are as good as three of one.
    Flavour::ALL.into_iter().map(Server::start).collect()
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    pub(super) async fn with(settings: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder) -> Self {
        let servers = servers();
        let prefix = fresh_prefix();
        let store = spread_over(&urls_of(&servers), |builder| settings(builder.prefix(&prefix)));
        let rig = Self { servers, store, subjects: OnceLock::new() };
        crate::setup::until("connections to all servers", async || rig.store.ping().await.is_ok()).await;
        rig.find_subjects(&prefix).await;
        rig
    }

    /// Charges every subject once, and looks where that is.
    async fn find_subjects(&self, prefix: &str) {
        let ample = quota("1000/h");
        let subjects: Vec<String> = (0..SUBJECTS).map(|number| format!("s{number}")).collect();
        let charges: Vec<Charge<'_>> =
            subjects.iter().map(|subject| charge("probe", subject, ample)).collect();
        let checks: Vec<Check<'_>> = charges.iter().map(Check::one).collect();
        join_all(checks.iter().map(|check| self.store.check(check)))
            .await
            .into_iter()
            .for_each(|answer| drop(answer.unwrap()));
        let start = format!("{prefix}rk:c:probe:");
        let on = |server: &Server| -> Vec<&'static str> {
            keys(server)
                .into_iter()
                .filter_map(|key| key.strip_prefix(&start).map(|subject| &*subject.to_owned().leak()))
                .collect()
        };
        let found: Vec<Vec<&'static str>> = self.servers.iter().map(on).collect();
        assert_eq!(found.iter().map(Vec::len).sum::<usize>(), SUBJECTS, "each is on one server");
        assert!(found.iter().all(|some| some.len() > 5), "{found:?}");
        self.subjects.set(found).unwrap();
    }

    /// A subject whose counters are on a server.
    pub(super) fn on(&self, server: usize, number: usize) -> &'static str {
        self.subjects.get().unwrap()[server][number]
    }

    pub(super) async fn ask(&self, charges: &[Charge<'_>]) -> Result<Decision, StoreError> {
        self.store.check(&together(charges).check().unwrap()).await
    }

    /// What is left of a counter.
    pub(super) async fn left(&self, charge: &Charge<'_>) -> u32 {
        self.store.check(&Check::one(charge).peek()).await.unwrap().verdicts()[0].remaining()
    }

    /// Checks that spanned, refunds after a denial, and those that failed.
    pub(super) fn counts(&self) -> [u64; 3] {
        let health = self.store.health();
        [health.spanning, health.spanning_refunds, health.spanning_refunds_failed]
    }
}
