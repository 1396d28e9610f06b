//! What operators set lasts: it is in the directory before the call returns.

use std::time::Duration;

use ratekeeper::{
    Audit as _, Control as _, Override, OverrideScope, Overrides as _, Store as _, Switch, emergency_of,
};
use tempfile::TempDir;

use crate::rig::{START, clock, copied, now, open};

#[test]
fn overrides_are_there_after_a_crash_with_all_they_say() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), &clock());
    let project = OverrideScope::project("/search", "acme", "web").unwrap();
    let organisation = OverrideScope::organisation("/search", "acme").unwrap();
    let to = Override {
        limit: 7,
        window: Some(Duration::from_millis(1_500)),
        expires_at: Some(START.after(Duration::from_secs(60))),
        reason: "an incident, 12:00".to_owned(),
        author: "ann".to_owned(),
    };
    now(store.set(project, to.clone())).unwrap();
    now(store.set(organisation, Override::limit(0))).unwrap();
    let (_copy, after) = copied(directory.path());
    assert_eq!(now(after.get(project)).unwrap(), Some(to));
    assert_eq!(now(after.get(organisation)).unwrap(), Some(Override::limit(0)));

    assert!(now(store.delete(project)).unwrap());
    assert_eq!(now(store.clear("acme", None)).unwrap(), 1);
    let (_copy, after) = copied(directory.path());
    assert_eq!(now(after.all()).unwrap(), []);
}

#[test]
fn switches_the_audit_log_and_the_receipt_key_are_there_after_a_crash() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), &clock());
    let switch: Switch = "mode=monitor enforce=10 until=1700000060000000".parse().unwrap();
    let lift: Switch = "emergency=lift".parse().unwrap();
    now(store.set_switch("search/*", switch)).unwrap();
    now(store.set_switch(&emergency_of("search/*"), lift)).unwrap();
    let key = now(store.shared_secret()).unwrap();
    for line in ["one", "two", "three"] {
        now(store.append(line)).unwrap();
    }
    let (_copy, after) = copied(directory.path());
    let switches = after.switches().unwrap();
    let mut all: Vec<_> = switches.iter().map(|(rule, switch)| (rule.to_owned(), *switch)).collect();
    all.sort_by(|left, right| left.0.cmp(&right.0));
    assert_eq!(all, [(emergency_of("search/*"), lift), ("search/*".to_owned(), switch)]);
    assert_eq!(now(after.shared_secret()).unwrap(), key, "receipts of before are still good");
    assert_eq!(now(after.latest(0, 2)).unwrap(), ["three", "two"]);

    assert!(now(store.clear_switch("search/*")).unwrap());
    let (_copy, after) = copied(directory.path());
    assert_eq!(after.switches().unwrap().iter().count(), 1);
}

#[test]
fn the_audit_log_is_bounded_in_the_directory_too() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), &clock());
    assert!(now(store.append("two\nlines")).is_err());
    // The bound itself is tested in memory: here, what is dropped there is dropped in the file.
    (0..20).for_each(|number| now(store.append(&number.to_string())).unwrap());
    drop(store);
    let store = open(directory.path(), &clock());
    assert_eq!(now(store.latest(0, 100)).unwrap().len(), 20);
    assert_eq!(now(store.latest(18, 100)).unwrap(), ["1", "0"]);
}
