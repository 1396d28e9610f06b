//! The circuit breaker: a server that fails costs nanoseconds, not deadlines.
//!
//! Counts what the calls to a server come to. It opens when too many fail in a
//! row, or too large a share of them; who closes it again is the keeper in
//! `link.rs`, which probes the server one probe at a time.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::store::BreakerState;

/// When a breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// So many failed calls in a row open it.
    pub consecutive: u32,
    /// So many per cent of the calls of a period open it, ...
    pub failure_percent: u32,
    /// ... if there were at least so many calls in it.
    pub calls_min: u32,
    /// How long a period is.
    pub period: Duration,
    /// How long to wait before the first probe; doubled for each that fails.
    pub probe_after: Duration,
    /// The longest wait between two probes.
    pub probe_after_max: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            consecutive: 5,
            failure_percent: 50,
            calls_min: 20,
            period: Duration::from_secs(5),
            probe_after: Duration::from_millis(50),
            probe_after_max: Duration::from_secs(2),
        }
    }
}

/// Counts failures and says when it is enough.
#[derive(Debug)]
pub(super) struct Breaker {
    policy: BreakerPolicy,
    state: AtomicU8,
    in_a_row: AtomicU32,
    /// Written once per call to the server, so once per batch.
    period: Mutex<Period>,
}

#[derive(Debug)]
struct Period {
    began: Instant,
    calls: u32,
    failures: u32,
}

impl Breaker {
    pub(super) fn new(policy: BreakerPolicy) -> Self {
        let period = Period { began: Instant::now(), calls: 0, failures: 0 };
        Self { policy, state: AtomicU8::new(0), in_a_row: AtomicU32::new(0), period: Mutex::new(period) }
    }

    pub(super) const fn policy(&self) -> &BreakerPolicy {
        &self.policy
    }

    pub(super) fn state(&self) -> BreakerState {
        named(self.state.load(Ordering::Acquire))
    }

    /// Sets the state; returns the one before, so that of several who set it at once
    /// one knows that it was the first.
    pub(super) fn set(&self, state: BreakerState) -> BreakerState {
        if state == BreakerState::Closed {
            self.in_a_row.store(0, Ordering::Relaxed);
            *self.period() = Period { began: Instant::now(), calls: 0, failures: 0 };
        }
        named(self.state.swap(state as u8, Ordering::AcqRel))
    }

    /// Counts a call that was answered.
    pub(super) fn succeeded(&self, now: Instant) {
        self.in_a_row.store(0, Ordering::Relaxed);
        self.count(now, 0);
    }

    /// Counts a call that failed; says whether that is one too many.
    pub(super) fn failed(&self, now: Instant) -> bool {
        let in_a_row = self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        let (calls, failures) = self.count(now, 1);
        let share = calls >= self.policy.calls_min
            && u64::from(failures) * 100 >= u64::from(calls) * u64::from(self.policy.failure_percent);
        in_a_row >= self.policy.consecutive || share
    }

    fn count(&self, now: Instant, failures: u32) -> (u32, u32) {
        let mut period = self.period();
        if now.saturating_duration_since(period.began) > self.policy.period {
            *period = Period { began: now, calls: 0, failures: 0 };
        }
        period.calls = period.calls.saturating_add(1);
        period.failures = period.failures.saturating_add(failures);
        (period.calls, period.failures)
    }

    fn period(&self) -> std::sync::MutexGuard<'_, Period> {
        self.period.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named(state: u8) -> BreakerState {
    match state {
        0 => BreakerState::Closed,
        1 => BreakerState::HalfOpen,
        _ => BreakerState::Open,
    }
}

/// How long to wait before the next probe: twice as long each time, up to a
/// bound, and up to a quarter more or less, so that instances do not probe
/// together.
pub(super) fn back_off(policy: &BreakerPolicy, failed_probes: u32) -> Duration {
    let doubled = policy.probe_after.saturating_mul(1 << failed_probes.min(16));
    doubled.min(policy.probe_after_max).mul_f64(0.75 + 0.5 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> BreakerPolicy {
        BreakerPolicy { consecutive: 3, calls_min: 10, ..BreakerPolicy::default() }
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_starts_anew() {
        let (breaker, now) = (Breaker::new(policy()), Instant::now());
        assert!(!breaker.failed(now) && !breaker.failed(now));
        breaker.succeeded(now);
        assert!(!breaker.failed(now) && !breaker.failed(now));
        assert!(breaker.failed(now));
    }

    #[test]
    fn a_large_share_of_failures_opens_it_within_a_period() {
        let (breaker, now) = (Breaker::new(policy()), Instant::now());
        let mut opened = Vec::new();
        for call in 1..=12 {
            if call % 2 == 0 {
                opened.push((call, breaker.failed(now)));
            } else {
                breaker.succeeded(now);
            }
        }
        let expected: Vec<(u32, bool)> = (1..=6).map(|pair| (2 * pair, 2 * pair >= 10)).collect();
        assert_eq!(opened, expected, "not before there were ten calls");
        assert!(!breaker.failed(now + Duration::from_secs(6)), "another period");
    }

    #[test]
    fn probes_grow_rarer_and_never_stop() {
        let policy = BreakerPolicy::default();
        for failed in 0..40 {
            let wait = back_off(&policy, failed);
            let nominal = policy.probe_after.saturating_mul(1 << failed.min(16)).min(policy.probe_after_max);
            assert!(wait >= nominal.mul_f64(0.74) && wait <= nominal.mul_f64(1.26), "{failed}: {wait:?}");
        }
    }

    #[test]
    fn it_says_which_state_it_was_in() {
        let breaker = Breaker::new(policy());
        assert_eq!(breaker.set(BreakerState::Closed), BreakerState::Closed);
        assert_eq!(breaker.set(BreakerState::HalfOpen), BreakerState::Closed);
        assert_eq!(breaker.set(BreakerState::Open), BreakerState::HalfOpen);
        assert_eq!(breaker.set(BreakerState::Open), BreakerState::Open);
        assert_eq!(breaker.state(), BreakerState::Open);
    }
}
