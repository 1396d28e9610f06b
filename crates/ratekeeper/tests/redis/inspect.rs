//! What the server alone says of a counter: its quota's name, what is left, and until when.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{
    Algorithm, Charge, Charges, Check, Key, ManualClock, Name, RawName, RedisStore, Store, StoreErrorKind,
    StoredFilter, Timestamp,
};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::builder;
use crate::setup::{ask, charge, keys, quota, store, together};

async fn clocked(server: &Server) -> (RedisStore, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let store = builder(&server.url()).clock(Arc::new(clock.clone())).build().unwrap();
    store.ping().await.unwrap();
    (store, clock)
}

/// Charges on the quotas of the rule `api`, by the names given.
fn named(quotas: &[(&str, &str)]) -> Charges<'static> {
    let rule = Name::new("api").unwrap();
    let charges: Vec<Charge<'static>> = quotas
        .iter()
        .map(|(name, text)| {
            Charge::new(Key::new(Name::joined(rule, name).unwrap(), "user:1").unwrap(), quota(text))
        })
        .collect();
    together(&charges)
}

async fn names(store: &RedisStore) -> Vec<String> {
    let counters = store.stored_counters("api", b"user:1").await.unwrap();
    counters.into_iter().map(|counter| counter.quota).collect()
}

/// By every way through the script, the server tells what a peek tells.
#[tokio::test]
async fn the_server_alone_tells_what_is_left() {
    let rules: [&[(&str, &str)]; 6] = [
        &[("rps", "10/s"), ("rpm", "99/m burst 200"), ("rph", "999/h"), ("rpd", "9999/d")],
        &[("only", "7/m fixed_window")],
        &[("slide", "7/m sliding_window"), ("leak", "7/m leaky_bucket queue 4"), ("token", "7/m")],
        &[("other", "7/m fixed_window aligned"), ("by-the-clock", "7/calendar day")],
        &[("two", "7/m"), ("tiers", "7/h")],
        &[("x", "7/m"), ("y", "8/m"), ("z", "9/m")],
    ];
    for (index, rule) in rules.into_iter().enumerate() {
        let server = Server::start(Flavour::ALL[index % Flavour::ALL.len()]);
        let (store, clock) = clocked(&server).await;
        let charges = named(rule);
        let check = charges.check().unwrap();
        for round in 0..3 {
            assert!(store.check(&check).await.unwrap().is_allowed());
            clock.advance(Duration::from_millis(1_500));
            let peeked = store.check(&check.peek()).await.unwrap();
            let stored = store.stored_counters("api", b"user:1").await.unwrap();
            assert_eq!(stored.len(), rule.len(), "round {round}: {stored:?}");
            for ((counter, verdict), (name, _)) in stored.iter().zip(peeked.verdicts()).zip(rule) {
                let quota = verdict.quota();
                assert_eq!((counter.quota.as_str(), counter.algorithm), (*name, quota.algorithm()));
                assert_eq!((counter.window, counter.limit), (quota.window(), quota.limit()), "{name}");
                let burst = if quota.algorithm() == Algorithm::LeakyBucket {
                    quota.queue()
                } else {
                    quota.capacity()
                };
                assert_eq!(counter.burst, burst, "{name}");
                assert_eq!(counter.remaining, verdict.remaining(), "{name}");
                assert_eq!(counter.reset_after, verdict.reset_after(), "{name}");
            }
        }
    }
}

/// A name is written with the counter and stays with it through everything that rewrites the value.
#[tokio::test]
async fn names_stay_with_their_counters() {
    let server = Server::start(Flavour::Redis7);
    let (store, clock) = clocked(&server).await;
    let all = [("rps", "9/s"), ("rpm", "99/m"), ("rph", "999/h")];
    let check = named(&all);
    let decision = store.check(&check.check().unwrap()).await.unwrap();
    assert_eq!(names(&store).await, ["rps", "rpm", "rph"]);
    // Given back, and charged again by the ordinary way and in one batch.
    store.refund(&check.check().unwrap(), &decision, 1).await.unwrap();
    assert_eq!(names(&store).await, ["rps", "rpm", "rph"]);
    let both = check.check().unwrap();
    let (first, second) = futures_util::join!(store.check(&both), store.check(&both));
    assert!(first.unwrap().is_allowed() && second.unwrap().is_allowed());
    assert_eq!(names(&store).await, ["rps", "rpm", "rph"]);
    // A tier more, one that counts no longer, and tiers without a name beside them.
    let other = named(&[("rpd", "9999/d"), ("rpm", "99/m")]);
    store.check(&other.check().unwrap()).await.unwrap();
    // Those of windows above an hour are kept apart, and told behind the others.
    assert_eq!(names(&store).await, ["rpm", "rps", "rph", "rpd"]);
    clock.advance(Duration::from_secs(5));
    store.check(&other.check().unwrap()).await.unwrap();
    assert_eq!(names(&store).await, ["rpm", "rph", "rpd"]);
    ask(&store, &charge("api", "user:1", quota("5/m"))).await.unwrap();
    assert_eq!(names(&store).await, ["", "rpm", "rph", "rpd"]);
    // One quota in two windows has its name in each.
    store.check(&named(&[("rpm", "50/2m")]).check().unwrap()).await.unwrap();
    assert_eq!(names(&store).await, ["rpm", "", "rpm", "rph", "rpd"]);
    // Forgotten, the others keep theirs.
    let rpd = other.check().unwrap().charges()[0];
    assert!(store.reset(rpd.key(), Algorithm::TokenBucket).await.unwrap());
    assert_eq!(names(&store).await, ["rpm", "", "rpm", "rph"]);
    // Windows go the ordinary way, new and known.
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    let windows = named(&[("rps", "9/s sliding_window"), ("rpm", "99/m fixed_window")]);
    for _ in 0..2 {
        store.check(&windows.check().unwrap()).await.unwrap();
        assert_eq!(names(&store).await, ["rps", "rpm"]);
    }
}

/// What is written once is never longer than a name may be; the name of a raw charge is in its key.
#[tokio::test]
async fn names_are_bounded() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let longest = "q".repeat(128 - "api.".len());
    let check = named(&[(&longest, "5/m"), ("rpm", "6/m")]);
    for _ in 0..3 {
        assert!(store.check(&check.check().unwrap()).await.unwrap().is_allowed());
    }
    assert_eq!(names(&store).await, [longest.as_str(), "rpm"]);
    assert!(Name::joined(Name::new("api").unwrap(), &format!("{longest}q")).is_err());

    let raw = RawName::within("limit", "a:b {c}").unwrap();
    let own = Charge::new(Key::raw(&raw, "user:1").unwrap(), quota("5/m"));
    store.check(&Check::one(&own)).await.unwrap();
    let stored = store.stored_counters("limit/a:b {c}", b"user:1").await.unwrap();
    assert_eq!((stored.len(), stored[0].quota.as_str(), stored[0].remaining), (1, "", 4));
    assert!(RawName::new("x".repeat(129)).is_err());
}

#[tokio::test]
async fn what_is_not_there_or_not_ours_is_told_apart() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    assert_eq!(store.stored_counters("api", b"user:1").await.unwrap(), []);
    for key in ["rk:c:api:user:1", "rk:d:api:user:1"] {
        for value in ["", "hello", "\u{1}\u{1}xx", "\u{2}\u{1}xx"] {
            assert_eq!(server.cli(&["SET", key, value]), "OK");
            let error = store.stored_counters("api", b"user:1").await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unreadable, "{value:?}: {error}");
            assert!(error.to_string().contains(&key[..9]), "{error}");
            assert_eq!(keys(&server), [key]);
        }
        assert_eq!(server.cli(&["DEL", key]), "1");
    }
}

/// A log or a list of holders tells what it holds, and when the last of it leaves.
#[tokio::test]
async fn the_server_alone_tells_what_logs_and_holders_have() {
    let filters = [
        StoredFilter::own(Some("api"), Some("user:1")),
        StoredFilter::own(Some("api"), Some("user:*")),
        StoredFilter::own(None, None),
    ];
    for (text, flavour) in
        [("500/10s sliding_log", Flavour::Redis62), ("500/10s concurrency", Flavour::Valkey9)]
    {
        let server = Server::start(flavour);
        let (store, clock) = clocked(&server).await;
        let quota = quota(text);
        let own = charge("api", "user:1", quota);
        let told = async || {
            let mut pages = Vec::new();
            for filter in &filters {
                let page = store.stored(filter, 0, 100).await.unwrap().unwrap();
                let lists = page.keys.into_iter().flat_map(|key| key.lists);
                pages.push(lists.map(|list| (list.used, list.ends_after)).collect::<Vec<_>>());
            }
            assert!(pages.iter().all(|page| *page == pages[0]), "{text}: {pages:?}");
            pages.remove(0)
        };
        assert_eq!(told().await, [], "{text}");
        // More than two blocks, one unit every 25 ms.
        for _ in 0..250 {
            clock.advance(Duration::from_millis(25));
            assert!(ask(&store, &own).await.unwrap().is_allowed());
        }
        let page = store.stored(&filters[0], 0, 100).await.unwrap().unwrap();
        assert_eq!(
            (page.keys[0].lists[0].algorithm, page.keys[0].lists[0].window),
            (quota.algorithm(), quota.window())
        );
        // The window is over for one after the other, and for whole blocks; nothing is written meanwhile.
        for (later, used) in
            [(0, 250), (3_774, 250), (1, 249), (24, 249), (1_000, 209), (1_723, 140), (3_474, 1)]
        {
            clock.advance(Duration::from_millis(later));
            let peeked = store.check(&Check::one(&own).peek()).await.unwrap();
            assert_eq!(peeked.verdicts()[0].remaining(), 500 - used, "{text} after {later}");
            let reset_after = peeked.verdicts()[0].reset_after();
            assert_eq!(told().await, [(u64::from(used), reset_after)], "{text} after {later}");
        }
        clock.advance(Duration::from_millis(10));
        assert_eq!(told().await, [], "{text}: all have left");
        // A clock that stepped back by more than a window counts what was there from its present on.
        ask(&store, &own).await.unwrap();
        clock.set(Timestamp::from_secs(1_600_000_000));
        assert_eq!(told().await, [(1, Duration::from_secs(10))], "{text}");
        assert_eq!(server.cli(&["LSET", &keys(&server)[0], "0", "nonsense"]), "OK");
        assert_eq!(store.stored(&filters[0], 0, 100).await.unwrap_err().kind(), StoreErrorKind::Unreadable);
        assert_eq!(
            store.stored(&filters[2], 0, 100).await.unwrap().unwrap().keys.len(),
            1,
            "it hides no others"
        );
    }
}
