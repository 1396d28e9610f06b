//! Never more than the quota, whatever callers do: sums over what was
//! admitted, each algorithm by the bound it promises.

use proptest::prelude::{prop_assert, prop_assert_eq};
use proptest::test_runner::TestCaseResult;
use ratekeeper_core::{Algorithm, Quota};

use crate::support::{Counter, START, Step, histories, hold, quotas};

/// A request that was let in.
#[derive(Clone, Copy, Debug)]
struct Admission {
    at: i128,
    units: i128,
    /// When it was told to go on.
    starts: i128,
    /// The instant that its receipt names.
    receipt: i128,
}

fn admissions(quota: Quota, history: &[Step]) -> Vec<Admission> {
    let mut counter = Counter::new(quota);
    let mut admitted = Vec::new();
    let mut now = START;
    for step in history {
        let cost;
        (now, cost) = counter.follow(*step, now);
        let answer = counter.ask(now, cost);
        if let Some(receipt) = answer.receipt {
            admitted.push(Admission {
                at: now.into(),
                units: cost.into(),
                starts: i128::from(now) + i128::from(answer.proceed_after),
                receipt: receipt.at.into(),
            });
        }
    }
    admitted
}

/// Tests a bound on what each of many histories admitted.
fn bounded(algorithm: Algorithm, bound: fn(&Quota, &[Admission]) -> TestCaseResult) {
    hold(2_000, (quotas(algorithm), histories(60)), |(quota, history)| {
        bound(&quota, &admissions(quota, &history))
    });
}

fn units_where(admitted: &[Admission], counts: impl Fn(&Admission) -> bool) -> i128 {
    admitted.iter().filter(|admission| counts(admission)).map(|admission| admission.units).sum()
}

#[test]
fn a_fixed_window_never_holds_more_than_the_limit() {
    bounded(Algorithm::FixedWindow, |quota, admitted| {
        let window = i128::from(quota.window_micros());
        for one in admitted {
            // The receipt names the end of the window it was charged in.
            prop_assert!((one.receipt - window..one.receipt).contains(&one.at));
            prop_assert!(units_where(admitted, |other| other.receipt == one.receipt) <= quota.limit().into());
            let apart = |other: &Admission| (other.receipt - one.receipt).abs() >= window;
            prop_assert!(admitted.iter().all(|other| other.receipt == one.receipt || apart(other)));
        }
        Ok(())
    });
}

/// What the counter sees of the trailing window is `previous` faded by the
/// part of the present window that has `elapsed`; the truth may be all of it.
/// So up to `previous * elapsed / window` units go unseen, rounded up because
/// what counts is rounded down, and no more: a trailing window holds at most
/// twice the limit.
#[test]
fn a_sliding_window_exceeds_the_limit_by_no_more_than_what_has_faded() {
    bounded(Algorithm::SlidingWindow, |quota, admitted| {
        let (limit, window) = (i128::from(quota.limit()), i128::from(quota.window_micros()));
        for (index, one) in admitted.iter().enumerate() {
            // The receipt names the start of the counter's own window.
            let elapsed = one.at - one.receipt;
            prop_assert!((0..window).contains(&elapsed));
            let so_far = &admitted[..=index];
            prop_assert!(units_where(so_far, |other| other.receipt == one.receipt) <= limit);
            let previous = units_where(so_far, |other| other.receipt == one.receipt - window);
            let trailing = units_where(so_far, |other| one.at - other.at < window);
            let unseen = previous * elapsed;
            prop_assert!((trailing - limit - 1) * window < unseen, "{} in a window", trailing);
            prop_assert!(trailing <= 2 * limit);
        }
        Ok(())
    });
}

#[test]
fn no_window_of_a_sliding_log_holds_more_than_the_limit() {
    bounded(Algorithm::SlidingLog, |quota, admitted| {
        let window = i128::from(quota.window_micros());
        // A window that holds the most can be moved until it ends at an admission.
        for one in admitted {
            let held = units_where(admitted, |other| (0..window).contains(&(one.at - other.at)));
            prop_assert!(held <= quota.limit().into(), "{} in the window up to {}", held, one.at);
        }
        Ok(())
    });
}

#[test]
fn no_interval_of_a_token_bucket_holds_more_than_the_burst_and_the_refill() {
    bounded(Algorithm::TokenBucket, |quota, admitted| {
        let (limit, window) = (i128::from(quota.limit()), i128::from(quota.window_micros()));
        for (last, to) in admitted.iter().enumerate() {
            let mut units = 0;
            for from in admitted[..=last].iter().rev() {
                units += from.units;
                let most = i128::from(quota.capacity()) * window + (to.at - from.at) * limit;
                prop_assert!(units * window <= most, "{} from {} to {}", units, from.at, to.at);
            }
        }
        Ok(())
    });
}

/// Starts are told in whole microseconds, rounded up; so two of them may be
/// nearer than the rate by less than one, and never by more, however far apart.
#[test]
fn a_leaky_bucket_spaces_starts_by_what_went_before_them() {
    bounded(Algorithm::LeakyBucket, |quota, admitted| {
        let (limit, window) = (i128::from(quota.limit()), i128::from(quota.window_micros()));
        for (last, to) in admitted.iter().enumerate() {
            let mut units = 0;
            for from in admitted[..last].iter().rev() {
                units += from.units;
                let apart = to.starts - from.starts;
                prop_assert!((apart + 1) * limit > units * window, "{} units in {}", units, apart);
            }
            let most = i128::from(quota.queue()) * window;
            prop_assert!((to.starts - to.at - 1) * limit < most.max(1), "waits longer than the queue is");
        }
        Ok(())
    });
}

#[test]
fn no_more_than_the_limit_is_ever_under_way() {
    bounded(Algorithm::Concurrency, |quota, admitted| {
        let lease = i128::from(quota.window_micros());
        for one in admitted {
            prop_assert_eq!(one.receipt, one.at + lease);
            let held = units_where(admitted, |other| other.at <= one.at && one.at < other.receipt);
            prop_assert!(held <= quota.limit().into());
        }
        Ok(())
    });
}
