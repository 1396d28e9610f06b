//! The binary with policies in a MongoDB: where they are, and what it does while that is away.

use mongodb::bson::{Document, doc};
use ratekeeper_testkit::servers::MongoServer;
use ratekeeper_testkit::wait;
use serde_json::json;
use tempfile::TempDir;

use crate::binary::{Running, command, refused};
use crate::rig::RUNTIME;

/// Puts a policy with one limit into a collection.
fn put(server: &MongoServer, collection: &str, rpm: i32) {
    RUNTIME.block_on(async {
        let client = mongodb::Client::with_uri_str(server.url()).await.unwrap();
        let collection = client.database(server.database()).collection::<Document>(collection);
        let document =
            doc! { "_id": "mongo", "last_updated": rpm.to_string(), "general_rate_limit": { "rpm": rpm } };
        collection.replace_one(doc! { "_id": "mongo" }, document).upsert(true).await.unwrap();
    });
}

fn limit(server: &Running) -> String {
    let answer = server.client().call("/v1/peek", &json!({ "service": "mongo", "key": "ann" }));
    answer.json()["limits"][0]["quota"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn policies_come_from_the_collection_that_is_named_and_from_the_copy_while_it_is_away() {
    let (mut mongo, folder) = (MongoServer::start_own(), TempDir::new().unwrap());
    put(&mongo, "limits", 7);
    let (url, database) = (mongo.url().to_owned(), mongo.database().to_owned());
    let copy = folder.path().join("policies.json").to_str().unwrap().to_owned();
    let settings = [
        "--http",
        "127.0.0.1:0",
        "--policy",
        &url,
        "--mongodb-database",
        &database,
        "--mongodb-collection",
        "limits",
        "--mongodb-interval",
        "100",
        "--mongodb-copy",
        &copy,
    ];
    let server = Running::start(&mut command(&settings));
    assert_eq!(limit(&server), "7/min fixed_window");
    put(&mongo, "limits", 70);
    wait::until("the interval is over", || limit(&server) == "70/min fixed_window");
    server.signal("TERM");
    let (_, logged) = server.end();
    mongo.kill();

    let without = refused(&mut command(&settings[..10]));
    assert!(without.contains("policy"), "{without}");
    let server = Running::start(&mut command(&settings));
    assert!(server.said.join("\n").contains("local copy"), "{:?} {logged}", server.said);
    assert_eq!(limit(&server), "70/min fixed_window");
}

/// Its servers are asked of the DNS, where no name of this kind can be.
#[test]
fn a_cluster_is_looked_for_under_its_name_in_the_dns() {
    let url = "mongodb+srv://ann:hunter2@cluster.invalid/policies";
    let error = refused(command(&["--http", "127.0.0.1:0"]).env("RATEKEEPER_POLICY", url));
    assert!(error.contains("policy: ") && error.contains("DNS"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn settings_that_are_wrong_are_named() {
    let cases: [(&[&str], &str); 3] = [
        (&["--mongodb-database", "a b"], "database"),
        (&["--mongodb-interval", "1"], "interval"),
        (&["--mongodb-copy", "/nowhere/at/all"], "copy"),
    ];
    for (arguments, name) in cases {
        let url = ["--http", "127.0.0.1:0", "--policy", "mongodb://127.0.0.1:1"];
        let error = refused(&mut command(&[&url[..], arguments].concat()));
        assert!(error.contains(name) && error.contains("expected"), "{name}: {error}");
    }
}
