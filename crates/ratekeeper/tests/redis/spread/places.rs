//! Which server, or which node of a cluster, has what: listings, inspection and errors say it.

use ratekeeper::{
    Check, Override, OverrideScope, Overrides as _, SpreadStore, Store, StoreErrorKind, StoredFilter,
};
use ratekeeper_testkit::servers::{Cluster, Flavour};

use super::rig::Rig;
use crate::engine::{fresh_prefix, spread_over};
use crate::setup::{charge, quota, until};

const ORGANISATIONS: usize = 20;

async fn set_overrides(store: &SpreadStore) {
    for number in 0..ORGANISATIONS {
        let organisation = format!("org{number}");
        let scope = OverrideScope::project("/search", &organisation, "p").unwrap();
        store.set(scope, Override::limit(7)).await.unwrap();
    }
}

#[tokio::test]
async fn each_override_says_which_server_has_it() {
    let rig = Rig::new().await;
    set_overrides(&rig.store).await;
    let all = rig.store.all().await.unwrap();
    assert_eq!(all.len(), ORGANISATIONS);
    for one in &all {
        let key = format!("override:/search:{}:p", one.organisation);
        let has = |server: &ratekeeper_testkit::servers::Server| {
            crate::setup::keys(server).iter().any(|known| known.ends_with(&key))
        };
        let home = rig.servers.iter().find(|server| has(server)).unwrap();
        assert_eq!(one.server, Some(home.url()), "{}", one.organisation);
        assert_eq!(rig.store.server_of(&one.organisation), one.server);
    }
    let servers: std::collections::BTreeSet<_> = all.iter().map(|one| &one.server).collect();
    assert_eq!(servers.len(), rig.servers.len(), "{servers:?}");
}

#[tokio::test]
async fn an_override_that_cannot_be_read_says_which_server_is_away() {
    let mut rig = Rig::new().await;
    let organisation = (0..).map(|number| format!("org{number}"));
    let away = rig.servers[1].url();
    let organisation =
        organisation.into_iter().find(|name| rig.store.server_of(name).as_ref() == Some(&away)).unwrap();
    rig.servers[1].kill();
    let scope = OverrideScope::organisation("/search", &organisation).unwrap();
    until("the server noticed as down", async || rig.store.get(scope).await.is_err()).await;
    let errors = [
        rig.store.set(scope, Override::limit(7)).await.unwrap_err(),
        rig.store.get(scope).await.unwrap_err(),
        rig.store.delete(scope).await.unwrap_err(),
        rig.store.list(&organisation, Some("p")).await.unwrap_err(),
        rig.store.clear(&organisation, None).await.unwrap_err(),
        rig.store.all().await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().starts_with(&format!("{away}: ")), "{error}");
        assert_ne!(error.kind(), StoreErrorKind::Input);
    }
    // What is wrong with the call is said as ever.
    let wrong = Override::limit(u64::MAX);
    let error = rig.store.set(scope, wrong).await.unwrap_err().into_input().unwrap();
    assert!(error.to_string().contains("limit"), "{error}");
}

/// The node of a tag.
fn node(cluster: &Cluster, tag: &str) -> String {
    let owner = cluster.owner(cluster.slot_of(format!("{{{tag}}}").as_bytes())).unwrap();
    format!(":{}", cluster.nodes[owner].port())
}

#[track_caller]
fn is_on(server: Option<&str>, node: &str) {
    assert!(server.is_some_and(|server| server.ends_with(node)), "{server:?} and not {node}");
}

#[tokio::test]
async fn on_a_cluster_everything_says_which_node_has_it() {
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        let cluster = Cluster::start(flavour);
        let prefix = fresh_prefix();
        let store = spread_over(&cluster.url(), |builder| builder.prefix(&prefix));
        store.ping().await.unwrap();
        set_overrides(&store).await;
        for one in store.all().await.unwrap() {
            is_on(one.server.as_deref(), &node(&cluster, &one.organisation));
            assert_eq!(store.server_of(&one.organisation), one.server);
        }
        for subject in ["ann", "ben", "cem", "dan"] {
            let own = charge("api", subject, quota("5/h"));
            assert!(store.check(&Check::one(&own)).await.unwrap().is_allowed());
            let node = node(&cluster, subject);
            let counters = store.stored_counters("api", subject.as_bytes()).await.unwrap();
            assert_eq!(counters.len(), 1, "{counters:?}");
            is_on(Some(&counters[0].0), &node);
            // Found by its name alone, and by looking through all keys.
            for (rule, subject) in [("api", subject.to_owned()), ("api", format!("{subject}*"))] {
                let filter = StoredFilter::own(Some(rule), Some(&subject));
                let page = store.stored(&filter, 0, 10).await.unwrap().unwrap();
                let [found] = &page.keys[..] else { panic!("{subject}: {:?}", page.keys) };
                is_on(found.server.as_deref(), &node);
            }
        }
    }
}

#[tokio::test]
async fn a_node_that_is_away_is_named() {
    let mut cluster = Cluster::start(Flavour::Redis7);
    let prefix = fresh_prefix();
    let store = spread_over(&cluster.url(), |builder| builder.prefix(&prefix));
    store.ping().await.unwrap();
    let away = node(&cluster, "acme");
    let scope = OverrideScope::organisation("/search", "acme").unwrap();
    store.set(scope, Override::limit(7)).await.unwrap();
    let owner = cluster.owner(cluster.slot_of(b"{acme}")).unwrap();
    cluster.nodes[owner].kill();
    until("the node noticed as down", async || store.get(scope).await.is_err()).await;
    let errors = [
        store.get(scope).await.unwrap_err(),
        store.set(scope, Override::limit(8)).await.unwrap_err(),
        store.delete(scope).await.unwrap_err(),
        store.all().await.unwrap_err(),
        store.stored_counters("api", b"acme").await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains(&format!("{away}: ")), "{error}");
    }
}
