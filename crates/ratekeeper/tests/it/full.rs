//! A store in memory at its bounds: what it refuses or forgets is counted, and logged once.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratekeeper::bounds::RECEIPTS_MAX;
use ratekeeper::{
    Charge, Charges, Check, Decision, Engine, Health, Key, ManualClock, MemoryStore, MemoryStoreBuilder,
    Name, OnOutage, Quota, RawCharge, RawName, Reservation, Store, StoreErrorKind, Timestamp,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::away::Away;

fn bounded(bound: impl FnOnce(MemoryStoreBuilder) -> MemoryStoreBuilder) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    (bound(MemoryStore::builder().clock(Arc::new(clock.clone()))).build(), clock)
}

/// Uses up a counter of its own; whether there was room for it.
fn use_up(store: &MemoryStore, subject: &str, id: Option<&str>) -> bool {
    let quota: Quota = "1/d fixed_window".parse().unwrap();
    let charge = Charge::new(Key::new(Name::new("full").unwrap(), subject).unwrap(), &quota);
    let check = Check::one(&charge);
    let answer = match id {
        None => store.decide(&check),
        Some(id) => {
            let once = Reservation::once(id, Duration::from_secs(600)).unwrap();
            store.reserve(&check, &once).now().unwrap()
        }
    };
    answer.map_err(|error| assert_eq!(error.kind(), StoreErrorKind::Capacity)).is_ok()
}

#[tokio::test]
async fn an_outage_is_what_the_charges_say_and_an_error_to_a_strict_caller() {
    let engine = Arc::new(Engine::new(Away::store()));
    let quota: Quota = "1/d fixed_window".parse().unwrap();
    let charges = [RawCharge::new(RawName::new("raw").unwrap(), "key", quota)];
    for (on_outage, allowed) in [(OnOutage::Allow, true), (OnOutage::Deny, false)] {
        let demand = engine.raw(&charges, on_outage);
        assert_eq!(demand.check().await.unwrap().is_allowed(), allowed);
        assert_eq!(demand.now().check().unwrap().is_allowed(), allowed);
        let (strict, mut decision) = (demand.strict(), Decision::default());
        let errors = [
            strict.try_check(&mut decision).unwrap().unwrap_err(),
            strict.check().await.unwrap_err(),
            strict.reserve("id", Duration::from_secs(1)).await.unwrap_err(),
            strict.until_allowed(Duration::ZERO).await.unwrap_err(),
            strict.now().check().unwrap_err(),
            strict.now().reserve("id", Duration::from_secs(1)).unwrap_err(),
            strict.now().until_allowed(Duration::ZERO).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == StoreErrorKind::Unavailable), "{errors:?}");
        assert!(strict.peek().await.unwrap().is_allowed(), "to look takes no room");
        assert!(strict.now().peek().unwrap().is_allowed(), "to look takes no room");
    }
}

fn counts(health: Health) -> (u64, u64, bool) {
    (health.full, health.failures, health.is_full)
}

#[test]
fn exhausted_counters_that_go_are_counted_and_logged_once() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let (store, clock) = bounded(|builder| builder.max_keys(256));
        assert!((0..5_000).all(|key| use_up(&store, &key.to_string(), None)), "a new key is no outage");
        let health = store.health();
        assert_eq!((health.evicted, health.evicted_exhausted), (5_000 - 256, 5_000 - 256));
        assert_eq!(counts(health), (0, 0, false));
        clock.advance(Duration::from_secs(60));
        store.health();
        assert!(use_up(&store, "again", None));
        clock.advance(Duration::from_secs(2 * 24 * 3_600));
        assert!(use_up(&store, "whoever finds room notices that it is over", None));
    });
    let told = lines.0.lock().unwrap().clone();
    assert_eq!(told.len(), 4, "{told:?}");
    for line in [&told[0], &told[2]] {
        assert!(line.starts_with("WARN") && line.contains("forgets exhausted counters"), "{told:?}");
    }
    for (line, evicted) in [(&told[1], "evicted=4744"), (&told[3], "evicted=4745")] {
        assert!(line.starts_with("INFO") && line.contains(evicted), "{told:?}");
    }
}

#[test]
fn refunds_that_the_store_cannot_remember_are_counted_and_logged_once() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let (store, clock) = bounded(|builder| builder);
        let quota: Quota = "1000000/d fixed_window".parse().unwrap();
        let charge = Charge::new(Key::new(Name::new("full").unwrap(), "told").unwrap(), &quota);
        let charge = charge.cost(1_000_000).unwrap();
        let check = Check::one(&charge);
        let mut decision = store.decide(&check).unwrap();
        let mut refund = |nonce| {
            decision.set_nonce(nonce);
            store.refund(&check, &decision, 1).now().unwrap().unwrap()
        };
        let most = RECEIPTS_MAX as u64;
        assert!((1..=most).all(|nonce| refund(nonce) == 1));
        assert_eq!(store.health().refunds_refused, 0);
        assert_eq!((refund(most + 1), refund(most + 2), refund(most)), (0, 0, 1));
        assert_eq!(store.health().refunds_refused, 2);
        clock.advance(Duration::from_secs(60));
        store.health();
        clock.advance(Duration::from_secs(24 * 3_600));
        let mut decision = store.decide(&check).unwrap();
        decision.set_nonce(most + 3);
        assert_eq!(store.refund(&check, &decision, 1).now().unwrap().unwrap(), 1, "it has forgotten");
    });
    let told = lines.0.lock().unwrap().clone();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("WARN") && told[0].contains("remembers no more receipts"), "{told:?}");
    assert!(told[1].starts_with("INFO") && told[1].contains("refunds_refused=2"), "{told:?}");
}

#[test]
fn a_check_that_the_store_could_never_hold_fails_and_is_counted() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let (store, clock) = bounded(|builder| builder.max_keys(1));
        let quota: Quota = "1/d fixed_window".parse().unwrap();
        let name = Name::new("full").unwrap();
        let mut refused = 0;
        for number in 0..100 {
            let subjects: Vec<String> = (0..64).map(|key| format!("{number}-{key}")).collect();
            let mut charges = Charges::new();
            for subject in &subjects {
                charges.push(Charge::new(Key::new(name, subject).unwrap(), &quota)).unwrap();
            }
            let answer = store.decide(&charges.check().unwrap());
            refused += u64::from(answer.is_err());
            let error = answer.err().filter(|error| error.kind() == StoreErrorKind::Capacity);
            assert!(error.is_none_or(|error| error.to_string().contains("raise its max_keys")));
        }
        assert!(refused > 90, "of 64 counters, two share one of 256 places: {refused}");
        assert_eq!(counts(store.health()), (refused, refused, true));
        clock.advance(Duration::from_secs(59));
        assert!(store.health().is_full, "a minute is not over");
        clock.advance(Duration::from_secs(1));
        assert_eq!(counts(store.health()), (refused, refused, false));
    });
    let told = lines.0.lock().unwrap().clone();
    let told: Vec<&String> = told.iter().filter(|line| !line.contains("exhausted counters")).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("WARN") && told[0].contains("in memory is full"), "{told:?}");
    assert!(told[1].starts_with("INFO") && told[1].contains("has room again"), "{told:?}");
}

#[test]
fn no_room_for_an_id_is_counted() {
    let (store, _) = bounded(|builder| builder.max_ids(16));
    let refused = (0..1_000).filter(|id| !use_up(&store, &id.to_string(), Some(&id.to_string()))).count();
    assert_eq!(refused, 1_000 - 16, "one in each of sixteen ledgers");
    assert_eq!(counts(store.health()), (refused as u64, refused as u64, true));
}

#[test]
fn it_is_over_when_a_clock_that_was_ahead_is_set_right() {
    let (store, clock) = bounded(|builder| builder.max_ids(16));
    let day = Duration::from_secs(24 * 3_600);
    clock.advance(day);
    assert!((0..1_000).any(|id| !use_up(&store, &id.to_string(), Some(&id.to_string()))));
    assert!(store.health().is_full);
    clock.set(Timestamp::from_secs(1_700_000_000));
    assert!(!store.health().is_full);
}

/// Keeps what a test writes to the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
