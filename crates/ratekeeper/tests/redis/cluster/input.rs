//! Clusters that are wrong, strict or not whole.

use ratekeeper::{RedisStore, RedisStoreBuilder, StoreError, StoreErrorKind};
use ratekeeper_testkit::servers::{BlackHole, Cluster, ClusterOptions, Flavour, SLOTS, Server};

use super::{FLAVOURS, connected};
use crate::engine::{builder, fresh_prefix};
use crate::setup::{ask, charge, is_allowed, quota, until};

/// Stands in every URL with a password, and must not stand anywhere else.
const SECRET: &str = "hunter2";
const STRICT: ClusterOptions = ClusterOptions {
    password: Some(SECRET),
    directives: &[
        ("user", "ann on >hunter2 ~app:* &* +@all"),
        ("user", "ben on >hunter2 ~app:* &* +eval +evalsha"),
    ],
    tls: false,
    impatient: false,
};

/// The error of a store that cannot be asked, once it is known why.
async fn refused(builder: RedisStoreBuilder, why: &str) -> StoreError {
    let shown = format!("{builder:?}");
    let store = builder.build().unwrap();
    let mut found = None;
    until(why, async || {
        let error = store.ping().await.expect_err(why);
        let is_it = error.to_string().contains(why);
        if !is_it {
            println!("{error}");
        }
        found = Some(error);
        is_it
    })
    .await;
    let error = found.unwrap();
    for text in [shown, format!("{store:?} {error:?} {error}")] {
        assert!(!text.contains(SECRET), "{text}");
    }
    error
}

#[tokio::test]
async fn a_server_that_is_no_node_is_named() {
    for flavour in FLAVOURS {
        let (cluster, alone) = (Cluster::start(flavour), Server::start(flavour));
        let place = format!("127.0.0.1:{}", alone.port());
        let why =
            format!("{place}: it is a server by itself and no node of a cluster: name nodes of one cluster");
        refused(builder(&format!("redis+cluster://{place}")), &why).await;
        refused(builder(&format!("{},{place}", cluster.url())), &why).await;
        let node = format!("redis://127.0.0.1:{}", cluster.nodes[0].port());
        refused(builder(&node), "it is a node of a cluster: name the cluster, with redis+cluster://").await;
    }
}

#[tokio::test]
async fn a_cluster_that_is_not_whole_says_what_is_missing() {
    for flavour in FLAVOURS {
        let cluster = Cluster::start(flavour);
        let store = connected(builder(&cluster.url()).prefix(&fresh_prefix())).await;
        cluster.uncover(0, SLOTS / 2 - 1);
        let why = format!("{} of {SLOTS} slots are on a node: bring back", SLOTS / 2);
        let error = refused(builder(&cluster.url()), &why).await;
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{flavour}");
        assert!(error.to_string().contains("redis-cli --cluster check"), "{error}");
        let report = store.cluster().await.unwrap();
        assert_eq!((report.named.len(), report.slots), (6, usize::from(SLOTS / 2)), "{flavour}");
        // Its state is fail then: no key is decided, and none is let pass in silence.
        until("a cluster that is down", async || {
            let error = ask(&store, &charge("q", "s", quota("1000/h"))).await;
            error.is_err_and(|error| error.kind() == StoreErrorKind::Unavailable)
        })
        .await;
    }
}

/// Two primaries of three are gone, and nobody is left to elect others.
#[tokio::test]
async fn a_cluster_whose_state_is_fail_says_what_to_do() {
    for flavour in FLAVOURS {
        let impatient = ClusterOptions { impatient: true, ..ClusterOptions::default() };
        let mut cluster = Cluster::start_with(flavour, impatient);
        // The replicas first, so that none takes over.
        [3, 4, 5, 0, 1].into_iter().for_each(|node| cluster.nodes[node].kill());
        until("a node that finds the state fail", async || !cluster.is_ok(2)).await;
        let place = format!("redis+cluster://127.0.0.1:{}", cluster.nodes[2].port());
        let why = "its state is fail although all slots are assigned: bring back the primaries that are away";
        let error = refused(builder(&place), why).await;
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{flavour}");
    }
}

/// A node that accepts connections and never answers holds up nobody who knows another one.
#[tokio::test]
async fn a_silent_node_in_the_url_holds_up_nobody() {
    let (cluster, hole) = (Cluster::start(Flavour::Redis7), BlackHole::start());
    let places = cluster.url().split_once("://").unwrap().1.to_owned();
    let store = connected(builder(&format!("redis+cluster://127.0.0.1:{},{places}", hole.port()))).await;
    assert!(is_allowed(&store, &charge("q", "s", quota("1/h"))).await);
    // Alone, it is an outage by the deadline, and not for ever.
    let deadline = std::time::Duration::from_millis(100);
    let alone = ratekeeper::RedisStore::builder(&format!("redis+cluster://127.0.0.1:{}", hole.port()));
    let alone = alone.deadline(deadline).build().unwrap();
    let begun = std::time::Instant::now();
    let error = ask(&alone, &charge("q", "s", quota("1/h"))).await.unwrap_err();
    assert_ne!(error.kind(), StoreErrorKind::Input);
    // The bound is four deadlines; a busy machine may take longer to look at its timers.
    assert!(begun.elapsed() < deadline * 50, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let error =
        refused(builder("redis+cluster://127.0.0.1:1"), "127.0.0.1:1 is not there: nothing listens").await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let error = RedisStore::builder("redis+cluster://127.0.0.1:1").prefix("{a}").build().unwrap_err();
    assert!(error.to_string().contains("a prefix without braces"), "{error}");
}

#[tokio::test]
async fn passwords_and_users() {
    for flavour in FLAVOURS {
        let cluster = Cluster::start_with(flavour, STRICT);
        let places = cluster.url().split_once('@').unwrap().1.to_owned();
        let url = |login: &str| format!("redis+cluster://{login}{places}");
        let hour = quota("5/h");
        for login in [format!(":{SECRET}@"), format!("ann:{SECRET}@")] {
            let store = connected(builder(&url(&login)).prefix("app:")).await;
            assert!(
                is_allowed(&store, &charge(&login.replace([':', '@'], ""), "s", hour)).await,
                "{flavour}"
            );
        }
        let error = refused(builder(&url("")), "Authentication required").await;
        assert_eq!(error.kind(), StoreErrorKind::Permission, "{flavour}");
        let error =
            refused(builder(&url(&format!("ben:{SECRET}@"))), "see the permissions in docs/redis.md").await;
        assert_eq!(error.kind(), StoreErrorKind::Permission, "{flavour}");
    }
}

#[tokio::test]
async fn over_tls() {
    for flavour in FLAVOURS.into_iter().filter(|flavour: &Flavour| flavour.has_tls()) {
        let cluster = Cluster::start_with(flavour, ClusterOptions { tls: true, ..ClusterOptions::default() });
        let trusting = builder(&cluster.url()).certificate_authority(cluster.nodes[0].ca_pem());
        let store = connected(trusting.prefix(&fresh_prefix())).await;
        for number in 0..20 {
            assert!(is_allowed(&store, &charge("q", &format!("s{number}"), quota("1/h"))).await, "{flavour}");
            assert!(
                !is_allowed(&store, &charge("q", &format!("s{number}"), quota("1/h"))).await,
                "{flavour}"
            );
        }
        refused(builder(&cluster.url()), "does not say where its slots are").await;
    }
}
