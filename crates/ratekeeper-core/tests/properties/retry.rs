//! Retry-after is exact: the same question is denied one microsecond before it
//! and passes at it, if nobody else asks.

use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_assert, prop_assert_eq};
use proptest::test_runner::TestCaseResult;
use ratekeeper_core::{Algorithm, Model, Timestamp, Wait};

use crate::layers::{Request, layers, requests};
use crate::support::{Answer, Counter, START, Step, costs, histories, hold, pauses, quotas, rates};

/// Tests what a denied `answer` to `cost` promised, on the counter it left.
pub(crate) fn retry_is_exact(counter: &Counter, answer: &Answer, cost: u32) -> TestCaseResult {
    if answer.is_admitted() {
        return Ok(());
    }
    prop_assert_eq!(answer.wait.is_never(), cost > counter.quota.cost_max());
    if let Some(wait) = answer.wait.as_micros() {
        let (quota, at) = (counter.quota, answer.at);
        let early = counter.wait(at + wait - 1, cost);
        prop_assert_eq!(early, Wait::micros(1), "{} of {} passes before {} + {}", cost, quota, at, wait);
        let due = counter.wait(at + wait, cost);
        prop_assert_eq!(due, Wait::NONE, "{} of {} does not pass at {} + {}", cost, quota, at, wait);
    }
    Ok(())
}

for_each_algorithm!(a_denied_cost_passes_at_its_retry_after_and_not_before: exact);

fn exact(algorithm: Algorithm) {
    hold(2_000, (quotas(algorithm), histories(30)), |(quota, history)| {
        let mut counter = Counter::new(quota);
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            let answer = counter.ask(now, cost);
            retry_is_exact(&counter, &answer, cost)?;
        }
        Ok(())
    });
}

for_each_algorithm!(retry_after_is_exact_also_when_the_quota_has_changed: exact_after_change);

/// What a quota was before must not make the answer under the present one
/// wrong. The denied question itself heals the counter, so peeks after it see
/// what it saw.
fn exact_after_change(algorithm: Algorithm) {
    let step = (pauses(), costs()).prop_map(|(pause, cost)| Step { pause, cost });
    let to = proptest::option::weighted(0.2, (rates(), proptest::bool::ANY));
    hold(2_000, (quotas(algorithm), vec((step, to), 1..=30)), |(quota, history)| {
        let mut counter = Counter::new(quota);
        let mut now = START;
        for (step, to) in history {
            if let Some(((limit, millis), window)) = to {
                let window = window.then(|| std::time::Duration::from_millis(millis));
                counter.quota = quota.overridden(limit, window);
            }
            let cost;
            (now, cost) = counter.follow(step, now);
            let answer = counter.ask(now, cost);
            retry_is_exact(&counter, &answer, cost)?;
            prop_assert!(answer.status.remaining <= counter.quota.capacity());
        }
        Ok(())
    });
}

for_each_algorithm!(reset_after_is_exact_also_when_the_quota_has_changed: reset_after_change);

fn reset_after_change(algorithm: Algorithm) {
    let values = (quotas(algorithm), quotas(algorithm), histories(12), pauses(), costs());
    hold(2_000, values, |(quota, next, history, pause, cost)| {
        let mut counter = Counter::new(quota);
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            counter.ask(now, cost);
        }
        let cost = counter.cost(cost, now);
        now = counter.after(pause, now);
        counter.quota = next;
        let status = counter.ask(now, cost).status;
        prop_assert_eq!(counter.status(now + status.reset_after), counter.full());
        if status.reset_after > 0 {
            prop_assert_eq!(counter.status(now + status.reset_after - 1).reset_after, 1);
        }
        Ok(())
    });
}

#[test]
fn a_denied_check_of_several_charges_passes_at_its_retry_after_and_not_before() {
    hold(2_000, (layers(), requests(25)), |(layers, requests)| {
        let mut model = Model::default();
        let (mut now, mut retry_after) = (START, 0);
        for Request { pause, costs, .. } in requests {
            now += pause.micros(retry_after);
            let charges = layers.charges(&costs);
            let check = charges.check().expect("at least one layer");
            let decision = model.check(&check, Timestamp::from_micros(now)).expect("few windows");
            prop_assert_eq!(decision.at().as_micros(), now, "nothing steps back here");
            if decision.is_allowed() {
                prop_assert_eq!(decision.retry_after(), Wait::NONE);
                continue;
            }
            let too_much = check.charges().iter().any(|charge| charge.units() > charge.quota().cost_max());
            prop_assert_eq!(decision.retry_after().is_never(), too_much);
            let Some(wait) = decision.retry_after().as_micros() else { continue };
            prop_assert!(wait > 0);
            retry_after = wait;
            for (at, passes) in [(now + wait - 1, false), (now + wait, true)] {
                let seen = model.check(&check.peek(), Timestamp::from_micros(at)).expect("few windows");
                prop_assert_eq!(seen.is_allowed(), passes, "{} after {}", at - now, decision.explain());
            }
        }
        Ok(())
    });
}
