//! A restart changes no decision.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use ratekeeper::{MemoryStore, Store as _};
use ratekeeper_testkit::{history, vectors, wait};
use tempfile::TempDir;

use crate::rig::{Restarting, charge, charge_of, clock, copied, now, open};

#[test]
fn the_decision_tables_hold_with_restarts_in_the_middle() {
    let steps = vectors::run_all_of_stores(|| Restarting::every(2));
    assert!(steps > 500, "{steps} steps");
}

#[test]
fn it_agrees_with_the_model_over_random_histories_with_restarts() {
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
    let result = runner.run(&history::histories(60), |history| {
        history::run(&mut Restarting::every(7), &history).map_err(TestCaseError::fail)
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn counters_of_more_than_a_minute_are_kept_and_the_others_begin_anew() {
    let (directory, clock) = (TempDir::new().unwrap(), clock());
    let open = || MemoryStore::builder().clock(Arc::new(clock.clone())).open(directory.path()).unwrap();
    let store = open();
    let quotas = ["2/min", "2/61s", "2/d", "2/min fixed_window", "2/h fixed_window", "2/d sliding_log"];
    for quota in quotas {
        assert_eq!(charge(&store, quota, quota), Some(1));
    }
    drop(store);
    let store = open();
    let left = quotas.map(|quota| charge(&store, quota, quota));
    assert_eq!(left, [Some(1), Some(0), Some(0), Some(1), Some(0), Some(0)]);
    assert!(charge(&store, "2/d", "2/d").is_none(), "it is exhausted");
    drop(store);
    clock.advance(Duration::from_secs(86_401));
    let store = open();
    assert!(store.is_empty(), "what is over is not taken along");
    assert_eq!(charge(&store, "2/d", "2/d"), Some(1));
}

/// Nobody waits for a second in a test: it looks until the writer has been there.
#[test]
fn counters_are_saved_behind_the_requests() {
    let (directory, clock) = (TempDir::new().unwrap(), clock());
    let store = open(directory.path(), &clock);
    (0..500).for_each(|key| assert!(charge(&store, &key.to_string(), "5/d").is_some()));
    let charged = Instant::now();
    // The store was opened before: only a save that began since is younger.
    wait::until("the writer has saved them", || store.health().data.unwrap().age < charged.elapsed());
    let (_directory, copy) = copied(directory.path());
    (0..500).for_each(|key| assert_eq!(charge(&copy, &key.to_string(), "5/d"), Some(3)));
    let data = store.health().data.unwrap();
    assert_eq!((data.failures, data.is_failing, data.was_damaged, data.unreadable), (0, false, false, 0));
}

#[test]
fn what_was_reset_stays_so() {
    let (directory, clock) = (TempDir::new().unwrap(), clock());
    let store = open(directory.path(), &clock);
    charge(&store, "ann", "1/d");
    store.flush().unwrap();
    let quota = "1/d".parse::<ratekeeper::Quota>().unwrap();
    let key = ratekeeper::Key::new(ratekeeper::Name::new("kept").unwrap(), "ann").unwrap();
    assert!(now(store.reset(key, quota.algorithm())).unwrap());
    drop(store);
    let store = open(directory.path(), &clock);
    assert_eq!(charge(&store, "ann", "1/d"), Some(0), "it is as good as new");
}

/// More than a shard lists, so that shards are written as a whole, and then fewer than before.
#[test]
fn a_smaller_store_keeps_what_it_has_room_for() {
    let (directory, clock) = (TempDir::new().unwrap(), clock());
    let store = open(directory.path(), &clock);
    for key in 0..20_000 {
        charge_of(&store, if key % 10 == 0 { "few" } else { "many" }, &key.to_string(), "5/d");
    }
    drop(store);
    let smaller = || {
        let store = MemoryStore::builder().max_keys(2_560).clock(Arc::new(clock.clone()));
        store.save_longer_than(Duration::ZERO).open(directory.path()).unwrap()
    };
    let store = smaller();
    let kept = store.len();
    assert!(kept <= 2_560 && kept > 2_000, "{kept}");
    let few = (0..2_000).filter(|key| charge_of(&store, "few", &(key * 10).to_string(), "5/d") == Some(3));
    assert!(few.count() > 500, "each rule has its share, as without a restart");
    drop(store);
    let store = open(directory.path(), &clock);
    assert!(store.len() <= 2_560, "what had to go is not in the file any more: {}", store.len());
}
