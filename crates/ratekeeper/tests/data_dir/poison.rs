//! Records that no store wrote, in a file that is whole: they are judged, healed or left out, and nothing panics.

use std::path::Path;

use ratekeeper::{
    Charge, Check, Control as _, Key, Name, Override, OverrideScope, Overrides as _, Quota, Reservation,
    Store as _, Switch,
};
use ratekeeper_testkit::poison::Draw;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tempfile::TempDir;

use crate::rig::{clock, now, open};

type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;
const TABLES: [&str; 7] = ["counters", "rules", "ids", "receipts", "overrides", "switches", "journal"];
const QUOTAS: [&str; 6] = [
    "5/d",
    "5/d leaky_bucket queue 3",
    "5/h fixed_window",
    "5/h sliding_window",
    "5/h sliding_log",
    "5/h concurrency",
];

/// Uses a store in all ways; whatever it answers, it answers.
fn use_all(directory: &Path) {
    let store = open(directory, &clock());
    let name = Name::within("search", "poisoned").unwrap();
    for (number, quota) in QUOTAS.iter().enumerate() {
        let quota: Quota = quota.parse().unwrap();
        let subject = format!("ann{number}");
        let charge = Charge::new(Key::new(name, &subject).unwrap(), &quota);
        let check = Check::one(&charge);
        let mut decision = store.decide(&check).unwrap();
        decision.set_nonce(7);
        let _ = now(store.refund(&check, &decision, 1)).unwrap();
        let _ = now(store.reserve(&check, &Reservation::hold(&subject, HOUR).unwrap())).map(|_| ());
        let _ = now(store.settle(subject.as_bytes(), Some(2))).unwrap();
        let _ = now(store.reserve(&check, &Reservation::once(&format!("once{number}"), HOUR).unwrap()));
    }
    let scope = OverrideScope::project("/a", "acme", "web").unwrap();
    now(store.set(scope, Override::limit(3))).unwrap();
    now(store.set_switch("search/*", "mode=monitor".parse::<Switch>().unwrap())).unwrap();
    let _ = now(store.all()).unwrap();
    now(ratekeeper::Audit::append(&store, "a line")).unwrap();
}

const HOUR: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Changes records as chance says, in place or to another length.
fn poison(directory: &Path, draw: &mut Draw<'_>) {
    let database = Database::open(directory.join("ratekeeper.redb")).unwrap();
    let reading = database.begin_read().unwrap();
    let mut records = Vec::new();
    for table in TABLES {
        let read = reading.open_table(Table::new(table)).unwrap();
        for entry in read.iter().unwrap() {
            let (key, value) = entry.unwrap();
            records.push((table, key.value().to_vec(), value.value().to_vec()));
        }
    }
    drop(reading);
    let writing = database.begin_write().unwrap();
    for (table, key, value) in records {
        let mut table = writing.open_table(Table::new(table)).unwrap();
        let (mut new_key, mut new_value) = (key.clone(), value);
        match draw.byte() % 8 {
            0 => new_value.truncate(draw.below(new_value.len() + 1)),
            1 => new_value.extend(draw.take(9)),
            2 => new_key.truncate(draw.below(key.len() + 1)),
            3 if !new_key.is_empty() => {
                let at = draw.below(new_key.len());
                new_key[at] = draw.byte();
            }
            _ => {
                for _ in 0..3 {
                    let at = draw.below(new_value.len().max(1));
                    new_value.get_mut(at).into_iter().for_each(|byte| *byte = draw.byte());
                }
            }
        }
        table.remove(&key[..]).unwrap();
        table.insert(&new_key[..], &new_value[..]).unwrap();
    }
    writing.commit().unwrap();
}

#[test]
fn a_store_lives_with_records_of_chance() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut unreadable = 0;
    for _ in 0..40 {
        let directory = TempDir::new().unwrap();
        use_all(directory.path());
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(2_000).collect();
        poison(directory.path(), &mut Draw::new(&bytes));
        let store = open(directory.path(), &clock());
        let data = store.health().data.unwrap();
        assert!(!data.was_damaged, "the file is whole");
        unreadable += data.unreadable;
        drop(store);
        use_all(directory.path());
    }
    assert!(unreadable > 40, "{unreadable} records");
}
