//! Time alone: it fills a quota and no more, and at the instant that
//! `reset_after` names.

use proptest::prelude::{Just, prop_assert, prop_assert_eq, prop_oneof};
use ratekeeper_core::Algorithm;

use crate::support::{Counter, START, Step, histories, hold, quotas};

/// Runs a history; returns the instant of its last step.
fn play(counter: &mut Counter, history: &[Step]) -> u64 {
    let mut now = START;
    for step in history {
        let cost;
        (now, cost) = counter.follow(*step, now);
        counter.ask(now, cost);
    }
    now
}

for_each_algorithm!(idle_time_gives_a_full_quota_and_no_more: idle_gives_a_full_quota);

fn idle_gives_a_full_quota(algorithm: Algorithm) {
    // Up to ten times as long as any quota takes to fill.
    let idle = 0..=10_000u64;
    hold(1_000, (quotas(algorithm), histories(20), idle), |(quota, history, permille)| {
        let mut counter = Counter::new(quota);
        let last = play(&mut counter, &history);
        let reset_after = counter.status(last).reset_after;
        let mut seen = 0;
        for now in [last, last + reset_after / 1_000 * permille.min(1_000)] {
            let remaining = counter.status(now).remaining;
            prop_assert!((seen..=quota.capacity()).contains(&remaining), "{} remain", remaining);
            seen = remaining;
        }
        let now = last + reset_after + quota.window_micros() / 1_000 * permille;
        let mut had = 0;
        while counter.status(now).remaining > 0 {
            let cost = counter.status(now).remaining.min(quota.cost_max());
            prop_assert!(counter.ask(now, cost).is_admitted());
            had += cost;
        }
        prop_assert_eq!(had, quota.capacity());
        prop_assert!(!counter.ask(now, 1).is_admitted());
        Ok(())
    });
}

for_each_algorithm!(a_quota_is_full_at_its_reset_and_not_before: full_at_reset);

fn full_at_reset(algorithm: Algorithm) {
    hold(1_500, (quotas(algorithm), histories(20)), |(quota, history)| {
        let mut counter = Counter::new(quota);
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            let status = counter.ask(now, cost).status;
            prop_assert!(status.remaining <= quota.capacity());
            let reset_at = now + status.reset_after;
            prop_assert_eq!(counter.status(reset_at), counter.full());
            if status.reset_after == 0 {
                prop_assert_eq!(status, counter.full());
            } else {
                // For every algorithm something still counts one microsecond
                // before; for a sliding window that is its faded rest, rounded up.
                let before = counter.status(reset_at - 1);
                prop_assert_eq!(before.reset_after, 1);
                prop_assert!(before.remaining < quota.capacity());
            }
        }
        Ok(())
    });
}

for_each_algorithm!(an_expired_counter_is_as_good_as_none: expired_is_vacant);

/// Stores drop counters once they have expired, or do not yet; nobody may be
/// able to tell, not even by changing the quota.
fn expired_is_vacant(algorithm: Algorithm) {
    let late = prop_oneof![Just(0), 0..=2_000u64];
    let values = (quotas(algorithm), quotas(algorithm), histories(20), late, histories(6));
    hold(1_500, values, |(quota, next, history, late, more)| {
        let mut counter = Counter::new(quota);
        let last = play(&mut counter, &history);
        let mut now = counter.state.expires_at().max(last) + late;
        counter.quota = next;
        let mut vacant = Counter::new(next);
        for step in more {
            let cost;
            (now, cost) = vacant.follow(step, now);
            let (kept, dropped) = (counter.ask(now, cost), vacant.ask(now, cost));
            prop_assert_eq!(kept, dropped);
        }
        Ok(())
    });
}
