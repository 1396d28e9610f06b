//! What operators do over several servers: overrides, switches, resets, and what is stored where.

use ratekeeper::{
    Algorithm, Check, Control as _, Mode, Override, OverrideScope, Overrides as _, Store, Switch,
};

use super::rig::{Rig, SERVERS};
use crate::setup::{charge, keys, quota, until};

const ORGANISATIONS: usize = 30;

#[tokio::test]
async fn an_override_is_where_the_counters_of_its_organisation_are() {
    let rig = Rig::new().await;
    for number in 0..ORGANISATIONS {
        let (organisation, subject) = (format!("org{number}"), format!("user:org{number}:p"));
        let of_all = OverrideScope::organisation("/search", &organisation).unwrap();
        let of_one = OverrideScope::project("/search", &organisation, "p").unwrap();
        rig.store.set(of_all, Override::limit(3)).await.unwrap();
        let own = charge("per-user", &subject, quota("1/h")).overridable(of_one);
        let capacity = async || {
            let seen = rig.store.check(&Check::one(&own).peek()).await.unwrap();
            seen.verdicts()[0].quota().limit()
        };
        assert_eq!(capacity().await, 3, "{organisation}");
        rig.store.set(of_one, Override::limit(7)).await.unwrap();
        assert_eq!((capacity().await, rig.store.get(of_one).await.unwrap().unwrap().limit), (7, 7));
        assert_eq!(rig.store.list(&organisation, Some("p")).await.unwrap().len(), 1);
    }
    let all = rig.store.all().await.unwrap();
    assert_eq!(all.len(), 2 * ORGANISATIONS);
    assert!(all.is_sorted_by_key(|one| (
        one.endpoint.clone(),
        one.organisation.clone(),
        one.project.clone()
    )));
    for server in &rig.servers {
        let own = keys(server).iter().filter(|key| key.contains("override:")).count();
        assert!((1..2 * ORGANISATIONS).contains(&own), "each server has some, and none has all: {own}");
    }
    assert!(rig.store.delete(OverrideScope::organisation("/search", "org0").unwrap()).await.unwrap());
    assert_eq!(rig.store.clear("org1", Some("p")).await.unwrap(), 1);
    assert_eq!(rig.store.all().await.unwrap().len(), 2 * ORGANISATIONS - 2);
}

#[tokio::test]
async fn switches_are_on_every_server_so_that_one_away_hides_none() {
    let mut rig = Rig::new().await;
    let monitor = Switch { mode: Some(Mode::Monitor), ..Switch::default() };
    rig.store.set_switch("api", monitor).await.unwrap();
    for server in &rig.servers {
        assert!(keys(server).iter().any(|key| key.ends_with("rk:control")), "{}", server.url());
    }
    assert_eq!(rig.store.switches().unwrap().iter().collect::<Vec<_>>(), [("api", &monitor)]);
    rig.servers[1].kill();
    until("the server noticed as down", async || rig.store.ping().await.is_err()).await;
    assert_eq!(rig.store.read_switches().await.unwrap().iter().count(), 1);
    let error = rig.store.set_switch("other", monitor).await.unwrap_err().to_string();
    assert!(error.starts_with("done on 2 of 3 servers; do it again when all answer: "), "{error}");
    assert!(error.contains(&rig.servers[1].url()), "{error}");
    assert_eq!(rig.store.switches().unwrap().iter().count(), 2, "it holds where it was set");
    rig.servers[1].restart();
    until("the server back", async || rig.store.clear_switch("api").await.is_ok()).await;
    assert!(rig.store.clear_switch("other").await.unwrap());
    assert!(!rig.store.clear_switch("api").await.unwrap());
    let is_empty = async || rig.store.switches().is_none_or(|switches| switches.iter().count() == 0);
    until("no switch left", is_empty).await;
}

#[tokio::test]
async fn a_counter_is_found_and_forgotten_wherever_it_is() {
    let rig = Rig::new().await;
    let scope = OverrideScope::organisation("/search", "acme").unwrap();
    let five = quota("5/h");
    // A key does not say whether its counters follow overrides.
    let followed = charge("followed", "acme:ann", five).overridable(scope);
    let mut charged = vec![followed];
    charged.extend((0..SERVERS).map(|server| charge("plain", rig.on(server, 0), five)));
    for own in &charged {
        assert!(rig.ask(&[*own]).await.unwrap().is_allowed());
        let (rule, subject) = (own.key().label(), own.key().subject());
        let stored = rig.store.stored_counters(rule, subject).await.unwrap();
        let [(server, counter)] = &stored[..] else { panic!("{stored:?}") };
        assert_eq!((counter.algorithm, counter.remaining), (Algorithm::TokenBucket, 4));
        assert!(rig.servers.iter().any(|known| known.url() == *server), "{server}");
        assert!(rig.store.reset(own.key(), Algorithm::TokenBucket).await.unwrap());
        assert!(!rig.store.reset(own.key(), Algorithm::TokenBucket).await.unwrap());
        assert_eq!(rig.left(own).await, 5);
    }
}

#[tokio::test]
async fn counters_are_listed_with_the_server_that_has_them() {
    let rig = Rig::new().await;
    let filter = ratekeeper::StoredFilter::own(Some("probe"), None);
    let (mut cursor, mut found) = (0, Vec::new());
    loop {
        let page = rig.store.stored(&filter, cursor, 100).await.unwrap().unwrap();
        found.extend(page.keys);
        let Some(next) = page.cursor else { break };
        cursor = next;
    }
    for (index, server) in rig.servers.iter().enumerate() {
        let on_it = found.iter().filter(|key| key.server.as_deref() == Some(server.url().as_str()));
        assert!(on_it.clone().count() > 5);
        let subject = rig.on(index, 0);
        assert!(on_it.clone().any(|key| key.subject == subject), "{subject} is on {}", server.url());
    }
    assert!(found.iter().all(|key| key.server.is_some()));
}

#[tokio::test]
async fn the_secret_of_receipts_is_the_same_for_all_who_share_the_servers() {
    let rig = Rig::new().await;
    assert_eq!(rig.store.shared_secret().await.unwrap(), rig.store.shared_secret().await.unwrap());
    let with_secret =
        rig.servers.iter().filter(|server| keys(server).iter().any(|key| key.ends_with("rk:secret")));
    assert_eq!(with_secret.count(), 1);
}
