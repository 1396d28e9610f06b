//! Limits of their own for projects and organisations: set, found, listed, gone.

use std::time::Duration;

use ratekeeper::{Charge, Level, Override, OverrideScope, RedisStore, Store, StoreErrorKind};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::setup::{ask, charge, is_allowed, keys, left, quota, store, until};

fn project<'a>(endpoint: &'a str, organisation: &'a str, project: &'a str) -> OverrideScope<'a> {
    OverrideScope::project(endpoint, organisation, project).unwrap()
}

/// A charge of a project, three an hour unless overridden.
fn search<'a>(subject: &'a str, project: &'a str) -> Charge<'a> {
    let scope = OverrideScope::project("/search", "1", project).unwrap();
    charge("search", subject, quota("3/h fixed_window")).overridable(scope)
}

async fn set(store: &RedisStore, scope: OverrideScope<'_>, limit: u64) {
    store.overrides().set(scope, Override::limit(limit)).await.unwrap();
}

/// The limit in force for a charge, and who set it.
async fn in_force(store: &RedisStore, charge: &Charge<'_>) -> (u32, Level) {
    let decision = ask(store, &charge.cost(0).unwrap()).await.unwrap();
    (decision.verdicts()[0].quota().limit(), decision.verdicts()[0].level())
}

#[tokio::test]
async fn an_override_can_be_set_found_and_deleted() {
    for (flavour, prefix) in Flavour::ALL.into_iter().zip(["", "app:", "{app}*"]) {
        let server = Server::start(flavour);
        let store = store(&server, prefix).await;
        let overrides = store.overrides();
        let scope = project("/datasets/{dataset_id}/search", "1", "2");
        for scope in [scope, scope.without_project()] {
            assert_eq!(overrides.get(scope).await.unwrap(), None);
            assert!(!overrides.delete(scope).await.unwrap(), "there was none");
            let whole = Override {
                limit: 1_000_000_000,
                window: Some(Duration::from_millis(86_400_500)),
                expires_at: Some(store.now().after(Duration::from_secs(3_600))),
                reason: "a \"launch\"\r\nin \u{1F680}".into(),
                author: "ann <ann@example.org>".into(),
            };
            overrides.set(scope, whole.clone()).await.unwrap();
            assert_eq!(overrides.get(scope).await.unwrap(), Some(whole), "{flavour}");
            let bare = Override::limit(7);
            overrides.set(scope, bare.clone()).await.unwrap();
            assert_eq!(overrides.get(scope).await.unwrap(), Some(bare), "it replaces the one before");
        }
        assert_eq!(overrides.get(project("/datasets/{dataset_id}/search", "1", "3")).await.unwrap(), None);
        assert!(overrides.delete(scope).await.unwrap());
        assert!(!overrides.delete(scope).await.unwrap());
        assert!(overrides.get(scope.without_project()).await.unwrap().is_some(), "the other one stays");
        assert!(keys(&server).iter().all(|key| key.starts_with(prefix)));
    }
}

#[tokio::test]
async fn what_no_quota_could_follow_is_refused() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let note = "x".repeat(513);
    let wrong = [
        (Override::limit(0), "limit"),
        (Override::limit(1_000_000_001), "limit"),
        (Override { window: Some(Duration::from_micros(1_500)), ..Override::limit(1) }, "window"),
        (Override { window: Some(Duration::from_secs(367 * 86_400)), ..Override::limit(1) }, "window"),
        (Override { reason: note.clone(), ..Override::limit(1) }, "reason of 513 bytes"),
        (Override { author: note, ..Override::limit(1) }, "author of 513 bytes"),
    ];
    for (to, named) in wrong {
        let error = store.overrides().set(project("/search", "1", "2"), to).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Input);
        let input = error.into_input().unwrap().to_string();
        assert!(input.contains(named), "{input}");
    }
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn listing_is_in_order_and_of_nobody_else() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "app:").await;
    let endpoints = ["/b", "/a:1:2", "/a", "/{id}", "/caf\u{e9}", "/a:1"];
    for (limit, endpoint) in (1..).zip(endpoints) {
        set(&store, project(endpoint, "1", "2"), limit).await;
        set(&store, project(endpoint, "1", "2").without_project(), 10 * limit).await;
        // Whose names end alike.
        for (organisation, other) in [("11", "2"), ("1", "12"), ("1", "*"), ("?", "2"), ("x:1", "2")] {
            set(&store, project(endpoint, organisation, other), 99).await;
        }
    }
    let overrides = store.overrides();
    let listed = async |of| {
        let list = overrides.list("1", of).await.unwrap();
        list.into_iter().map(|(endpoint, found)| (endpoint, found.limit)).collect::<Vec<_>>()
    };
    let expected = |by: u64| {
        let sorted = [("/a", 3), ("/a:1", 6), ("/a:1:2", 2), ("/b", 1), ("/caf\u{e9}", 5), ("/{id}", 4)];
        sorted.map(|(endpoint, limit)| (endpoint.to_owned(), by * limit)).to_vec()
    };
    assert_eq!(listed(Some("2")).await, expected(1));
    assert_eq!(listed(None).await, expected(10));
    assert_eq!(listed(Some("*")).await.len(), endpoints.len());
    assert_eq!(listed(Some("3")).await, []);

    assert_eq!(overrides.clear("1", Some("2")).await.unwrap(), 6);
    assert_eq!(overrides.clear("1", Some("2")).await.unwrap(), 0);
    assert_eq!((listed(Some("2")).await, listed(None).await), (Vec::new(), expected(10)));
    assert_eq!(overrides.clear("1", None).await.unwrap(), 6);
    assert_eq!(server.cli(&["DBSIZE"]), (5 * endpoints.len()).to_string(), "the others' stay");
}

#[tokio::test]
async fn listing_among_many_keys_blocks_nobody() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let fill = "for i = 1, 20000 do redis.call('SET', 'other:' .. i, i) end";
    assert_eq!(server.cli(&["EVAL", fill, "0"]), "");
    for endpoint in ["/a", "/b"] {
        set(&store, project(endpoint, "1", "2"), 5).await;
    }
    assert_eq!(server.cli(&["CONFIG", "RESETSTAT"]), "OK");
    assert_eq!(store.overrides().list("1", Some("2")).await.unwrap().len(), 2);
    assert_eq!(store.overrides().clear("1", Some("2")).await.unwrap(), 2);
    let stats = server.cli(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_scan:") && !stats.contains("cmdstat_keys:"), "{stats}");
}

#[tokio::test]
async fn an_override_is_each_projects_own_limit() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let projects = [search("project 1", "1"), search("project 2", "2")];
    set(&store, projects[0].override_scope().unwrap().without_project(), 5).await;
    for own in &projects {
        for expected in [true, true, true, true, true, false] {
            assert_eq!(is_allowed(&store, own).await, expected, "five for each, not for both");
        }
    }
    let [one, two] = projects;
    set(&store, one.override_scope().unwrap(), 8).await;
    assert_eq!(in_force(&store, &one).await, (8, Level::Project));
    assert_eq!(in_force(&store, &two).await, (5, Level::Organisation));
    assert!(is_allowed(&store, &one).await && !is_allowed(&store, &two).await);
    assert!(store.overrides().delete(one.override_scope().unwrap()).await.unwrap());
    assert_eq!(in_force(&store, &one).await, (5, Level::Organisation));
    assert_eq!(store.overrides().clear("1", None).await.unwrap(), 1);
    assert_eq!(in_force(&store, &one).await, (3, Level::Default));
    assert_eq!(left(&store, &one).await, 0, "what was used stays used");
}

#[tokio::test]
async fn an_override_ends_by_itself() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        let own = search("project 1", "1");
        let scope = own.override_scope().unwrap();
        let end = store.now().after(Duration::from_millis(150));
        let brief = Override { expires_at: Some(end), ..Override::limit(9) };
        store.overrides().set(scope, brief.clone()).await.unwrap();
        assert_eq!(store.overrides().get(scope).await.unwrap(), Some(brief), "{flavour}");
        assert_eq!(store.overrides().list("1", Some("1")).await.unwrap().len(), 1);
        until("the override is over", async || {
            let decision = ask(&store, &own.cost(0).unwrap()).await.unwrap();
            let is_over = decision.verdicts()[0].level() == Level::Default;
            assert_eq!(is_over, decision.at() >= end, "not before, nor after: on {flavour}");
            is_over
        })
        .await;
        until("and its key is gone", async || keys(&server).is_empty()).await;
        assert_eq!(store.overrides().get(scope).await.unwrap(), None);
        assert_eq!(store.overrides().list("1", Some("1")).await.unwrap(), []);
        assert!(!store.overrides().delete(scope).await.unwrap());

        // One that others made ends with its key.
        let key = "ratelimit_override:/search:1:1";
        assert_eq!(server.cli(&["HSET", key, "max_requests", "4", "expiry", "60"]), "2");
        assert_eq!(server.cli(&["PEXPIRE", key, "5000"]), "1");
        let found = store.overrides().get(scope).await.unwrap().unwrap();
        let left = found.expires_at.unwrap().as_micros() - store.now().as_micros();
        assert!((1..=5_000_000).contains(&left), "{left} of 5000000 microseconds left");
        assert_eq!((found.limit, found.window), (4, Some(Duration::from_secs(60))));
        assert_eq!(server.cli(&["PEXPIRE", key, "1"]), "1");
        until("its key is gone", async || in_force(&store, &own).await.1 == Level::Default).await;
    }
}

#[tokio::test]
async fn an_override_in_the_past_is_none() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let own = search("project 1", "1");
    let key = "ratelimit_override:/search:1:1";
    // As after a clock that was set, or a time to live that was taken away by hand.
    let over = store.now().as_micros() - 1;
    assert_eq!(server.cli(&["HSET", key, "max_requests", "9", "expires_at", &over.to_string()]), "2");
    assert_eq!(in_force(&store, &own).await, (3, Level::Default));
    assert_eq!(store.overrides().get(own.override_scope().unwrap()).await.unwrap(), None);
    assert_eq!(store.overrides().list("1", Some("1")).await.unwrap(), []);
    assert!(!store.overrides().delete(own.override_scope().unwrap()).await.unwrap(), "none that applied");
    assert_eq!(keys(&server), [""; 0], "but it is gone now");
}
