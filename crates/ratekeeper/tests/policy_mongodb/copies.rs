//! The local copy, for a start while the server is away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mongodb::bson::{DateTime, doc};
use ratekeeper::policy::source::mongodb::MongoSourceBuilder;
use tempfile::TempDir;

use crate::setup::{Setup, book, document};

/// No server is there to wait for.
const PATIENCE: Duration = Duration::from_millis(300);

struct Copy {
    folder: TempDir,
}

impl Copy {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("policies.json")
    }

    fn of(&self, setup: &Setup) -> MongoSourceBuilder {
        setup.source().copy(self.path())
    }
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[tokio::test]
async fn a_start_without_the_server_takes_the_copy_and_says_so() {
    let (mut setup, copy) = (Setup::own(), Copy::new());
    let updated = DateTime::from_millis(1_760_106_180_000);
    setup.put(document("a", updated, 7.0)).await;
    setup.put(document("b", "1", 2)).await;
    let watch = copy.of(&setup).build().unwrap().start(&setup.policies).await.unwrap();
    assert!(!watch.is_from_copy() && watch.copy_failure().is_none());
    assert_eq!(fs::metadata(copy.path()).unwrap().permissions().mode() & 0o777, 0o600);
    // A refused document does not take the place of the good one, nor a deleted one stay.
    setup.put(document("a", "3", -1)).await;
    setup.delete("b").await;
    watch.refresh().await.unwrap();
    watch.stop();
    setup.server.kill();

    setup.policies = book();
    let watch = copy.of(&setup).deadline(PATIENCE).build().unwrap().start(&setup.policies).await.unwrap();
    assert!(watch.is_from_copy());
    assert_eq!(setup.limits("a", "x").await, [7]);
    assert!(setup.policy("b").is_none());
    let failure = setup.failure().unwrap();
    assert!(failure.contains("; the policies in force (1) are from the local copy /"), "{failure}");
    assert!(watch.refresh().await.is_err() && watch.is_from_copy());
    watch.stop();

    setup.server.restart();
    setup.put(document("c", "1", 3)).await;
    setup.policies = book();
    let watch = copy.of(&setup).build().unwrap().start(&setup.policies).await.unwrap();
    assert!(!watch.is_from_copy());
    assert_eq!(setup.limits("c", "x").await, [3]);
    assert_eq!(setup.limits("a", "x").await, [7], "wrong at the server, good in the copy");
    assert!(setup.refusal("a").unwrap().contains("got -1"));
    assert_eq!(setup.failure(), None);
    assert_eq!(files(copy.folder.path()), 1, "nothing is left lying about");
}

#[tokio::test]
async fn what_is_gone_from_the_server_is_gone_although_it_was_copied() {
    let (setup, copy) = (Setup::new(), Copy::new());
    setup.put(document("a", "1", 1)).await;
    copy.of(&setup).build().unwrap().start(&setup.policies).await.unwrap().stop();
    setup.delete("a").await;
    let policies = book();
    let watch = copy.of(&setup).build().unwrap().start(&policies).await.unwrap();
    assert!(policies.policy("a").is_none());
    watch.stop();
    assert!(!fs::read_to_string(copy.path()).unwrap().contains("general_rate_limit"));
}

#[tokio::test]
async fn an_unchanged_document_is_not_put_into_force_again() {
    let (setup, copy) = (Setup::new(), Copy::new());
    setup.put(document("a", DateTime::now(), 1.0)).await;
    copy.of(&setup).build().unwrap().start(&setup.policies).await.unwrap().stop();
    let policies = book();
    copy.of(&setup).build().unwrap().start(&policies).await.unwrap().stop();
    assert_eq!(policies.status_of("a").unwrap().installed, 1, "from the copy; the server has the same");
}

#[tokio::test]
async fn a_copy_that_is_no_good_is_told_and_written_anew() {
    let (mut setup, copy) = (Setup::own(), Copy::new());
    setup.put(document("a", "1", 1)).await;
    let wrong = [
        ("", "it is not a copy"),
        ("{\"format\": 1, \"of\"", "it is not a copy"),
        ("{}", "got no `format`"),
        ("{\"format\": 2}", "another format"),
        ("{\"format\": 1, \"of\": \"other.policies\", \"documents\": []}", "another collection"),
        ("\u{0}\u{1}\u{2}", "it is not a copy"),
    ];
    setup.server.kill();
    for (text, expected) in wrong {
        fs::write(copy.path(), text).unwrap();
        let source = copy.of(&setup).deadline(PATIENCE).build().unwrap();
        let failure = source.start(&setup.policies).await.unwrap_err().to_string();
        assert!(failure.contains("; and its local copy: ") && failure.contains(expected), "{failure}");
        assert_eq!(fs::read_to_string(copy.path()).unwrap(), text, "an outage does not overwrite it");
    }
    setup.server.restart();
    let watch = copy.of(&setup).build().unwrap().start(&setup.policies).await.unwrap();
    assert_eq!((setup.limits("a", "x").await, watch.copy_failure()), (vec![1], None));
    assert!(fs::read_to_string(copy.path()).unwrap().contains("\"_id\":\"a\""), "it is good again");
    setup.delete("a").await;
    fs::write(copy.path(), "{}").unwrap();
    let watch = copy.of(&setup).build().unwrap().start(&book()).await.unwrap();
    assert_eq!(watch.copy_failure(), None, "although there is nothing to copy");
}

#[tokio::test]
async fn a_copy_that_cannot_be_written_stops_nothing() {
    let (setup, copy) = (Setup::new(), Copy::new());
    setup.put(document("a", "1", 1)).await;
    let source = copy.of(&setup).build().unwrap();
    // Not a permission, which root would not need.
    fs::create_dir(copy.path()).unwrap();
    let watch = source.start(&setup.policies).await.unwrap();
    assert_eq!(setup.limits("a", "x").await, [1]);
    assert!(watch.copy_failure().unwrap().contains("directory"), "{:?}", watch.copy_failure());
    assert_eq!(files(copy.folder.path()), 1, "what was written aside is gone");
    fs::remove_dir(copy.path()).unwrap();
    watch.refresh().await.unwrap();
    assert!(watch.copy_failure().is_none() && copy.path().is_file());
}

#[tokio::test]
async fn everything_that_a_document_holds_comes_back_from_the_copy() {
    let (mut setup, copy) = (Setup::own(), Copy::new());
    let key = "tenant:\"q\"\\ \u{1f600}";
    let custom = doc! { key: { "rps": 3_i64 } };
    let rule =
        doc! { "name": "per-ip", "keys": ["ip:{client.ip}"], "quota": "100/s", "allow": ["10.0.0.0/8"] };
    setup
        .put(doc! {
            "_id": "a", "last_updated": DateTime::now(), "general_rate_limit": { "rps": 20.0 },
            "custom_rate_limits": custom, "rules": [rule], "hash_keys": true,
        })
        .await;
    copy.of(&setup).build().unwrap().start(&setup.policies).await.unwrap().stop();
    assert!(setup.refusal("a").is_none(), "{:?}", setup.refusal("a"));
    setup.server.kill();
    setup.policies = book();
    let source = copy.of(&setup).deadline(PATIENCE).build().unwrap();
    let _watch = source.start(&setup.policies).await.unwrap();
    assert_eq!(setup.limits("a", key).await, [3]);
    assert_eq!(setup.policy("a").unwrap().rules().collect::<Vec<_>>(), ["general", "per-ip"]);
}

#[tokio::test]
async fn only_the_named_services_are_taken_from_a_copy() {
    let (mut setup, copy) = (Setup::own(), Copy::new());
    setup.put(document("a", "1", 1)).await;
    setup.put(document("b", "1", 2)).await;
    copy.of(&setup).build().unwrap().start(&setup.policies).await.unwrap().stop();
    setup.server.kill();
    setup.policies = book();
    let source = copy.of(&setup).services(["b"]).deadline(PATIENCE).build().unwrap();
    let _watch = source.start(&setup.policies).await.unwrap();
    assert!(setup.policy("a").is_none());
    assert_eq!(setup.limits("b", "x").await, [2]);
}
