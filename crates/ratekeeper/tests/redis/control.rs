//! Switches: the same for every instance, within a second, at no cost per check.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::bounds::SWITCHES_MAX;
use ratekeeper::{
    ALL_RULES, Clock, Control, Emergency, Level, Limiter, ManualClock, MemoryStore, Mode, RedisStore, Rule,
    Store, StoreErrorKind, Switch, Timestamp,
};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{PATIENCE, fresh_prefix};
use crate::setup::until;

fn switch(text: &str) -> Switch {
    text.parse().unwrap()
}

fn limiter(store: impl Store + 'static) -> Limiter<str> {
    let api = Rule::new("api", |user: &str| Some(user.into())).quotas("1/h fixed_window");
    let other = Rule::new("other", |user: &str| Some(user.into())).quotas("1000/h fixed_window");
    Limiter::builder(store).rule(api).rule(other).build().unwrap()
}

fn store(server: &Server, prefix: &str) -> RedisStore {
    RedisStore::builder(&server.url()).prefix(prefix).deadline(PATIENCE).build().unwrap()
}

/// How often the switches were read, by all stores together.
fn polls(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hgetall:calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// Counted in polls, of which two fit into the second that is promised: a busy machine makes
/// seconds longer, but no poll late for another.
#[tokio::test]
async fn a_switch_reaches_every_instance_within_a_second() {
    let (server, prefix) = (Server::start(Flavour::Redis7), fresh_prefix());
    // The operator's, which has its switch at once, and two that read it.
    const STORES: u64 = 3;
    let operator = store(&server, &prefix);
    let instances = [limiter(store(&server, &prefix)), limiter(store(&server, &prefix))];
    let is_allowed = async |instance: &Limiter<str>| instance.check("ann").await.unwrap().is_allowed();
    assert!(is_allowed(&instances[0]).await);
    assert!(!is_allowed(&instances[1]).await, "one limit for both");

    for (text, allowed) in [("mode=monitor", true), ("mode=on", false), ("emergency=lift", true)] {
        operator.set_switch("api", switch(text)).await.unwrap();
        let before = polls(&server);
        until(text, async || {
            is_allowed(&instances[0]).await == allowed && is_allowed(&instances[1]).await == allowed
        })
        .await;
        let took = polls(&server) - before;
        assert!(took <= 2 * STORES, "{text} took {took} polls of {STORES} stores");
    }
    assert!(operator.clear_switch("api").await.unwrap());
    assert!(!operator.clear_switch("api").await.unwrap());
    until("the limit is back", async || !is_allowed(&instances[0]).await).await;
}

#[tokio::test]
async fn rules_that_are_off_make_no_call_and_bad_switches_are_not_obeyed() {
    let (server, prefix) = (Server::start(Flavour::Valkey9), fresh_prefix());
    let store = store(&server, &prefix);
    let limiter = limiter(store.clone());
    limiter.check("ann").await.unwrap();
    // By hand, as in an emergency.
    let key = format!("{prefix}rk:control");
    assert_eq!(server.cli(&["HSET", &key, "api", "mode=sideways", ALL_RULES, "mode=off"]), "2");
    until("off", async || limiter.check("ann").await.unwrap().verdicts().is_empty()).await;
    let batches = store.health().batches;
    for _ in 0..10 {
        assert!(limiter.check("ann").await.unwrap().is_allowed());
    }
    assert_eq!(store.health().batches, batches, "not one call to the server");

    let wrong = store.set_switch("", switch("mode=off")).await.unwrap_err().into_input().unwrap();
    assert!(wrong.to_string().contains("the name of a rule, or * for all"), "{wrong}");
    let all = Switch { enforce_percent: Some(101), ..Switch::default() };
    assert!(store.set_switch("api", all).await.is_err());
}

#[tokio::test]
async fn switches_stand_while_the_server_is_away() {
    let mut server = Server::start(Flavour::Redis62);
    let store = RedisStore::builder(&server.url()).build().unwrap();
    let limiter = limiter(store.clone());
    until("set", async || store.set_switch("*", switch("mode=off")).await.is_ok()).await;
    server.kill();
    until("the outage is noticed", async || store.ping().await.is_err()).await;
    assert!(limiter.check("ann").await.unwrap().verdicts().is_empty());
    assert_eq!(limiter.outages(), ratekeeper::Outages::default(), "nothing to ask, nothing to miss");
}

#[tokio::test]
async fn a_ramp_keeps_whom_it_has_and_a_switch_ends_by_itself() {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let limiter = limiter(MemoryStore::with_clock(10_000, Arc::new(clock.clone())));
    let control = limiter.store().control();
    let users: Vec<String> = (0..200).map(|user| format!("user:{user}")).collect();
    for user in &users {
        limiter.check(user).await.unwrap();
    }
    let denied = async || {
        let mut denied = Vec::new();
        for user in &users {
            if !limiter.check(user).await.unwrap().is_allowed() {
                denied.push(user.clone());
            }
        }
        denied
    };
    let mut before = Vec::new();
    for percent in [0, 10, 50, 100] {
        let ramp = Switch { enforce_percent: Some(percent), ..Switch::default() };
        control.set_switch("api", ramp).await.unwrap();
        let now = denied().await;
        assert!(before.iter().all(|user| now.contains(user)), "{percent} keeps whom it had");
        before = now;
    }
    assert_eq!(before.len(), users.len());

    let end = clock.now().after(Duration::from_secs(1_800));
    let monitor = Switch { mode: Some(Mode::Monitor), until: Some(end), ..Switch::default() };
    control.set_switch("api", monitor).await.unwrap();
    assert!(denied().await.is_empty());
    clock.set(end);
    assert_eq!(denied().await.len(), users.len(), "after half an hour it is on again");

    let block = Switch { emergency: Emergency::Block, ..Switch::default() };
    control.set_switch("other", block).await.unwrap();
    let decision = limiter.check("someone new").await.unwrap();
    assert!(!decision.is_allowed());
    assert_eq!(decision.strictest().unwrap().level(), Level::Emergency);
}

/// At the bound no switch can be added, and every one that is there can be changed, on a server and in memory.
#[tokio::test]
async fn a_switch_that_exists_can_be_changed_at_the_bound() {
    let server = Server::start(Flavour::Redis7);
    let on_server = store(&server, "");
    on_server.set_switch("rule-0", switch("mode=off")).await.unwrap();
    let key = crate::setup::keys(&server).remove(0);
    let rules = (0..SWITCHES_MAX).map(|number| format!("rule-{number}"));
    let fields: Vec<String> = rules.clone().flat_map(|rule| [rule, "mode=off".to_owned()]).collect();
    let fields = fields.iter().map(String::as_str);
    let _ = server.cli(&["HSET", &key].into_iter().chain(fields).collect::<Vec<&str>>());
    let in_memory = MemoryStore::new();
    for rule in rules {
        in_memory.set_switch(&rule, switch("mode=off")).await.unwrap();
    }
    for store in [&on_server as &dyn Control, &in_memory] {
        store.set_switch("rule-7", switch("mode=monitor")).await.unwrap();
        let error = store.set_switch("one-more", switch("mode=monitor")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Capacity, "{error}");
        assert!(store.clear_switch("rule-8").await.unwrap());
        store.set_switch("one-more", switch("mode=monitor")).await.unwrap();
        // One that is over gives way.
        store.set_switch("rule-9", switch("mode=off until=1")).await.unwrap();
        store.set_switch("and-another", switch("mode=monitor")).await.unwrap();
        assert!(!store.clear_switch("rule-9").await.unwrap());
    }
    assert_eq!(server.cli(&["HGET", &key, "rule-7"]), "mode=monitor");
}
