//! Who loses a counter when the store is at its bound, tried by an attacker who knows the rules:
//! victims come from the rule that holds most counters of the shard, least used first, exhausted
//! last, and a new key is never an outage.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{
    Charge, Charges, Check, Decision, Engine, Key, ManualClock, MemoryStore, Name, OnOutage, Quota,
    RawCharge, RawName, Store, Timestamp,
};

const KEYS: usize = 2_560;

fn store(max_keys: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    (MemoryStore::with_clock(max_keys, Arc::new(clock.clone())), clock)
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// Asks for some units; whether they were admitted.
fn take(store: &MemoryStore, name: &str, subject: &str, quota: &Quota, units: u64) -> bool {
    let key = Key::new(Name::new(name).unwrap(), subject).unwrap();
    let charge = Charge::new(key, quota).cost(units).unwrap();
    store.decide(&Check::one(&charge)).expect("a new key is no outage").is_allowed()
}

fn left(store: &MemoryStore, name: &str, subject: &str, quota: &Quota) -> u32 {
    let charge = Charge::new(Key::new(Name::new(name).unwrap(), subject).unwrap(), quota);
    store.decide(&Check::one(&charge).peek()).unwrap().verdicts()[0].remaining()
}

/// One made-up key after the other, each used up at once.
fn flood(store: &MemoryStore, name: &str, keys: usize) {
    let once = quota("1/h");
    for key in 0..keys {
        assert!(take(store, name, &format!("made-up-{key}"), &once, 1));
    }
}

#[test]
fn keys_made_up_for_one_rule_leave_the_counters_of_another() {
    let algorithms = ["", " fixed_window", " sliding_window", " sliding_log", " leaky_bucket"];
    let quotas: Vec<Quota> = algorithms.iter().map(|algorithm| quota(&format!("100/h{algorithm}"))).collect();
    let (store, _) = store(KEYS);
    for (number, quota) in quotas.iter().enumerate() {
        assert!(take(&store, "per-user", &format!("user-{number}"), quota, 99));
    }
    let all_left = || -> Vec<u32> {
        let numbered = quotas.iter().enumerate();
        numbered.map(|(number, quota)| left(&store, "per-user", &format!("user-{number}"), quota)).collect()
    };
    let before = all_left();
    flood(&store, "per-address", 50_000);
    assert_eq!(all_left(), before);
    assert!(store.len() <= KEYS, "{}", store.len());
}

#[test]
fn holders_of_places_stay_while_others_make_up_keys() {
    let (store, places) = (store(KEYS).0, quota("2/h concurrency"));
    assert!(take(&store, "jobs", "ann", &places, 2));
    flood(&store, "per-address", 50_000);
    assert!(!take(&store, "jobs", "ann", &places, 1), "both places are taken");
}

/// Made-up names would be as many rules, each below its share, if they counted as rules.
#[test]
fn raw_charges_are_one_rule_whatever_their_names() {
    let (store, hourly) = (store(KEYS).0, quota("100/h"));
    let users: Vec<String> = (0..100).map(|user| format!("user-{user}")).collect();
    users.iter().for_each(|user| assert!(take(&store, "per-user", user, &hourly, 99)));
    let store = Arc::new(store);
    let engine = Arc::new(Engine::new(Arc::clone(&store) as Arc<dyn Store>));
    for number in 0..50_000 {
        let name = RawName::within("limit", format!("name-{number}")).unwrap();
        let charges = [RawCharge::new(name, format!("key-{number}"), quota("1/h"))];
        let demand = engine.raw(&charges, OnOutage::Deny);
        let mut decision = Decision::default();
        assert!(demand.strict().try_check(&mut decision).unwrap().is_ok() && decision.is_allowed());
    }
    for user in &users {
        assert_eq!(left(&store, "per-user", user, &hourly), 1, "{user}");
    }
}

/// Three of four rules are flooded in turn. The fourth has a quarter of its share: shards differ by chance.
#[test]
fn a_rule_below_its_equal_share_loses_nothing() {
    let (store, hourly) = (store(256 * 64).0, quota("100/h"));
    let users: Vec<String> = (0..256 * 4).map(|user| format!("user-{user}")).collect();
    users.iter().for_each(|user| assert!(take(&store, "few", user, &hourly, 1)));
    let once = quota("1/h");
    for key in 0..60_000 {
        assert!(take(&store, ["one", "two", "three"][key % 3], &format!("made-up-{key}"), &once, 1));
    }
    let kept = users.iter().filter(|user| left(&store, "few", user, &hourly) == 99).count();
    assert_eq!(kept, users.len(), "they had used least of all");
    assert!(store.health().evicted > 40_000);
}

/// Within a rule, made-up keys push one another out as long as they have used less.
#[test]
fn who_is_limited_stays_limited_while_a_rule_has_anything_else() {
    let (store, five) = (store(KEYS).0, quota("5/h"));
    let villains: Vec<String> = (0..100).map(|villain| format!("villain-{villain}")).collect();
    villains.iter().for_each(|villain| assert!(take(&store, "api", villain, &five, 5)));
    for key in 0..100_000 {
        assert!(take(&store, "api", &format!("made-up-{key}"), &five, 1 + key % 4));
    }
    for villain in &villains {
        assert!(!take(&store, "api", villain, &five, 1), "{villain} got away");
    }
    assert_eq!(store.health().evicted_exhausted, 0);
    assert!(store.evicted() > 90_000, "{}", store.evicted());
}

/// The attacker's own counters end first: the one that is limited outlives them all.
#[test]
fn of_exhausted_counters_the_one_that_ends_first_goes() {
    let (store, clock) = store(KEYS);
    let daily = quota("1/d");
    assert!(take(&store, "api", "villain", &daily, 1));
    clock.advance(Duration::from_secs(60));
    flood(&store, "api", 100_000);
    assert!(!take(&store, "api", "villain", &daily, 1), "the villain got away");
    let health = store.health();
    assert!(health.evicted_exhausted > 90_000 && health.evicted_exhausted == health.evicted, "{health:?}");
    assert_eq!((health.full, health.failures, health.is_full), (0, 0, false), "a new key is no outage");
}

#[test]
fn what_is_denied_anyway_pushes_nothing_out() {
    let (store, hourly) = (store(256).0, quota("100/h"));
    flood(&store, "filler", 5_000);
    let evicted = store.evicted();
    for key in 0..5_000 {
        assert!(!take(&store, "api", &format!("made-up-{key}"), &hourly, 101));
    }
    assert_eq!(store.evicted(), evicted);
}

/// A check of several rules finds room for all of its keys, and keeps those it has.
#[test]
fn a_check_of_several_rules_is_no_outage() {
    let (store, once) = (store(KEYS).0, quota("1/h"));
    let names = ["user", "address", "path"].map(|name| Name::new(name).unwrap());
    for number in 0..20_000 {
        let subject = format!("made-up-{number}");
        let mut charges = Charges::new();
        for name in names {
            charges.push(Charge::new(Key::new(name, &subject).unwrap(), &once)).unwrap();
        }
        let check = charges.check().unwrap();
        assert!(store.decide(&check).expect("no outage").is_allowed(), "{number}");
        assert!(!store.decide(&check).expect("no outage").is_allowed(), "{number}: all of it was counted");
    }
    assert!(store.len() <= KEYS);
}
