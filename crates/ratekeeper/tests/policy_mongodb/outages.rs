//! The server goes away and comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper::policy::source::mongodb::{MongoSource, MongoSourceError};
use ratekeeper_testkit::servers::BlackHole;

use crate::setup::{DEADLINE, Setup, book, document};

/// Short, so that silence is noticed soon; long enough for a server that is there on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a deadline may be late by on a busy machine; the driver alone would wait for half a minute.
const SLACK: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_killed_server_leaves_the_policies_and_comes_back() {
    let mut setup = Setup::own();
    setup.put(document("a", "1", 1)).await;
    let source = setup.source().deadline(PATIENCE).build().unwrap();
    let watch = source.start(&setup.policies).await.unwrap();
    let policy = setup.policy("a").unwrap();
    setup.server.kill();
    let begin = Instant::now();
    let failure = watch.refresh().await.unwrap_err();
    assert!(begin.elapsed() < PATIENCE + SLACK, "{:?}", begin.elapsed());
    assert!(matches!(failure, MongoSourceError::Unavailable { .. }), "{failure}");
    assert!(Arc::ptr_eq(&policy, &setup.policy("a").unwrap()));
    assert!(setup.failure().is_some());
    setup.server.restart();
    setup.put(document("a", "2", 2)).await;
    refreshed(&watch).await;
    assert_eq!((setup.limits("a", "x").await, setup.failure()), (vec![2], None));
}

#[tokio::test]
async fn a_silent_server_costs_no_more_than_the_deadline() {
    let setup = Setup::own();
    setup.put(document("a", "1", 1)).await;
    let source = setup.source().deadline(PATIENCE).build().unwrap();
    let watch = source.start(&setup.policies).await.unwrap();
    setup.server.pause();
    let begin = Instant::now();
    let failure = watch.refresh().await.unwrap_err().to_string();
    assert!(begin.elapsed() < PATIENCE + SLACK, "{:?}", begin.elapsed());
    assert!(failure.contains("no answer within 5s"), "{failure}");
    assert_eq!(setup.limits("a", "x").await, [1]);
    setup.server.resume();
    setup.put(document("a", "2", 2)).await;
    refreshed(&watch).await;
    assert_eq!((setup.limits("a", "x").await, setup.failure()), (vec![2], None));
}

/// Asks until the server answers: the driver may find out later than we do.
async fn refreshed(watch: &ratekeeper::policy::source::mongodb::MongoWatch) {
    let end = Instant::now() + DEADLINE;
    while let Err(failure) = watch.refresh().await {
        assert!(Instant::now() < end, "{failure}");
    }
}

#[tokio::test]
async fn a_start_without_server_and_copy_fails_in_time_and_leaves_nothing_behind() {
    let hole = BlackHole::start();
    let policies = book();
    let url = format!("mongodb://ann:s3cret-word@127.0.0.1:{}/?authSource=admin", hole.port());
    let source = MongoSource::builder(&url).deadline(Duration::from_millis(200)).build().unwrap();
    let begin = Instant::now();
    let failure = source.start(&policies).await.unwrap_err();
    assert!(begin.elapsed() < SLACK, "{:?}", begin.elapsed());
    let text = failure.to_string();
    assert!(
        text.starts_with(&format!("mongodb://127.0.0.1:{}/ratekeeper.policies: ", hole.port())),
        "{text}"
    );
    assert!(!format!("{failure:?} {text}").contains("s3cret-word"));
    assert!(policies.status().is_empty());
}

#[tokio::test]
async fn a_watch_that_was_stopped_asks_no_more() {
    let setup = Setup::own();
    setup.put(document("a", "1", 1)).await;
    let watch = setup.start().await;
    setup.server.pause();
    // In the middle of a poll.
    let polling = tokio::time::timeout(Duration::from_millis(50), watch.refresh()).await;
    assert!(polling.is_err());
    watch.stop();
    setup.server.resume();
    setup.put(document("a", "2", 2)).await;
    assert_eq!(setup.limits("a", "x").await, [1]);
}
