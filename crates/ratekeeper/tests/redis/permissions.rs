//! The least that a user of the server must be allowed: all of it is needed, and
//! nothing else. The lists are those of `docs/redis.md`.

use std::time::Duration;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper::{
    Check, Control, Override, OverrideScope, RedisStore, Reservation, Store, StoreError, StoreErrorKind,
    Switch,
};
use ratekeeper_testkit::history::{histories, run};
use ratekeeper_testkit::servers::{Flavour, Server};
use ratekeeper_testkit::vectors;

use crate::engine::{RedisEngine, builder, fresh_prefix, runtime};
use crate::setup::{DOCS, ask, charge, quota, together};

/// What every instance needs.
const SERVICE: &str = "+script|load +evalsha +eval +time +exists +get +mget +set +setrange +del +pexpire \
    +pttl +incrby +hmget +hgetall +llen +lindex +lset +rpush";
/// What those need beside it who set overrides and switches.
const OPERATOR: &str = "+hset +hdel +hlen +scan +lrange +ltrim";
/// What makes checks under an override cheaper; operators alone have the first of the two and not the second.
const FASTER: &str = "+hlen +hget";
const KEYS: [&str; 4] = ["rk:*", "ratelimit:*", "ratelimit_override:*", "ratelimit_org_override:*"];

/// Makes the user `app` anew: with these commands on these keys, and nothing else.
fn allow(server: &Server, commands: &[&str], keys: &[String]) -> String {
    let mut user = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret"];
    user.extend(keys.iter().map(String::as_str));
    user.extend(commands);
    assert_eq!(server.cli(&user), "OK");
    format!("redis://app:secret@127.0.0.1:{}", server.port())
}

fn all_commands() -> Vec<&'static str> {
    SERVICE.split_whitespace().chain(OPERATOR.split_whitespace()).collect()
}

fn all_keys(prefix: &str) -> Vec<String> {
    KEYS.map(|key| format!("~{prefix}{key}")).into()
}

#[test]
fn the_documents_name_the_same() {
    let text = DOCS.split_whitespace().collect::<Vec<_>>().join(" ");
    let keys = all_keys("").join(" ");
    for part in [SERVICE, OPERATOR, FASTER, &keys] {
        let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&part), "docs/redis.md lacks {part}");
    }
}

#[test]
fn they_suffice() {
    for flavour in Flavour::ALL {
        let (server, runtime) = (Server::start(flavour), runtime());
        // All of the stores to come have prefixes of their own.
        let url = allow(&server, &all_commands(), &all_keys("t*:"));
        assert!(vectors::run_all(|| RedisEngine::new(&url, &runtime)) > 800);
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        for _ in 0..60 {
            let history = histories(60).new_tree(&mut runner).unwrap().current();
            run(&mut RedisEngine::new(&url, &runtime), &history).unwrap();
        }
    }
}

/// What came of a tour: how many calls passed, and what the others met.
#[derive(Debug, Default)]
struct Tour {
    passed: usize,
    refused: Vec<StoreError>,
}

impl Tour {
    fn note<T>(&mut self, result: Result<T, StoreError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.passed += 1;
                Some(value)
            }
            Err(error) => {
                self.refused.push(error);
                None
            }
        }
    }

    /// Everything a service does.
    async fn serve(&mut self, store: &RedisStore) {
        self.note(store.ping().await);
        let scope = OverrideScope::project("/x", "7", "42").unwrap();
        let kit = charge("kit", "/x:7:42", quota("9/h fixed_window")).overridable(scope);
        let bucket = charge("q", "s", quota("9/h")).overridable(scope);
        let window = charge("w", "s", quota("9/h sliding_window"));
        let lease = charge("q", "s", quota("9/h concurrency"));
        let log = charge("q", "s", quota("9/60ms sliding_log"));
        for own in [kit, kit, bucket, bucket, window, lease, lease, lease, log] {
            self.note(ask(store, &own).await);
        }
        self.note(store.check(&together(&[bucket, window]).check().unwrap()).await);
        for own in [kit, bucket, lease] {
            if let Some(decision) = self.note(ask(store, &own).await) {
                self.note(store.refund(&Check::one(&own), &decision, 1).await);
            }
        }
        let hold = Reservation::hold("id", Duration::from_secs(60)).unwrap();
        self.note(store.reserve(&Check::one(&bucket), &hold).await);
        self.note(store.settle(b"id", Some(2)).await);
        // Entries that leave one by one.
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(15)).await;
            self.note(ask(store, &log).await);
        }
        self.note(ask(store, &log).await);
        self.note(store.reset(kit.key(), kit.quota().algorithm()).await);
        self.note(store.reset(lease.key(), lease.quota().algorithm()).await);
    }

    /// Everything an operator does, and what services then meet.
    async fn operate(&mut self, store: &RedisStore) {
        let scope = OverrideScope::project("/x", "7", "42").unwrap();
        let end = store.now().after(Duration::from_secs(60));
        let to = Override { expires_at: Some(end), ..Override::limit(9) };
        for scope in [scope, scope.without_project()] {
            self.note(store.overrides().set(scope, to.clone()).await);
            self.note(store.overrides().get(scope).await);
        }
        let bucket = charge("q", "s", quota("9/h")).overridable(scope);
        self.note(ask(store, &bucket).await);
        self.note(store.overrides().list("7", Some("42")).await);
        self.note(store.overrides().clear("7", None).await);
        let switch: Switch = "mode=monitor".parse().unwrap();
        self.note(store.set_switch("q", switch).await);
        self.note(store.clear_switch("q").await);
        self.note(store.audit().append("a line").await);
        self.note(store.audit().latest(0, 1).await);
    }
}

/// All that anybody does, as the user `app`.
async fn tour(url: &str, prefix: &str) -> Tour {
    let store = builder(url).prefix(prefix).build().unwrap();
    let mut tour = Tour::default();
    tour.serve(&store).await;
    tour.operate(&store).await;
    tour
}

async fn none_is_too_many_on(flavour: Flavour) {
    let server = Server::start(flavour);
    let url = allow(&server, &all_commands(), &all_keys(""));
    let whole = tour(&url, "").await;
    assert!(whole.refused.is_empty(), "{flavour}: {whole:?}");
    for missing in all_commands() {
        assert_eq!(server.cli(&["FLUSHALL"]), "OK");
        assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
        let commands: Vec<&str> = all_commands().into_iter().filter(|one| *one != missing).collect();
        allow(&server, &commands, &all_keys(""));
        let tour = tour(&url, "").await;
        assert!(!tour.refused.is_empty(), "{missing} is not needed on {flavour}");
        for error in &tour.refused {
            assert_eq!(error.kind(), StoreErrorKind::Permission, "without {missing}, {flavour}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}

#[tokio::test]
async fn none_is_too_many_on_redis_7() {
    none_is_too_many_on(Flavour::Redis7).await;
}

#[tokio::test]
async fn none_is_too_many_on_redis_6_2() {
    none_is_too_many_on(Flavour::Redis62).await;
}

#[tokio::test]
async fn none_is_too_many_on_valkey_9() {
    none_is_too_many_on(Flavour::Valkey9).await;
}

#[tokio::test]
async fn keys_of_others_are_out_of_reach() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        for prefix in ["", &fresh_prefix()] {
            let url = allow(&server, &all_commands(), &all_keys(prefix));
            let whole = tour(&url, prefix).await;
            assert!(whole.refused.is_empty(), "{flavour}, prefix {prefix:?}: {whole:?}");
            let elsewhere = tour(&url, "other:").await;
            assert!(elsewhere.refused.iter().all(|error| error.kind() == StoreErrorKind::Permission));
            assert!(elsewhere.refused.len() > elsewhere.passed, "{flavour}: {elsewhere:?}");
            for missing in all_keys(prefix) {
                let some: Vec<String> = all_keys(prefix).into_iter().filter(|key| *key != missing).collect();
                let url = allow(&server, &all_commands(), &some);
                let tour = tour(&url, prefix).await;
                assert!(!tour.refused.is_empty() && tour.passed > 0, "{missing} on {flavour}");
                let kinds = tour.refused.iter().map(StoreError::kind);
                assert!(kinds.into_iter().all(|kind| kind == StoreErrorKind::Permission), "{tour:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_service_that_only_checks_can_change_no_limit() {
    let server = Server::start(Flavour::Redis7);
    let commands: Vec<&str> = SERVICE.split_whitespace().collect();
    let url = allow(&server, &commands, &all_keys(""));
    let store = builder(&url).build().unwrap();
    let mut tour = Tour::default();
    tour.serve(&store).await;
    assert!(tour.refused.is_empty(), "{tour:?}");
    let scope = OverrideScope::project("/x", "7", "42").unwrap();
    let error = store.overrides().set(scope, Override::limit(9)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Permission);
    let error = store.set_switch("q", "mode=off".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Permission);
}

#[tokio::test]
async fn another_database_takes_one_command_more() {
    let server = Server::start(Flavour::Redis7);
    let mut commands = all_commands();
    let url = format!("{}/1", allow(&server, &commands, &all_keys("")));
    assert!(builder(&url).build().unwrap().ping().await.is_err());
    commands.push("+select");
    allow(&server, &commands, &all_keys(""));
    let tour = tour(&url, "").await;
    assert!(tour.refused.is_empty(), "{tour:?}");
}
