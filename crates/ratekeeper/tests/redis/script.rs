//! The script against the decision tables and against the model.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use ratekeeper_testkit::history::{histories, run};
use ratekeeper_testkit::servers::{Flavour, Server};
use ratekeeper_testkit::vectors;

use crate::engine::{RedisEngine, builder, runtime, script};

fn vectors_on(flavour: Flavour) {
    let (server, runtime) = (Server::start(flavour), runtime());
    let steps = vectors::run_all_of_stores(|| RedisEngine::new(&server.url(), &runtime));
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

/// The script with blocks of two entries, so that short histories fill, join and drop many.
fn of_small_blocks() -> String {
    let changes = [
        ("BLOCK_MAX, BLOCKS_MAX = 100, 256", "BLOCK_MAX, BLOCKS_MAX = 2, 256"),
        ("FEW_MAX, PLACES_MIN = 2, 8", "FEW_MAX, PLACES_MIN = 2, 3"),
    ];
    changes.into_iter().fold(script(), |script, (from, to)| {
        assert_eq!(script.matches(from).count(), 1, "{from}");
        script.replace(from, to)
    })
}

fn histories_on(flavour: Flavour) {
    let config = Config { cases: 4_000, failure_persistence: None, ..Config::default() };
    let events = compare(flavour, &script(), TestRunner::new(config));
    assert!(events > 100_000, "only {events} events");
}

/// Runs histories on a server and on the model; says how many events they had.
fn compare(flavour: Flavour, script: &str, mut runner: TestRunner) -> usize {
    let (server, runtime) = (Server::start(flavour), runtime());
    let events = AtomicUsize::new(0);
    let outcome = runner.run(&histories(EVENTS_MAX), |history| {
        events.fetch_add(history.len(), Ordering::Relaxed);
        let mut engine = RedisEngine::with(builder(&server.url()).script(script), &runtime);
        run(&mut engine, &history).map_err(TestCaseError::fail)
    });
    println!("{} events on {flavour}", events.load(Ordering::Relaxed));
    outcome.unwrap_or_else(|difference| panic!("{flavour} and the model differ: {difference}"));
    events.into_inner()
}

/// The same few histories every time: what the tests of the tests run.
#[test]
fn the_same_histories_on_redis_7() {
    let config = Config { cases: 400, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    compare(Flavour::Redis7, &script(), TestRunner::new_with_rng(config, rng));
}

#[test]
fn the_same_histories_in_small_blocks() {
    let config = Config { cases: 400, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    compare(Flavour::Redis7, &of_small_blocks(), TestRunner::new_with_rng(config, rng));
}

#[test]
fn random_histories_in_small_blocks() {
    let config = Config { cases: 1_000, failure_persistence: None, ..Config::default() };
    compare(Flavour::Redis7, &of_small_blocks(), TestRunner::new(config));
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
