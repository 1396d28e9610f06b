//! The script against the decision tables and against the model.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use ratekeeper_testkit::history::{histories, run};
use ratekeeper_testkit::servers::{Flavour, Server};
use ratekeeper_testkit::vectors;

use crate::engine::{RedisEngine, runtime};

fn vectors_on(flavour: Flavour) {
    let (server, runtime) = (Server::start(flavour), runtime());
    let steps = vectors::run_all(|| RedisEngine::new(&server.url(), &runtime));
    assert!(steps > 800, "only {steps} steps");
}

#[test]
fn decision_tables_on_redis_7() {
    vectors_on(Flavour::Redis7);
}

#[test]
fn decision_tables_on_redis_6_2() {
    vectors_on(Flavour::Redis62);
}

#[test]
fn decision_tables_on_valkey_9() {
    vectors_on(Flavour::Valkey9);
}

/// Histories of this many events at most; on each server so many of them that
/// they come to 100,000 events and more.
const EVENTS_MAX: usize = 60;

fn histories_on(flavour: Flavour) {
    let (server, runtime) = (Server::start(flavour), runtime());
    let config = Config { cases: 4_000, failure_persistence: None, ..Config::default() };
    let events = AtomicUsize::new(0);
    let outcome = TestRunner::new(config).run(&histories(EVENTS_MAX), |history| {
        events.fetch_add(history.len(), Ordering::Relaxed);
        let mut engine = RedisEngine::new(&server.url(), &runtime);
        run(&mut engine, &history).map_err(TestCaseError::fail)
    });
    let events = events.into_inner();
    println!("{events} events on {flavour}");
    assert!(outcome.is_err() || events > 100_000, "only {events} events");
    outcome.unwrap_or_else(|difference| panic!("{flavour} and the model differ: {difference}"));
}

#[test]
fn random_histories_on_redis_7() {
    histories_on(Flavour::Redis7);
}

#[test]
fn random_histories_on_redis_6_2() {
    histories_on(Flavour::Redis62);
}

#[test]
fn random_histories_on_valkey_9() {
    histories_on(Flavour::Valkey9);
}
