//! Calls of several steps, each of them in time: all of them together must be, too.

use std::time::{Duration, Instant};

use ratekeeper::{
    Charge, Check, Key, Mode, Name, Override, OverrideScope, Reservation, Store, StoreErrorKind, StoreFuture,
    Switch,
};
use ratekeeper_testkit::servers::{Flavour, SlowWay};

use super::rig::{RULE, Rig, server};
use super::until;

const LIMIT: u64 = 1_000_000;
/// Silence and total alike.
const BOUND: Duration = Duration::from_millis(2_400);
/// Two steps take so much longer than it that even a timer which is late by a second ends the call before the second
/// answer comes.
const STEP: Duration = Duration::from_millis(2_000);

#[track_caller]
fn is_ended<T>(rig: &Rig, what: &str, call: StoreFuture<'_, T>) {
    let began = Instant::now();
    let ended = rig.runtime.block_on(call);
    let kind = ended.err().map(|error| error.kind());
    assert_eq!(kind, Some(StoreErrorKind::Timeout), "{what} takes two steps: {:#?}", rig.lines());
    rig.assert_ended_within(BOUND, [(began, Instant::now())].into_iter());
}

#[test]
fn the_steps_of_a_call_share_its_total() {
    let server = server(Flavour::Redis7, &[]);
    let way = SlowWay::to(server.port(), Duration::ZERO);
    let rig =
        Rig::with("steps", way.port(), LIMIT, |builder| builder.deadline(BOUND).total(BOUND)).connected();
    let charge = Charge::new(Key::new(Name::new(RULE).unwrap(), "ann").unwrap(), &rig.quota);
    let scope = OverrideScope::project("/x", "7", "42").unwrap();
    for id in ["settled", "cancelled"] {
        let hold = Reservation::hold(id, Duration::from_secs(600)).unwrap();
        assert!(rig.runtime.block_on(rig.store.reserve(&Check::one(&charge), &hold)).unwrap().is_allowed());
    }
    rig.runtime.block_on(rig.store.overrides().set(scope, Override::limit(7))).unwrap();

    let switch = Switch { mode: Some(Mode::Monitor), ..Switch::default() };
    way.delay(STEP);
    // One step stays within the total. On a busy machine it may not, but two never do.
    until("one step in time", || {
        rig.runtime.block_on(rig.store.overrides().set(scope, Override::limit(8))).is_ok()
    });
    is_ended(&rig, "settle", rig.store.settle(b"settled", Some(3)));
    is_ended(&rig, "cancel", rig.store.settle(b"cancelled", None));
    is_ended(&rig, "an override", rig.store.overrides().get(scope));
    is_ended(&rig, "deleting one", rig.store.overrides().delete(scope));
    is_ended(&rig, "a switch", rig.store.control().set_switch(RULE, switch));
}
