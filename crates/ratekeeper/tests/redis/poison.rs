//! What is not ours at a key of ours is the failure of its own check, and stays
//! as it is.

use std::time::Duration;

use futures_util::future::join_all;
use ratekeeper::{Charge, Check, OverrideScope, RedisStore, Reservation, Store, StoreError, StoreErrorKind};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::setup::{FIVES, ask, charge, is_allowed, keys, left, quota, store, together};

const LIST: &str = "5/h sliding_log";
const HOLD: &str = "5/h concurrency";
const WINDOW: &str = "5/h fixed_window";

/// A charge that follows overrides; on fixed windows it is one of Application Kit's.
fn shared(text: &str) -> Charge<'static> {
    let scope = OverrideScope::project("/x", "7", "42").unwrap();
    charge("q", "/x:7:42", quota(text)).overridable(scope)
}

fn own(text: &str) -> Charge<'static> {
    charge("q", "s", quota(text))
}

/// What is poisoned, how, and whose check it is. `EVAL` because some of it is not text.
fn poisons() -> Vec<(&'static str, &'static str, Charge<'static>)> {
    let kit = "ratelimit:/x:7:42";
    let project = "ratelimit_override:/x:7:42";
    let organisation = "ratelimit_org_override:/x:7";
    vec![
        ("rk:c:q:s", "'RPUSH', KEYS[1], 'a'", own("5/h")),
        ("rk:c:q:s", "'HSET', KEYS[1], 'a', 'b'", own(WINDOW)),
        ("rk:c:q:s", "'SET', KEYS[1], 'garbage'", own("5/h sliding_window")),
        ("rk:c:q:s", "'SET', KEYS[1], ''", own("5/h leaky_bucket")),
        // The format before this one, the one after it, and a value that is too short.
        ("rk:c:q:s", "'SET', KEYS[1], '\\1\\1' .. string.rep('\\0', 38)", own("5/h")),
        ("rk:c:q:s", "'SET', KEYS[1], '\\3\\1' .. string.rep('\\0', 50)", own("5/h")),
        ("rk:c:q:s", "'SET', KEYS[1], '\\2\\2' .. string.rep('\\0', 50)", own("5/h")),
        ("rk:l:q::s", "'SET', KEYS[1], 'a'", own(LIST)),
        ("rk:h:q::s", "'SET', KEYS[1], 'a'", own(HOLD)),
        ("rk:l:q::s", "'RPUSH', KEYS[1], 'a'", own(LIST)),
        ("rk:l:q::s", "'RPUSH', KEYS[1], '\\1\\3' .. string.rep('\\0', 38)", own(LIST)),
        ("rk:h:q::s", "'RPUSH', KEYS[1], '\\2\\3' .. string.rep('\\0', 38)", own(HOLD)),
        ("rk:l:q::s", "'RPUSH', KEYS[1], '\\2\\3' .. string.rep('\\0', 38), 'a'", own(LIST)),
        ("rk:h:q::s", "'RPUSH', KEYS[1], '\\2\\6' .. string.rep('\\0', 38), 'a', 'b'", own(HOLD)),
        // An index of nothing, and something behind it; one of a list that is not there.
        ("rk:l:q::s", "'RPUSH', KEYS[1], '\\2\\3' .. string.rep('\\0', 14), 'a'", own(LIST)),
        ("rk:h:q::s", "'RPUSH', KEYS[1], '\\2\\6\\1' .. string.rep('\\0', 13)", own(HOLD)),
        ("rk:l:q::s", "'HSET', KEYS[1], 'h', 'b'", own(LIST)),
        (kit, "'HSET', KEYS[1], 'a', 'b'", shared(WINDOW)),
        (kit, "'SET', KEYS[1], 'many'", shared(WINDOW)),
        (kit, "'SET', KEYS[1], '-1'", shared(WINDOW)),
        (kit, "'SET', KEYS[1], '1.5'", shared(WINDOW)),
        (kit, "'SET', KEYS[1], '003'", shared(WINDOW)),
        (kit, "'SET', KEYS[1], '99999999999999999999'", shared(WINDOW)),
        (project, "'SET', KEYS[1], '10'", shared("5/h")),
        (project, "'RPUSH', KEYS[1], '10'", shared(WINDOW)),
        (project, "'HSET', KEYS[1], 'max_requests', 'many'", shared("5/h")),
        (project, "'HSET', KEYS[1], 'max_requests', '10', 'expiry', 'soon'", shared("5/h")),
        (project, "'HSET', KEYS[1], 'max_requests', '', 'expiry', '60'", shared(LIST)),
        (organisation, "'HSET', KEYS[1], 'max_requests', '0x10'", shared(HOLD)),
        (organisation, "'HSET', KEYS[1], 'max_requests', 'nan'", shared(WINDOW)),
        (organisation, "'HSET', KEYS[1], 'max_requests', '10', 'expires_at', 'soon'", shared(WINDOW)),
    ]
}

fn is_unreadable<T>(result: Result<T, StoreError>) -> bool {
    result.is_err_and(|error| error.kind() == StoreErrorKind::Unreadable && !error.is_transient())
}

async fn is_its_own(store: &RedisStore, server: &Server, key: &str, poisoned: &Charge<'_>, what: &str) {
    let before = server.cli(&["DUMP", key]);
    // Healthy checks before it and after it, of every algorithm.
    let healthy: Vec<Charge<'_>> = FIVES.iter().map(|text| charge("well", "s", quota(text))).collect();
    let all: Vec<&Charge<'_>> = healthy.iter().chain([poisoned]).chain(&healthy).collect();
    let checks: Vec<Check<'_>> = all.iter().map(|charge| Check::one(charge)).collect();
    let batches = store.health().batches;
    let answers = join_all(checks.iter().map(|check| store.check(check))).await;
    assert!(store.health().batches - batches < checks.len() as u64, "they travel together");
    for (charge, answer) in all.into_iter().zip(answers) {
        if charge == poisoned {
            assert!(is_unreadable(answer), "{what}");
        } else {
            assert!(answer.unwrap().is_allowed(), "{what}: {}", charge.quota());
        }
    }
    let peek = store.check(&Check::one(poisoned).peek()).await;
    assert!(is_unreadable(peek), "{what}, only looked at");
    assert_eq!(server.cli(&["DUMP", key]), before, "{what} is untouched");
    if poisoned.override_scope().is_none() {
        let reset = store.reset(poisoned.key(), poisoned.quota().algorithm()).await;
        assert!(reset.unwrap(), "{what}: only a reset deletes it");
        assert_eq!(server.cli(&["EXISTS", key]), "0", "{what}, reset");
    } else {
        assert_eq!(server.cli(&["DEL", key]), "1");
    }
    assert!(is_allowed(store, poisoned).await, "{what}, and gone");
}

#[tokio::test]
async fn a_poisoned_key_is_the_failure_of_its_own_check() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        for (key, poison, poisoned) in poisons() {
            let _ = server.cli(&["EVAL", &format!("redis.call({poison})"), "1", key]);
            let what = format!("{key}: {poison} on {flavour}");
            is_its_own(&store, &server, key, &poisoned, &what).await;
            assert_eq!(server.cli(&["FLUSHALL"]), "OK");
        }
    }
}

#[tokio::test]
async fn a_poisoned_charge_charges_nothing_beside_it() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    assert_eq!(server.cli(&["SET", "rk:l:q::s", "a"]), "OK");
    let (bad, good) = (own(LIST), charge("well", "s", quota("5/h")));
    let charges = together(&[good, bad]);
    assert!(is_unreadable(store.check(&charges.check().unwrap()).await));
    assert_eq!(left(&store, &good).await, 5);
    // Giving back what was charged before the poison came.
    assert_eq!(server.cli(&["DEL", "rk:l:q::s"]), "1");
    let check = charges.check().unwrap();
    let decision = store.check(&check).await.unwrap();
    assert_eq!(server.cli(&["SET", "rk:l:q::s", "a"]), "OK");
    assert!(is_unreadable(store.refund(&check, &decision, 1).await));
    assert_eq!(left(&store, &good).await, 4, "all or nothing");
}

#[tokio::test]
async fn a_poisoned_id_is_nobodys() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let charge = own("5/h");
    let once = Reservation::hold("id", Duration::from_secs(60)).unwrap();
    for poison in
        ["'SET', KEYS[1], 'garbage'", "'RPUSH', KEYS[1], 'a'", "'SET', KEYS[1], string.rep('\\3', 99)"]
    {
        let _ = server.cli(&["EVAL", &format!("redis.call({poison})"), "1", "rk:i:id"]);
        assert!(is_unreadable(store.reserve(&Check::one(&charge), &once).await), "{poison}");
        assert!(is_unreadable(store.settle(b"id", Some(1)).await), "{poison}");
        assert_eq!(left(&store, &charge).await, 5, "{poison}");
        assert_eq!(server.cli(&["DEL", "rk:i:id"]), "1");
    }
}

#[tokio::test]
async fn fields_of_others_are_theirs() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let key = "ratelimit_override:/x:7:42";
    assert_eq!(server.cli(&["HSET", key, "max_requests", "2", "note", "\u{fffd}", "expiry", "60"]), "3");
    assert!(is_allowed(&store, &shared(WINDOW)).await);
    assert_eq!(
        store.overrides().get(shared(WINDOW).override_scope().unwrap()).await.unwrap().unwrap().limit,
        2
    );
}

/// What cannot be written cannot be admitted; what needs no writing goes on.
#[tokio::test]
async fn a_full_server_still_denies() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        let all: Vec<Charge<'_>> = FIVES.iter().map(|text| charge("q", text, quota(text))).collect();
        for own in &all {
            assert!(is_allowed(&store, &own.cost(5).unwrap()).await);
        }
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        for (own, text) in all.iter().zip(FIVES) {
            assert!(!is_allowed(&store, own).await, "{text} on {flavour}: what is used up stays so");
            assert_eq!(left(&store, own).await, 0, "{text} on {flavour}");
            let free = charge("free", text, quota(text));
            let error = ask(&store, &free).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Capacity, "{text} on {flavour}: {error}");
            // Both in one batch: each its own answer.
            let checks: Vec<Check<'_>> = [own, &free].repeat(4).into_iter().map(Check::one).collect();
            let answers = join_all(checks.iter().map(|check| store.check(check))).await;
            for (check, answer) in checks.iter().zip(answers) {
                let is_free = check.charges()[0] == free;
                assert_eq!(
                    answer.map_or_else(|error| Err(error.kind()), |decision| Ok(decision.is_allowed())),
                    if is_free { Err(StoreErrorKind::Capacity) } else { Ok(false) },
                    "{text} on {flavour}"
                );
            }
        }
        assert_eq!(keys(&server).len(), FIVES.len(), "nothing new");
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    }
}
