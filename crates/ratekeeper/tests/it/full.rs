//! A store in memory at its bounds: what it refuses is counted, and told once.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratekeeper::{
    Charge, Check, Decision, Engine, Health, Key, ManualClock, MemoryStore, MemoryStoreBuilder, Name,
    OnOutage, Quota, RawCharge, RawName, Reservation, Store, StoreErrorKind, Timestamp,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

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
    let (store, _) = bounded(|builder| builder.max_keys(256));
    assert!((0..5_000).any(|key| !use_up(&store, &key.to_string(), None)), "it is full");
    let engine = Arc::new(Engine::new(Arc::new(store)));
    let quota: Quota = "1/d fixed_window".parse().unwrap();
    let free = (0..).map(|n| format!("free{n}")).find(|key| !use_up_by(&engine, key, quota)).unwrap();
    let charges = [RawCharge::new(RawName::new("raw").unwrap(), free, quota)];
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
        ];
        assert!(errors.iter().all(|error| error.kind() == StoreErrorKind::Capacity), "{errors:?}");
        assert!(strict.peek().await.unwrap().is_allowed(), "to look takes no room");
    }
}

/// Whether a raw charge finds room for a counter.
fn use_up_by(engine: &Arc<Engine>, key: &str, quota: Quota) -> bool {
    let charges = [RawCharge::new(RawName::new("raw").unwrap(), key, quota)];
    engine.raw(&charges, OnOutage::Deny).strict().try_check(&mut Decision::default()).unwrap().is_ok()
}

fn counts(health: Health) -> (u64, u64, bool) {
    (health.full, health.failures, health.is_full)
}

#[test]
fn no_room_for_a_key_is_counted_and_told_once() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let (store, clock) = bounded(|builder| builder.max_keys(256));
        assert_eq!(counts(store.health()), (0, 0, false));
        let refused = (0..5_000).filter(|key| !use_up(&store, &key.to_string(), None)).count() as u64;
        assert_eq!(refused, 5_000 - 256);
        assert_eq!(counts(store.health()), (refused, refused, true));
        clock.advance(Duration::from_secs(59));
        assert!(store.health().is_full, "a minute is not over");
        clock.advance(Duration::from_secs(1));
        assert_eq!(counts(store.health()), (refused, refused, false));
        assert!(!use_up(&store, "again", None) && store.health().is_full);
    });
    let told = lines.0.lock().unwrap().clone();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("WARN") && told[0].contains("in memory is full"), "{told:?}");
    assert!(told[1].starts_with("INFO") && told[1].contains("has room again"), "{told:?}");
    assert!(told[2].starts_with("WARN"), "{told:?}");
}

#[test]
fn whoever_finds_room_later_notices_that_it_is_over() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let (store, clock) = bounded(|builder| builder.max_keys(256));
        assert!((0..2_000).any(|key| !use_up(&store, &key.to_string(), None)));
        clock.advance(Duration::from_secs(2 * 24 * 3_600));
        assert!(use_up(&store, "another", None));
    });
    let told = lines.0.lock().unwrap().clone();
    assert!(told.len() == 2 && told[1].starts_with("INFO"), "{told:?}");
}

#[test]
fn no_room_for_an_id_is_counted() {
    let (store, _) = bounded(|builder| builder.max_ids(16));
    let refused = (0..1_000).filter(|id| !use_up(&store, &id.to_string(), Some(&id.to_string()))).count();
    assert_eq!(refused, 1_000 - 16, "one in each of sixteen ledgers");
    assert_eq!(counts(store.health()), (refused as u64, refused as u64, true));
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
