//! Limits of their own for projects and organisations: set, found, listed, gone.

use std::time::Duration;

use ratekeeper::{
    Algorithm, Charge, Check, Level, MemoryStore, Model, Override, OverrideScope, RedisStore, Store,
    StoreErrorKind, Verdict,
};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::outages::logs;
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
        let until_then = |millis| {
            let end = store.now().after(Duration::from_millis(millis));
            (end, Override { expires_at: Some(end), ..Override::limit(9) })
        };
        let (_, lasting) = until_then(3_600_000);
        store.overrides().set(scope, lasting.clone()).await.unwrap();
        assert_eq!(store.overrides().get(scope).await.unwrap(), Some(lasting), "{flavour}");
        assert_eq!(store.overrides().list("1", Some("1")).await.unwrap().len(), 1);
        let (end, brief) = until_then(150);
        store.overrides().set(scope, brief).await.unwrap();
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
        assert_eq!(server.cli(&["PEXPIRE", key, "60000"]), "1");
        let found = store.overrides().get(scope).await.unwrap().unwrap();
        let left = found.expires_at.unwrap().as_micros() - store.now().as_micros();
        assert!((1..=60_000_000).contains(&left), "{left} of 60000000 microseconds left");
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
    let scope = own.override_scope().unwrap();
    let key = "ratelimit_override:/search:1:1";
    // Over since a moment, with a key that the server still has: all at one time of the server,
    // because an end that does not fit the key's is another's, and holds.
    let over = "local time = redis.call('TIME')
        local over = string.format('%.0f', time[1] * 1000000 + time[2] - 1)
        redis.call('HSET', KEYS[1], 'max_requests', '9', 'expires_at', over)
        redis.call('PEXPIRE', KEYS[1], 900)
        return ARGV[1] and redis.call(unpack(ARGV)) or 1";
    assert_eq!(server.cli(&["EVAL", over, "1", key]), "1");
    assert_eq!(in_force(&store, &own).await, (3, Level::Default));
    assert_eq!(store.overrides().get(scope).await.unwrap(), None);
    assert_eq!(store.overrides().list("1", Some("1")).await.unwrap(), []);
    assert!(!store.overrides().delete(scope).await.unwrap(), "none that applied");
    assert_eq!(keys(&server), [""; 0], "but it is gone now");
    // Another life for its key is another life for the override.
    for life in [["PEXPIRE", key, "60000"].as_slice(), &["PERSIST", key]] {
        assert_eq!(server.cli(&[&["EVAL", over, "1", key], life].concat()), "1");
        assert_eq!(in_force(&store, &own).await, (9, Level::Project), "{life:?}");
        assert_eq!(store.overrides().get(scope).await.unwrap().map(|found| found.limit), Some(9), "{life:?}");
        assert_eq!(server.cli(&["DEL", key]), "1");
    }
}

#[tokio::test]
async fn what_others_set_counts_although_we_said_something_else_before() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        let own = search("project 1", "1");
        let scope = own.override_scope().unwrap();
        let key = "ratelimit_override:/search:1:1";
        let end = store.now().after(Duration::from_millis(1));
        let ours = Override {
            window: Some(Duration::from_millis(1_500)),
            expires_at: Some(end),
            ..Override::limit(7)
        };
        store.overrides().set(scope, ours).await.unwrap();
        // As if they had come just in time.
        let stale = ["window_ms", "1500", "expires_at", &end.as_micros().to_string()].map(str::to_owned);
        let theirs = ["max_requests", "500", "expiry", "120"].map(str::to_owned);
        let fields: Vec<&str> = stale.iter().chain(&theirs).map(String::as_str).collect();
        let _ = server.cli(&[["HSET", key].as_slice(), &fields].concat());
        assert_eq!(server.cli(&["EXPIRE", key, "86400"]), "1");
        until("what we said is over", async || store.now() > end).await;
        let decision = ask(&store, &own).await.unwrap();
        let verdict = &decision.verdicts()[0];
        assert_eq!(
            (verdict.level(), verdict.quota().to_string().as_str()),
            (Level::Project, "500/2min fixed_window")
        );
        let found = store.overrides().get(scope).await.unwrap().unwrap();
        assert_eq!((found.limit, found.window), (500, Some(Duration::from_secs(120))), "{flavour}");
        let left = found.expires_at.unwrap().as_micros() - store.now().as_micros();
        assert!((86_000_000_000..=86_400_000_000).contains(&left), "{left} microseconds left on {flavour}");
    }
}

/// What others may write at the key of an override, and what it means: the limit and the window in
/// milliseconds, each the charge's own if there is none.
const WRITTEN: [(&[&str], Option<u64>, Option<u64>); 17] = [
    (&["max_requests", "9", "expiry", "60"], Some(9), Some(60_000)),
    (&["max_requests", "0", "expiry", "60"], Some(0), Some(60_000)),
    (&["max_requests", "0"], Some(0), None),
    (&["max_requests", "-3"], Some(0), None),
    (&["max_requests", "2000000000", "expiry", "60"], Some(2_000_000_000), Some(60_000)),
    (&["max_requests", "20000"], Some(20_000), None),
    (&["max_requests", "2", "expiry", "0"], Some(2), Some(0)),
    (&["max_requests", "2", "expiry", "-1"], Some(2), Some(0)),
    (&["max_requests", "2", "expiry", "63072000"], Some(2), Some(u64::MAX)),
    (&["max_requests", "1e999", "expiry", "1e999"], Some(u64::MAX), Some(u64::MAX)),
    (&["expiry", "5"], None, Some(5_000)),
    (&["max_requests", "4"], Some(4), None),
    (&["max_requests", "100.0", "expiry", " 60.0 "], Some(100), Some(60_000)),
    (&["max_requests", "2.9", "expiry", "1.5"], Some(2), Some(1_500)),
    (&["max_requests", "2", "expiry", "2", "window_ms", "1500"], Some(2), Some(1_500)),
    (&["max_requests", "2", "expiry", "3", "window_ms", "1500"], Some(2), Some(3_000)),
    (&["note", "nothing of ours", "window_ms", "1500"], None, None),
];

/// Each as the rules of the core have it, on every algorithm: with room, without, and looked at.
#[tokio::test]
async fn what_others_write_means_what_the_core_makes_of_it() {
    let quotas = [
        "5/h fixed_window",
        "5/h sliding_window",
        "5/h sliding_log",
        "5/h burst 50",
        "5/h leaky_bucket queue 4",
        "5/h concurrency",
        "5/calendar day",
    ];
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        for ((fields, limit, window), text) in WRITTEN.iter().flat_map(|w| quotas.iter().map(move |q| (w, q)))
        {
            assert_eq!(server.cli(&["FLUSHALL"]), "OK");
            let own = quota(text);
            // On a subject of Application Kit's, so that its counters are met, too.
            let shared = charge("q", "/x:7:42", own).overridable(project("/x", "7", "42"));
            let there = [["HSET", "ratelimit_override:/x:7:42"].as_slice(), fields].concat();
            let mut model = Model::default();
            let before = ask(&store, &shared.cost(3).unwrap()).await.unwrap();
            assert!(before.is_allowed(), "before there is an override");
            let _ = server.cli(&there);
            let limit = limit.unwrap_or(own.limit().into());
            let expected = own.overridden(limit, window.map(Duration::from_millis));
            let expected = if limit == 5 && window.is_none() { *own } else { expected };
            // Application Kit's counters have all windows.
            let is_kit = own.algorithm() == Algorithm::FixedWindow && own.calendar_window().is_none();
            let alone = |quota| {
                let charge = charge("q", "s", quota);
                if is_kit { charge.any_window() } else { charge }
            };
            let resolved = alone(&expected);
            // An override's window is judged on the list of the rule's.
            let own_limit = own.overridden(own.limit().into(), window.map(Duration::from_millis));
            let entered = if own.algorithm().keeps_all() { &own_limit } else { own };
            model.check(&Check::one(&alone(entered).cost(3).unwrap()), before.at()).unwrap();
            for cost in [0, 1, 1, 6, 1_000_000_000] {
                let asked = ask(&store, &shared.cost(cost).unwrap()).await.unwrap();
                let known = model.check(&Check::one(&resolved.cost(cost).unwrap()), asked.at()).unwrap();
                let what = format!("{fields:?}, {text}, cost {cost} on {flavour}: {asked} but {known}");
                let (found, right) = (&asked.verdicts()[0], &known.verdicts()[0]);
                assert_eq!(found.quota(), right.quota(), "{what}");
                let tells = |v: &Verdict| (v.is_admitted(), v.remaining(), v.retry_after().is_never());
                if window.is_none_or(|window| window > 1_000) {
                    assert_eq!(tells(found), tells(right), "{what}");
                }
                let level = if fields[0] == "note" { Level::Default } else { Level::Project };
                assert_eq!(found.level(), level, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn spoilt_overrides_hide_no_others() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        for endpoint in ["/a", "/z"] {
            set(&store, project(endpoint, "1", "2"), 5).await;
        }
        for (endpoint, fields) in [
            ("/b", ["HSET", "max_requests", "many"].as_slice()),
            ("/c", &["HSET", "expiry", "60"]),
            ("/d", &["SET", "10"]),
            ("/e", &["HSET", "note", "x"]),
        ] {
            let key = format!("ratelimit_override:{endpoint}:1:2");
            let _ = server.cli(&[&[fields[0], &key], &fields[1..]].concat());
        }
        let listed = store.overrides().list("1", Some("2")).await.unwrap();
        assert_eq!(listed.iter().map(|(endpoint, _)| endpoint.as_str()).collect::<Vec<_>>(), ["/a", "/z"]);
        for endpoint in ["/b", "/c", "/d"] {
            let error = store.overrides().get(project(endpoint, "1", "2")).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unreadable, "{endpoint} on {flavour}: {error}");
        }
        assert_eq!(store.overrides().clear("1", Some("2")).await.unwrap(), 5, "and all can be cleared");
        assert_eq!(keys(&server), [""; 0], "{flavour}");
    }
}

#[tokio::test]
async fn rules_that_meet_on_one_counter_are_told_of_once() {
    logs::begin();
    let server = Server::start(Flavour::Redis7);
    let (memory, redis) = (MemoryStore::new(), store(&server, "").await);
    let stores: [(&dyn Store, &str); 2] = [(&memory, "/met-in-memory"), (&redis, "/met-on-redis")];
    for (store, endpoint) in stores {
        let subject = format!("{endpoint}:1:42");
        let told = || logs::all().iter().filter(|line| line.contains(endpoint)).count();
        for (text, name, expected) in [
            ("10/s fixed_window", "second", 0),
            ("100/min fixed_window", "minute", 1),
            ("10/s fixed_window", "second", 1),
        ] {
            let own = charge(name, &subject, quota(text)).overridable(project(endpoint, "1", "42"));
            store.check(&Check::one(&own)).await.unwrap();
            assert_eq!(told(), expected, "{endpoint} after {name}");
        }
    }
}
