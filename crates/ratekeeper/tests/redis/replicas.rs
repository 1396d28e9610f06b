//! Charges that replicas confirm before they are answered (`WAIT`): what an operator pays for a failover that loses none.

use std::time::Duration;

use ratekeeper::{Check, RedisStore, RedisStoreBuilder, Reservation, Store, StoreErrorKind};
use ratekeeper_testkit::servers::{Cluster, Flavour, Server, Trio};
use ratekeeper_testkit::vectors;

use crate::engine::{RedisEngine, builder, fresh_prefix, runtime};
use crate::setup::{ask, charge, is_allowed, left, quota, until};

/// Half of it is for the replicas.
const DEADLINE: Duration = Duration::from_secs(2);
const FLAVOURS: [Flavour; 2] = [Flavour::Redis7, Flavour::Valkey9];

async fn confirmed(url: &str, deadline: Duration) -> RedisStore {
    connected(builder(url).prefix(&fresh_prefix()).deadline(deadline).replicas(1)).await
}

async fn connected(builder: RedisStoreBuilder) -> RedisStore {
    let store = builder.build().unwrap();
    until("a connection", async || store.ping().await.is_ok()).await;
    store
}

#[tokio::test]
async fn what_was_admitted_survives_the_death_of_the_primary() {
    for flavour in FLAVOURS {
        let mut trio = Trio::start(flavour);
        let prefix = fresh_prefix();
        let store = connected(builder(&trio.url()).prefix(&prefix).replicas(1)).await;
        let day = quota("100/d");
        for subject in 0..20 {
            for _ in 0..5 {
                assert!(is_allowed(&store, &charge("kept", &format!("s{subject}"), day)).await, "{flavour}");
            }
        }
        // Not a moment for what is on its way.
        trio.servers[0].kill();
        trio.replace_the_dead(0);
        // One that waits for nobody: the new primary has no replica.
        let store = connected(builder(&trio.url()).prefix(&prefix)).await;
        for subject in 0..20 {
            let subject = format!("s{subject}");
            let kept = charge("kept", &subject, day);
            assert_eq!(left(&store, &kept).await, 95, "{flavour}");
        }
    }
}

/// An admission that nobody confirms is the failure policy's; a denial is one, whoever has it.
#[tokio::test]
async fn without_its_replica_nothing_is_told_as_admitted_and_denials_stand() {
    for flavour in FLAVOURS {
        let trio = Trio::start(flavour);
        let store = confirmed(&trio.servers[0].url(), DEADLINE).await;
        let (once, two) = (charge("once", "s", quota("1/h")), charge("two", "s", quota("2/h")));
        assert!(is_allowed(&store, &once).await);
        trio.servers[1].pause();
        let error = ask(&store, &two).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Timeout, "{flavour}: {error}");
        assert!(error.to_string().contains("fewer replicas confirmed it"), "{error}");
        assert!(!is_allowed(&store, &once).await, "{flavour}: a denial needs no replica");
        assert_eq!(left(&store, &two).await, 1, "{flavour}: it is charged, and a peek says so");
        let under = Reservation::once("order", Duration::from_secs(60)).unwrap();
        let kept = charge("under an id", "s", quota("5/h"));
        let error = store.reserve(&Check::one(&kept), &under).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Timeout, "{flavour}: {error}");
        trio.servers[1].resume();
        until("confirmed again", async || ask(&store, &charge("back", "s", quota("1000/h"))).await.is_ok())
            .await;
        let repeated = store.reserve(&Check::one(&kept), &under).await.unwrap();
        assert!(repeated.is_allowed() && left(&store, &kept).await == 4, "{flavour}: charged once");
        assert!(store.health().timeouts >= 2, "{flavour}");
    }
}

#[test]
fn decision_tables_with_replicas_on_a_cluster() {
    let (cluster, runtime) = (Cluster::start(Flavour::Valkey9), runtime());
    let engine = || RedisEngine::with(builder(&cluster.url()).one_tag("all").replicas(1), &runtime);
    assert!(vectors::run_all(engine) > 800);
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let error = RedisStore::builder("redis://127.0.0.1:1").replicas(17).build().unwrap_err().to_string();
    assert!(error.contains("got 17 replicas to wait for; expected at most 16"), "{error}");
    let user = "ann on >hunter2 ~* &* +@all -wait";
    let server = Server::start_with(Flavour::Redis7, &[("user", user)]);
    let url = format!("redis://ann:hunter2@127.0.0.1:{}", server.port());
    assert!(builder(&url).build().unwrap().ping().await.is_ok(), "without replicas nobody asks");
    let store = builder(&url).replicas(1).build().unwrap();
    let mut found = None;
    until("a refusal", async || {
        found = store.ping().await.err();
        found.as_ref().is_some_and(|error| error.kind() == StoreErrorKind::Permission)
    })
    .await;
    let error = found.unwrap().to_string();
    assert!(error.contains("wait") && !error.contains("hunter2"), "{error}");
}
