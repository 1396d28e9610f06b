//! Reservations and ids: settled at once they are as if the real amount had
//! been charged, and whatever is repeated is charged once.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq};
use ratekeeper_core::{
    Algorithm, Charge, Check, Decision, Key, Model, Name, Origin, Quota, Reservation, Settled, Timestamp,
};

use crate::layers::{Request, layers, requests};
use crate::support::{Counter, START, Step, costs, histories, hold, pauses, quotas};

const HOLD: Duration = Duration::from_secs(60);

/// A model with one counter, and what it has remaining.
struct Stage {
    model: Model,
    quota: Quota,
}

impl Stage {
    /// The state after a history, which a counter of its own follows to turn
    /// steps into instants and costs.
    fn after(quota: Quota, history: &[Step]) -> (Self, u64) {
        let mut stage = Stage { model: Model::default(), quota };
        let mut counter = Counter::new(quota);
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(*step, now);
            now = now.min(Timestamp::MAX.as_micros() / 2);
            counter.ask(now, cost.min(1_000_000_000));
            stage.check(cost, now);
        }
        (stage, now)
    }

    fn on<T>(&mut self, cost: u32, act: impl FnOnce(&mut Model, &Check<'_>) -> T) -> T {
        let key = Key::new(Name::new("one").expect("a short name"), "subject").expect("a short subject");
        let charge =
            Charge::new(key, &self.quota).cost(cost.min(1_000_000_000).into()).expect("a cost in range");
        act(&mut self.model, &Check::one(&charge))
    }

    fn check(&mut self, cost: u32, now: u64) -> Decision {
        let now = Timestamp::from_micros(now);
        self.on(cost, |model, check| model.check(check, now).expect("few windows"))
    }

    fn reserve(&mut self, cost: u32, id: &str, now: u64) -> Decision {
        let reservation = Reservation::hold(id, HOLD).expect("a short id");
        let now = Timestamp::from_micros(now);
        self.on(cost, |model, check| model.reserve(check, &reservation, now).expect("the same check"))
    }

    fn settle(&mut self, id: &str, actual: Option<u32>, now: u64) -> Settled {
        self.model.settle(id.as_bytes(), actual, Timestamp::from_micros(now))
    }

    fn remaining(&mut self, now: u64) -> u32 {
        self.check(0, now).verdicts()[0].remaining()
    }
}

for_each_algorithm!(settling_at_once_is_charging_the_real_amount: settled_at_once);

/// Remaining is the same for all algorithms. What may differ is not seen in
/// it: a fixed window has begun, and stays begun, even if nothing is left
/// charged in it; so has a window of a sliding one if something else was there.
fn settled_at_once(algorithm: Algorithm) {
    let values = (quotas(algorithm), histories(12), pauses(), costs(), 0..=1_000u32);
    hold(1_000, values, |(quota, history, pause, cost, permille)| {
        let (mut reserved, last) = Stage::after(quota, &history);
        let (mut charged, _) = Stage::after(quota, &history);
        let now = Counter::new(quota).after(pause, last);
        let estimate = Counter::new(quota).cost(cost, now);
        let actual = u32::try_from(u64::from(estimate) * u64::from(permille) / 1_000).expect("a share");
        let before = reserved.remaining(now);
        if !reserved.reserve(estimate, "id", now).is_allowed() {
            prop_assert_eq!(reserved.settle("id", Some(actual), now), Settled::Unknown);
            prop_assert_eq!(reserved.remaining(now), before, "a denied reservation holds nothing");
            return Ok(());
        }
        prop_assert_eq!(reserved.settle("id", Some(actual), now), Settled::Done);
        if actual > 0 {
            prop_assert!(charged.check(actual, now).is_allowed(), "less than an estimate that passed");
        }
        prop_assert_eq!(reserved.remaining(now), charged.remaining(now), "{} of {}", actual, estimate);
        Ok(())
    });
}

for_each_algorithm!(settling_late_never_gives_more_than_charging_the_real_amount: settled_late);

fn settled_late(algorithm: Algorithm) {
    let values = (quotas(algorithm), histories(12), costs(), 0..=1_000u32, pauses());
    hold(1_000, values, |(quota, history, cost, permille, pause)| {
        let (mut reserved, now) = Stage::after(quota, &history);
        let (mut charged, _) = Stage::after(quota, &history);
        let estimate = Counter::new(quota).cost(cost, now);
        let actual = u32::try_from(u64::from(estimate) * u64::from(permille) / 1_000).expect("a share");
        if !reserved.reserve(estimate, "id", now).is_allowed() {
            return Ok(());
        }
        if actual > 0 {
            charged.check(actual, now);
        }
        let later = Counter::new(quota).after(pause, now);
        let lapsed = later - now >= u64::try_from(HOLD.as_micros()).expect("a minute");
        let expected = if lapsed { Settled::Lapsed } else { Settled::Done };
        let answer = reserved.settle("id", Some(actual), later);
        // Ten minutes after it lapsed nothing is known of a reservation.
        prop_assert!(answer == expected || (lapsed && answer == Settled::Unknown));
        let window = quota.window_micros();
        for at in [later, later + window / 3, later + window] {
            prop_assert!(reserved.remaining(at) <= charged.remaining(at));
        }
        Ok(())
    });
}

for_each_algorithm!(a_cancelled_reservation_leaves_what_was_there: cancelled);

fn cancelled(algorithm: Algorithm) {
    hold(1_000, (quotas(algorithm), histories(12), pauses(), costs()), |(quota, history, pause, cost)| {
        let (mut stage, last) = Stage::after(quota, &history);
        let now = Counter::new(quota).after(pause, last);
        let estimate = Counter::new(quota).cost(cost, now);
        let before = stage.remaining(now);
        if stage.reserve(estimate, "id", now).is_allowed() {
            prop_assert_eq!(stage.settle("id", None, now), Settled::Done);
            prop_assert_eq!(stage.settle("id", None, now), Settled::Already);
        }
        prop_assert_eq!(stage.remaining(now), before, "{} of {}", estimate, quota);
        Ok(())
    });
}

/// Every request is sent up to three times. Under an id that must be the same
/// as sending it once; denied ones are judged anew each time.
#[test]
fn a_repeated_id_is_charged_once() {
    let values = (layers(), requests(20), vec((1..=3u32, any::<bool>()), 20));
    hold(1_000, values, |(layers, requests, repeats)| {
        let (mut once, mut often) = (Model::default(), Model::default());
        let (mut now, mut retry_after) = (START, 0);
        for (index, (Request { pause, costs, .. }, (times, hold))) in requests.iter().zip(repeats).enumerate()
        {
            now += pause.micros(retry_after);
            let at = Timestamp::from_micros(now);
            let charges = layers.charges(costs);
            let check = charges.check().expect("at least one layer");
            let mut first = once.check(&check, at).expect("few windows");
            if hold {
                first.set_held();
            }
            let id = index.to_string();
            let reservation = if hold { Reservation::hold(&id, HOLD) } else { Reservation::once(&id, HOLD) };
            for time in 0..times {
                let decision =
                    often.reserve(&check, &reservation.clone().expect("a short id"), at).expect("same");
                let repeated =
                    time > 0 && decision.is_allowed() && costs[..layers.quotas.len()].iter().any(|c| *c > 0);
                let origin = if repeated { Origin::Repeat } else { Origin::Store };
                prop_assert_eq!(decision, first.clone().from_origin(origin));
            }
            let peeks =
                [&mut once, &mut often].map(|model| model.check(&check.peek(), at).expect("few windows"));
            prop_assert_eq!(&peeks[0], &peeks[1]);
            retry_after = first.retry_after().as_micros().unwrap_or(0);
        }
        Ok(())
    });
}
