//! Calls of several steps, each of them in time: all of them together must be, too.

use std::time::{Duration, Instant};

use ratekeeper::{
    Charge, Check, Key, Mode, Name, Override, OverrideScope, Reservation, Store, StoreError, StoreErrorKind,
    Switch,
};
use ratekeeper_testkit::servers::{Flavour, SlowWay};

use super::rig::{RULE, Rig, server};
use super::until;

const LIMIT: u64 = 1_000_000;
/// Silence and total alike.
const BOUND: Duration = Duration::from_millis(2_400);
/// One step stays within it. Two take so much longer that even a timer which is late by a second ends the call before
/// the second answer comes.
const STEP: Duration = Duration::from_millis(2_000);
/// When the answers to two steps are there.
const TWO_STEPS: Duration = Duration::from_millis(4_000);

/// A store behind a way that is fast while a test prepares something, and slow while it looks.
struct Steps {
    rig: Rig,
    way: SlowWay,
}

impl Steps {
    /// Calls until it has an answer: a busy machine only makes it later.
    fn prepare<T>(&self, what: &str, call: impl AsyncFn() -> Result<T, StoreError>) {
        self.way.delay(Duration::ZERO);
        until(what, || self.rig.runtime.block_on(call()).is_ok());
    }

    /// A call that takes two steps is ended by its total. Where a busy machine kept the first step from an answer, the
    /// connection is given up and nothing was learned of two: then it is prepared and looked at again.
    #[track_caller]
    fn is_ended<T>(
        &self,
        what: &str,
        prepare: impl Fn(u32),
        call: impl AsyncFn(u32) -> Result<T, StoreError>,
    ) {
        let mut round = 0;
        until(what, || {
            round += 1;
            prepare(round);
            self.way.delay(STEP);
            let began = Instant::now();
            let ended = self.rig.runtime.block_on(call(round));
            let end = Instant::now();
            let Err(error) = ended else {
                // An answer that has arrived is used, however late the call was looked at.
                let late = self.rig.control.lateness(began, end);
                assert!(late > TWO_STEPS - BOUND, "{what} had its second answer after {:?}", end - began);
                return false;
            };
            self.rig.assert_ended_within(BOUND, [(began, end)].into_iter());
            error.kind() == StoreErrorKind::Timeout
        });
    }
}

#[test]
fn the_steps_of_a_call_share_its_total() {
    let server = server(Flavour::Redis7, &[]);
    let way = SlowWay::to(server.port(), Duration::ZERO);
    let rig =
        Rig::with("steps", way.port(), LIMIT, |builder| builder.deadline(BOUND).total(BOUND)).connected();
    let (store, quota) = (rig.store.clone(), rig.quota);
    let charge = Charge::new(Key::new(Name::new(RULE).unwrap(), "ann").unwrap(), &quota);
    let check = Check::one(&charge);
    let scope = OverrideScope::project("/x", "7", "42").unwrap();
    let switch = Switch { mode: Some(Mode::Monitor), ..Switch::default() };
    let steps = Steps { rig, way };

    let set =
        || steps.prepare("an override", async || store.overrides().set(scope, Override::limit(7)).await);
    set();
    steps.way.delay(STEP);
    // One step stays within the total. On a busy machine it may not, but two never do.
    until("one step in time", || {
        let one = store.overrides().set(scope, Override::limit(8));
        steps.rig.runtime.block_on(one).is_ok()
    });
    // Another reservation each time: what is settled already needs one step.
    let held = |round: u32| {
        let id = format!("held {round}");
        steps.prepare("a reservation", async || {
            store.reserve(&check, &Reservation::hold(&id, Duration::from_secs(600)).unwrap()).await
        });
    };
    let held_to_cancel = |round| held(round + 1_000);
    let id = |round: u32| format!("held {round}").into_bytes();
    steps.is_ended("settle", held, async |round| store.settle(&id(round), Some(3)).await);
    steps.is_ended("cancel", held_to_cancel, async |round| store.settle(&id(round + 1_000), None).await);
    let overridden = |_| set();
    steps.is_ended("an override", overridden, async |_| store.overrides().get(scope).await);
    steps.is_ended("deleting one", overridden, async |_| store.overrides().delete(scope).await);
    let connected = |_| steps.prepare("a connection", async || store.ping().await);
    steps.is_ended("a switch", connected, async |_| store.control().set_switch(RULE, switch).await);
}
