//! The audit log: the same for all instances, cut to its bound, and there after a restart.

use ratekeeper::bounds::AUDIT_LINES_MAX;
use ratekeeper::{Audit, RedisStore, Store};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{PATIENCE, fresh_prefix};

fn store(server: &Server, prefix: &str) -> RedisStore {
    RedisStore::builder(&server.url()).prefix(prefix).deadline(PATIENCE).build().unwrap()
}

async fn lines(store: &RedisStore, skip: usize, count: usize) -> Vec<String> {
    store.audit().latest(skip, count).await.unwrap()
}

#[tokio::test]
async fn every_instance_reads_the_newest_lines_first() {
    for flavour in Flavour::ALL {
        let (server, prefix) = (Server::start(flavour), fresh_prefix());
        let (one, other) = (store(&server, &prefix), store(&server, &prefix));
        assert_eq!(lines(&other, 0, 5).await, [""; 0]);
        for line in ["first", "second", "third"] {
            one.append(line).await.unwrap();
        }
        assert_eq!(lines(&other, 0, 5).await, ["third", "second", "first"]);
        assert_eq!(lines(&other, 1, 1).await, ["second"]);
        assert_eq!(lines(&other, 3, 1).await, [""; 0]);
        assert_eq!(lines(&other, 0, 0).await, [""; 0]);
        let wrong = one.append("two\nlines").await.unwrap_err().into_input().unwrap();
        assert!(wrong.to_string().starts_with("audit: got "), "{wrong}");
        // Another prefix is another store.
        assert_eq!(lines(&store(&server, &fresh_prefix()), 0, 5).await, [""; 0]);
    }
}

#[tokio::test]
async fn the_oldest_lines_are_dropped_at_the_bound() {
    let (server, prefix) = (Server::start(Flavour::Valkey9), fresh_prefix());
    let (store, key) = (store(&server, &prefix), format!("{prefix}rk:audit"));
    let mut fill: Vec<String> = vec!["RPUSH".to_owned(), key.clone()];
    fill.extend((0..AUDIT_LINES_MAX).map(|number| number.to_string()));
    let _ = server.cli(&fill.iter().map(String::as_str).collect::<Vec<_>>());
    store.append("new").await.unwrap();
    assert_eq!(server.cli(&["LLEN", &key]), AUDIT_LINES_MAX.to_string());
    assert_eq!(lines(&store, 0, 2).await, ["new", &(AUDIT_LINES_MAX - 1).to_string()]);
    assert_eq!(lines(&store, AUDIT_LINES_MAX - 1, 9).await, ["1"]);
}
