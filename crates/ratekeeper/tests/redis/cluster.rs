//! Stores on a cluster of six nodes: every decision, through moves of slots and failovers, and when something is wrong
//! with who is asked.

mod input;
mod moving;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use ratekeeper::{
    Check, Override, OverrideScope, Quota, RedisStore, RedisStoreBuilder, Store, StoreErrorKind,
};
use ratekeeper_testkit::history::{histories, run};
use ratekeeper_testkit::servers::{Cluster, Flavour};
use ratekeeper_testkit::vectors;

use crate::engine::{RedisEngine, builder, fresh_prefix, runtime};
use crate::setup::{FIVES, ask, charge, is_allowed, left, quota, together};

const FLAVOURS: [Flavour; 2] = [Flavour::Redis7, Flavour::Valkey9];
/// Enough subjects that each node has many.
const SUBJECTS: usize = 60;

/// A store that knows the cluster.
async fn store(cluster: &Cluster) -> RedisStore {
    connected(builder(&cluster.url()).prefix(&fresh_prefix())).await
}

async fn connected(builder: RedisStoreBuilder) -> RedisStore {
    let store = builder.build().unwrap();
    store.ping().await.unwrap();
    store
}

/// All keys of all nodes.
fn keys(cluster: &Cluster) -> Vec<Vec<String>> {
    let keys = |node| cluster.ask(node, &["--scan"]).lines().map(str::to_owned).collect();
    (0..3).map(keys).collect()
}

#[test]
fn decision_tables_on_a_cluster() {
    for flavour in FLAVOURS {
        let (cluster, runtime) = (Cluster::start(flavour), runtime());
        let engine = || RedisEngine::with(builder(&cluster.url()).one_tag("all"), &runtime);
        let steps = vectors::run_all_of_stores(engine);
        assert!(steps > 800, "only {steps} steps on {flavour}");
    }
}

#[test]
fn random_histories_on_a_cluster() {
    for flavour in FLAVOURS {
        let (cluster, runtime) = (Cluster::start(flavour), runtime());
        let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
        let events = AtomicUsize::new(0);
        let outcome = TestRunner::new(config).run(&histories(60), |history| {
            let number = events.fetch_add(history.len(), Ordering::Relaxed);
            // Another slot for each.
            let tag = format!("t{number}");
            let mut engine = RedisEngine::with(builder(&cluster.url()).one_tag(&tag), &runtime);
            run(&mut engine, &history).map_err(TestCaseError::fail)
        });
        outcome.unwrap_or_else(|difference| panic!("{flavour} and the model differ: {difference}"));
        assert!(events.into_inner() > 5_000, "{flavour}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_exact_on_all_nodes_at_once() {
    for flavour in FLAVOURS {
        let cluster = Cluster::start(flavour);
        let stores = [store(&cluster).await, connected(builder(&cluster.url()).connections(2)).await];
        for (index, store) in stores.iter().enumerate() {
            let callers = (0..SUBJECTS * 8).map(|caller| {
                let (store, text) = (store.clone(), FIVES[caller / 8 % FIVES.len()]);
                tokio::spawn(async move {
                    let subject = format!("user:{}", caller / 8);
                    let quota: Quota = text.parse().unwrap();
                    is_allowed(&store, &charge(&format!("exact{index}"), &subject, &quota)).await
                })
            });
            let admitted = join_all(callers).await.into_iter().filter(|admitted| *admitted.as_ref().unwrap());
            assert_eq!(admitted.count(), SUBJECTS * 5, "{flavour}");
            let health = store.health();
            assert_eq!((health.nodes, health.nodes_up, health.failures), (3, 3, 0), "{flavour}");
        }
        for (node, keys) in keys(&cluster).iter().enumerate() {
            assert!(keys.len() > SUBJECTS / 10, "{flavour}: node {node} has {} keys", keys.len());
        }
    }
}

/// Counters, overrides, refunds, resets and switches, each wherever its keys are.
#[tokio::test]
async fn everything_finds_its_node() {
    for flavour in FLAVOURS {
        let cluster = Cluster::start(flavour);
        let store = store(&cluster).await;
        let hour = quota("5/h fixed_window");
        for organisation in (0..20).map(|number| number.to_string()) {
            // As Application Kit has them, with braces in the route.
            let endpoint = "/datasets/{dataset_id}/search";
            let scope = OverrideScope::project(endpoint, &organisation, "42").unwrap();
            let subject = format!("{endpoint}:{organisation}:42");
            let own = charge("search", &subject, hour).overridable(scope);
            let check = Check::one(&own);
            let decision = store.check(&check).await.unwrap();
            assert_eq!(decision.verdicts()[0].remaining(), 4, "{flavour}");
            store.overrides().set(scope.without_project(), Override::limit(9)).await.unwrap();
            assert_eq!(left(&store, &own).await, 8, "{flavour}: the organisation's applies");
            store.overrides().set(scope, Override::limit(3)).await.unwrap();
            assert_eq!(left(&store, &own).await, 2, "{flavour}: the project's applies");
            assert_eq!(store.overrides().get(scope).await.unwrap().unwrap().limit, 3);
            let listed = store.overrides().list(&organisation, Some("42")).await.unwrap();
            assert_eq!(listed, [(endpoint.to_owned(), Override::limit(3))], "{flavour}");
            assert_eq!(store.refund(&check, &decision, 1).await.unwrap(), 1, "{flavour}");
            assert_eq!(left(&store, &own).await, 3, "{flavour}");
            assert!(is_allowed(&store, &own).await);
            let bucket = charge("bucket", &subject, quota("5/h")).overridable(scope);
            assert!(is_allowed(&store, &bucket).await, "{flavour}");
            assert_eq!(store.stored_counters("bucket", subject.as_bytes()).await.unwrap().len(), 1);
            assert!(store.reset(bucket.key(), bucket.quota().algorithm()).await.unwrap(), "{flavour}");
            assert!(store.reset(own.key(), own.quota().algorithm()).await.unwrap(), "{flavour}");
            assert_eq!(left(&store, &own).await, 3, "{flavour}");
        }
        assert_eq!(store.overrides().all().await.unwrap().len(), 40, "{flavour}");
        assert_eq!(store.overrides().clear("7", Some("42")).await.unwrap(), 1, "{flavour}");
        assert_eq!(store.overrides().all().await.unwrap().len(), 39, "{flavour}");
        assert_eq!(store.shared_secret().await.unwrap(), store.shared_secret().await.unwrap());
        let switch = "mode=monitor".parse().unwrap();
        store.control().set_switch("search", switch).await.unwrap();
        assert_eq!(store.control().read_switches().await.unwrap().iter().count(), 1, "{flavour}");
        let kinds: BTreeSet<String> = keys(&cluster).concat().iter().map(|key| kind(key)).collect();
        let expected = ["rk:control", "rk:secret", "{}rk:o:", "{}rk:p:"].map(str::to_owned);
        assert!(kinds.is_superset(&expected.into()), "{flavour}: {kinds:?}");
        assert!(!kinds.iter().any(|kind| kind.contains("ratelimit")), "{flavour}: {kinds:?}");
    }
}

/// A key without its prefix, the text of its tag, and the rest of its name.
fn kind(key: &str) -> String {
    let (_, key) = key.split_once(':').unwrap();
    match key.split_once('}') {
        Some((_, rest)) => format!("{{}}{}", &rest[..5]),
        None => key.to_owned(),
    }
}

#[tokio::test]
async fn what_cannot_be_in_one_slot_is_refused_and_never_let_pass() {
    let cluster = Cluster::start(Flavour::Redis7);
    let store = store(&cluster).await;
    let hour = quota("5/h");
    let (ann, ben) = (charge("a", "ann", hour), charge("a", "ben", hour));
    let error = store.check(&together(&[ann, ben]).check().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Input);
    assert_eq!(left(&store, &ann).await, 5, "nothing was charged");
    let scope = OverrideScope::organisation("/search", "acme").unwrap();
    let error = ask(&store, &charge("per-address", "10.0.0.7", hour).overridable(scope)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Input);
    let why = error.into_input().unwrap().to_string();
    assert!(why.contains("{identity.org}"), "it names a key that would do: {why}");
}
