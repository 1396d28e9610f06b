//! Two versions of the script on one server, as while instances are replaced one by one.

use std::time::Duration;

use futures_util::future::join_all;
use ratekeeper::{
    Charges, Check, OverrideScope, RedisStore, Reservation, Settled, Store, StoreError, StoreErrorKind,
};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{builder, script};
use crate::setup::{FIVES, ask, charge, is_allowed, keys, left, quota, tiers, together};

const LIMIT: u32 = 5;

fn edited(script: &str, from: &str, to: &str) -> String {
    assert_eq!(script.matches(from).count(), 1, "{from}");
    script.replace(from, to)
}

/// A script of the future that knows formats 2 and 3 and writes 2 until it is told to write 3.
fn next(writes: u8) -> String {
    let script = edited(&script(), "READABLE = { [2] = true }", "READABLE = { [2] = true, [3] = true }");
    if writes == 2 {
        return script;
    }
    let script = edited(&script, "local FORMAT = 2 ", "local FORMAT = 3 ");
    // What values on the short way begin with is the library's to say, and ours says 2.
    edited(&script, "if groups == 0 then return general() end", "do return general() end")
}

async fn running(server: &Server, script: &str) -> RedisStore {
    let store = builder(&server.url()).script(script).build().unwrap();
    store.ping().await.unwrap();
    store
}

/// Checks of five units an hour each: every algorithm alone, all of them as tiers of a rule, two
/// buckets, and a counter of Application Kit.
fn checks() -> Vec<Charges<'static>> {
    let rules = FIVES.map(|text| vec![text]).into_iter().chain([
        FIVES.to_vec(),
        vec!["5/h", "5/30m"],
        vec!["5/h", "5/d"],
    ]);
    let checks = rules.enumerate().map(|(index, texts)| {
        let quotas: Vec<_> = texts.into_iter().map(quota).collect();
        together(&tiers(&format!("rule{index}"), &quotas))
    });
    let scope = OverrideScope::project("/x", "7", "42").unwrap();
    let kit = charge("kit", "/x:7:42", quota(FIVES[0])).overridable(scope);
    checks.chain([together(&[kit])]).collect()
}

/// What is left of the first charge, on which all versions must agree.
async fn agreed(stores: &[&RedisStore], charges: &Charges<'_>) -> u32 {
    let charge = &charges.check().unwrap().charges()[0];
    let said = join_all(stores.iter().map(|store| left(store, charge))).await;
    assert!(said.windows(2).all(|pair| pair[0] == pair[1]), "{}: {said:?}", charge.quota());
    said[0]
}

fn is_unreadable<T>(result: Result<T, StoreError>) -> bool {
    result.is_err_and(|error| error.kind() == StoreErrorKind::Unreadable)
}

/// Versions that understand each other count as one, in turns and at once.
async fn count_as_one(server: &Server, versions: [&str; 2]) {
    let stores = [running(server, versions[0]).await, running(server, versions[1]).await];
    let both = [&stores[0], &stores[1]];
    for charges in checks() {
        let check = charges.check().unwrap();
        let what = format!("{} and {} others", check.charges()[0].quota(), check.charges().len() - 1);
        // In turns, a charge and half of them given back by the other.
        for turn in 0..3 {
            let decision = both[turn % 2].check(&check).await.unwrap();
            assert!(decision.is_allowed(), "{what}");
            if turn == 1 {
                both[0].refund(&check, &decision, 1).await.unwrap();
            }
        }
        assert_eq!(agreed(&both, &charges).await, LIMIT - 2, "{what}");
        let hold = Reservation::hold("id", Duration::from_secs(60)).unwrap();
        assert!(both[0].reserve(&check, &hold).await.unwrap().is_allowed());
        assert!(both[1].reserve(&check, &hold).await.unwrap().is_allowed(), "repeated");
        assert_eq!(agreed(&both, &charges).await, LIMIT - 3, "{what}: once");
        assert_eq!(both[1].settle(b"id", None).await.unwrap(), Settled::Done);
        assert_eq!(both[0].settle(b"id", None).await.unwrap(), Settled::Already);
        assert_eq!(agreed(&both, &charges).await, LIMIT - 2, "{what}: cancelled");
        // All at once: three are left.
        let all = join_all((0..60).map(|caller| both[caller % 2].check(&check))).await;
        let admitted = all.into_iter().filter(|decision| decision.as_ref().unwrap().is_allowed()).count();
        assert_eq!(admitted, 3, "{what}");
        assert_eq!(agreed(&both, &charges).await, 0, "{what}");
        assert_eq!(server.cli(&["DEL", "rk:i:id"]), "1");
    }
}

#[tokio::test]
async fn while_instances_are_replaced_nothing_is_lost_or_doubled() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        count_as_one(&server, [&script(), &next(2)]).await;
    }
}

/// The first script that wrote format 2 as it is stored today, as it was then. Which key a counter is in is the library's
/// to say: windows longer than an hour had moved to keys of their own before anything was released.
const FIRST_OF_FORMAT_2: &str = include_str!("../../../../testdata/scripts/format_2.lua");

/// The same, but that it is called as this library calls: the short way's groups tell how a value is told. What it
/// makes of values, and writes, is its own.
fn first_of_format_2() -> String {
    let told = [
        ("unpack_from(TERMS, blob, at + head) }", "unpack_from(TERMS, blob, at + head + 3) }"),
        ("at, j = at + head, j + 7", "at, j = at + head + 3, j + 7"),
    ];
    told.into_iter().fold(FIRST_OF_FORMAT_2.to_owned(), |script, (from, to)| edited(&script, from, to))
}

#[tokio::test]
async fn the_first_script_of_the_format_counts_with_this_one() {
    let (first, now) = (first_of_format_2(), script());
    // A copy of today's script would agree with it whatever it does.
    assert_ne!(first, now);
    let server = Server::start(Flavour::Redis7);
    count_as_one(&server, [&first, &now]).await;
}

/// Of the second replacement: some are told to write the new format, some not yet. (Without
/// ids: the records of ids are the library's, which here is the same for both.)
#[tokio::test]
async fn while_a_new_format_spreads_nothing_is_lost_or_doubled() {
    let server = Server::start(Flavour::Redis7);
    let (first, second) = (running(&server, &next(2)).await, running(&server, &next(3)).await);
    let both = [&first, &second];
    for charges in checks() {
        let check = charges.check().unwrap();
        let mut admitted = 0;
        for turn in 0..8 {
            admitted += u32::from(both[turn % 2].check(&check).await.unwrap().is_allowed());
            assert_eq!(agreed(&both, &charges).await, LIMIT - admitted.min(LIMIT));
        }
        assert_eq!(admitted, LIMIT);
    }
}

#[tokio::test]
async fn what_only_the_new_version_can_read_the_old_one_leaves_alone() {
    let server = Server::start(Flavour::Redis7);
    let (old, new) = (running(&server, &script()).await, running(&server, &next(3)).await);
    for (index, text) in FIVES.into_iter().enumerate() {
        let name = format!("q{index}");
        let own = charge(&name, "s", quota(text));
        let check = Check::one(&own);
        // Counted by the old one, taken over by the new one.
        let before = ask(&old, &own).await.unwrap();
        assert!(is_allowed(&old, &own).await && is_allowed(&new, &own).await);
        let [key] = keys(&server).try_into().unwrap();
        let value = server.cli(&["DUMP", &key]);
        assert!(is_unreadable(old.check(&check).await), "{text}");
        assert!(is_unreadable(old.check(&check.peek()).await), "{text}, only looked at");
        assert!(is_unreadable(old.refund(&check, &before, 1).await), "{text}, given back");
        assert_eq!(server.cli(&["DUMP", &key]), value, "{text} is untouched");
        assert_eq!(left(&new, &own).await, 2, "{text}");
        assert!(is_allowed(&new, &own).await && is_allowed(&new, &own).await);
        assert!(!is_allowed(&new, &own).await, "{text}: five in all");
        // A reset deletes whatever it finds.
        assert!(old.reset(own.key(), own.quota().algorithm()).await.unwrap());
        assert_eq!(keys(&server), [""; 0]);
    }
    let own = charge("q", "s", quota("5/h"));
    let hold = Reservation::hold("id", Duration::from_secs(60)).unwrap();
    assert!(new.reserve(&Check::one(&own), &hold).await.unwrap().is_allowed());
    assert_eq!(server.cli(&["DEL", "rk:c:q:s"]), "1");
    assert!(is_unreadable(old.reserve(&Check::one(&own), &hold).await));
    assert!(is_unreadable(old.settle(b"id", None).await));
    assert_eq!(keys(&server), ["rk:i:id"]);
}
