//! What is given back: never above full, exactly what was taken, and nothing
//! once the charge no longer counts.

use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::sample::Index;
use ratekeeper_core::{Algorithm, Model, Receipt, Timestamp};

use crate::layers::{Request, layers, requests};
use crate::support::{Cost, Counter, START, Step, costs, histories, hold, pauses, quotas};

for_each_algorithm!(refunds_never_bring_a_quota_above_full: never_above_full);

fn never_above_full(algorithm: Algorithm) {
    let refund = (0..4usize, 1..=1_000_000_000u32);
    let question = (pauses(), costs(), proptest::option::of(refund));
    hold(1_000, (quotas(algorithm), proptest::collection::vec(question, 1..=30)), |(quota, history)| {
        let mut counter = Counter::new(quota);
        let mut receipts: Vec<Receipt> = Vec::new();
        let mut now = START;
        for (pause, cost, refund) in history {
            let units;
            (now, units) = counter.follow(Step { pause, cost }, now);
            receipts.extend(counter.ask(now, units).receipt);
            let Some((back, units)) = refund else { continue };
            // Also more than was charged, and more than once: callers do.
            let Some(receipt) = receipts.iter().rev().nth(back) else { continue };
            let before = counter.status(now).remaining;
            counter.refund(now, units, *receipt);
            let after = counter.status(now).remaining;
            prop_assert!((before..=quota.capacity()).contains(&after), "{} became {}", before, after);
        }
        Ok(())
    });
}

for_each_algorithm!(a_charge_given_back_at_once_leaves_what_was_there: given_back_at_once);

fn given_back_at_once(algorithm: Algorithm) {
    hold(1_500, (quotas(algorithm), histories(30)), |(quota, history)| {
        let mut counter = Counter::new(quota);
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            let before = counter.status(now).remaining;
            let mut other = counter.clone();
            if let Some(receipt) = other.ask(now, cost).receipt {
                other.refund(now, cost, receipt);
                prop_assert_eq!(other.status(now).remaining, before, "{} of {} at {}", cost, quota, now);
            }
            counter.ask(now, cost);
        }
        Ok(())
    });
}

/// However much is asked back, a log gives no more than was charged at the
/// instant of the receipt.
#[test]
fn a_refund_leaves_in_a_log_what_was_charged_at_other_instants() {
    let values = (quotas(Algorithm::SlidingLog), histories(20), any::<Index>(), pauses());
    hold(1_500, values, |(quota, history, index, pause)| {
        let mut counter = Counter::new(quota);
        let mut charges = Vec::new();
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            charges.extend(counter.ask(now, cost).receipt.map(|receipt| (receipt, cost)));
        }
        if charges.is_empty() {
            return Ok(());
        }
        let (receipt, _) = charges[index.index(charges.len())];
        now = counter.after(pause, now);
        let counts = |at: u64| now - at < quota.window_micros();
        let gives = counts(receipt.at);
        let left = charges.iter().filter(|(one, _)| counts(one.at) && !(gives && one.at == receipt.at));
        let left: u32 = left.map(|(_, cost)| cost).sum();
        counter.refund(now, u32::MAX, receipt);
        prop_assert_eq!(counter.status(now).remaining, quota.limit() - left);
        Ok(())
    });
}

#[test]
fn a_check_given_back_at_once_leaves_every_layer_with_what_was_there() {
    hold(1_000, (layers(), requests(20)), |(layers, requests)| {
        let mut model = Model::default();
        let (mut now, mut retry_after) = (START, 0);
        for Request { pause, costs, peek } in requests {
            now += pause.micros(retry_after);
            let at = Timestamp::from_micros(now);
            let charges = layers.charges(&costs);
            let check = charges.check().expect("at least one layer");
            let before = model.check(&check.peek(), at).expect("few windows");
            let decision = model.check(&check, at).expect("few windows");
            retry_after = decision.retry_after().as_micros().unwrap_or(0);
            // Some requests stay charged, so that there is something to keep.
            if peek || !decision.is_allowed() {
                continue;
            }
            model.refund(&check, &decision, u32::MAX, at);
            let after = model.check(&check.peek(), at).expect("few windows");
            for (before, after) in before.verdicts().iter().zip(after.verdicts()) {
                prop_assert_eq!(after.remaining(), before.remaining(), "{}", after.quota());
            }
        }
        Ok(())
    });
}

for_each_algorithm!(a_refund_that_comes_too_late_does_nothing: too_late);

/// Too late is: in another fixed window, two windows on in a sliding one, a
/// window later in a log, once the units have drained from a bucket, once the
/// lease has lapsed. Others may have come in between and must not profit.
fn too_late(algorithm: Algorithm) {
    let late = prop_oneof![Just(0), 0..=1_500u64];
    let values = (quotas(algorithm), costs(), histories(12), late);
    hold(1_500, values, |(quota, cost, history, late)| {
        let mut counter = Counter::new(quota);
        let cost = match cost {
            Cost::TooMuch | Cost::RestAndOne => 1,
            cost => counter.cost(cost, START).min(quota.cost_max()),
        };
        let receipt = counter.ask(START, cost).receipt.expect("a full quota admits it");
        let gone_at = match algorithm {
            // The counter's own windows may start anew, so this is the latest.
            Algorithm::SlidingWindow => receipt.at + 2 * quota.window_micros(),
            Algorithm::SlidingLog => receipt.at + quota.window_micros(),
            // Buckets count fractions of the microsecond that the receipt names.
            Algorithm::TokenBucket | Algorithm::LeakyBucket => receipt.at + 1,
            Algorithm::FixedWindow | Algorithm::Concurrency => receipt.at,
        };
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            counter.ask(now, cost);
        }
        now = now.max(gone_at) + late;
        let before = counter.state.clone();
        counter.refund(now, cost, receipt);
        let probe = Counter { quota, state: before };
        for later in [now, now + quota.window_micros() / 3, now + quota.window_micros()] {
            prop_assert_eq!(counter.status(later), probe.status(later));
        }
        Ok(())
    });
}
