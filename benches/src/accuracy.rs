//! How exactly candidates count: bursts and idle gaps in virtual time.
//!
//! What is admitted is compared with a token bucket in whole numbers, kept as
//! plainly as can be: no candidate's own arithmetic is the judge. Candidates
//! whose clock cannot be set are named as such and not measured.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use governor::clock::FakeRelativeClock;
use ratekeeper::{Charge, Check, Key, ManualClock, MemoryStore, Name, Quota, Timestamp};
use throttlecrab::AdaptiveStore;

use crate::Result;
use crate::candidate::Candidate;
use crate::peers::{governor_quota, throttlecrab_check};
use crate::scenario::{Random, Terms};

/// A bucket of ten that refills in ten seconds.
pub const TERMS: Terms = Terms { limit: 10, window: Duration::from_secs(10) };
/// Bursts of the trace.
pub const BURSTS: usize = 200;
/// Requests of a burst, all at one instant.
pub const REQUESTS: usize = 25;
/// The idle gaps between bursts, in microseconds.
const GAP_MICROS: std::ops::Range<u32> = 100_000..30_000_000;

const KEY: &str = "user:42";

/// What a candidate made of the trace.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// Who.
    pub candidate: Candidate,
    /// How many it admitted; `None` if its clock cannot be set.
    pub admitted: Option<Admitted>,
}

/// What was admitted, and how that compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// In the whole trace.
    pub total: usize,
    /// Bursts of which not exactly the right number was admitted.
    pub wrong_bursts: usize,
}

/// The number a candidate should admit, and what each did.
///
/// # Errors
/// If a candidate cannot be set up.
pub fn run() -> Result<(usize, Vec<Finding>)> {
    let gaps = gaps();
    let exact = exact(&gaps);
    let judged = |bursts: Vec<usize>| {
        let wrong_bursts = bursts.iter().zip(&exact).filter(|(got, exact)| got != exact).count();
        Some(Admitted { total: bursts.iter().sum(), wrong_bursts })
    };
    let findings = [
        (Candidate::TryCheck, judged(ours(&gaps)?)),
        (Candidate::Governor, judged(governor(&gaps)?)),
        (Candidate::Throttlecrab, judged(throttlecrab(&gaps)?)),
        (Candidate::Limitador, None),
        (Candidate::Pingora, None),
    ];
    let findings = findings.map(|(candidate, admitted)| Finding { candidate, admitted });
    Ok((exact.iter().sum(), findings.into()))
}

/// The gap before each burst.
fn gaps() -> Vec<Duration> {
    let mut random = Random::new(7);
    let gap = |_| GAP_MICROS.start + random.below(GAP_MICROS.end - GAP_MICROS.start);
    (0..BURSTS).map(gap).map(|micros| Duration::from_micros(micros.into())).collect()
}

/// What a token bucket admits of each burst. Its level is kept in tokens times
/// the window, so that a microsecond adds `limit` to it and nothing is rounded.
fn exact(gaps: &[Duration]) -> Vec<usize> {
    let limit = i128::from(TERMS.limit);
    let token = TERMS.window.as_micros().cast_signed();
    let full = limit * token;
    let mut level = full;
    let burst = |gap: &Duration| {
        level = full.min(level + limit * gap.as_micros().cast_signed());
        let asks = (0..REQUESTS).filter(|_| {
            let passes = level >= token;
            level -= if passes { token } else { 0 };
            passes
        });
        asks.count()
    };
    gaps.iter().map(burst).collect()
}

/// Replays the trace: `wait` moves the clock, `check` asks.
fn replay(
    gaps: &[Duration],
    mut wait: impl FnMut(Duration),
    mut check: impl FnMut() -> Result<bool>,
) -> Result<Vec<usize>> {
    let burst = |gap: &Duration| {
        wait(*gap);
        let mut admitted = 0;
        for _ in 0..REQUESTS {
            admitted += usize::from(check()?);
        }
        Ok(admitted)
    };
    gaps.iter().map(burst).collect()
}

fn ours(gaps: &[Duration]) -> Result<Vec<usize>> {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_000_000_000));
    let store = MemoryStore::with_clock(1_000, Arc::new(clock.clone()));
    let quota = Quota::token_bucket(TERMS.limit.into(), TERMS.window)?;
    let charge = Charge::new(Key::new(Name::new("accuracy")?, KEY)?, &quota);
    let check = || Ok(store.decide(&Check::one(&charge))?.is_allowed());
    replay(gaps, |gap| clock.advance(gap), check)
}

fn governor(gaps: &[Duration]) -> Result<Vec<usize>> {
    let clock = FakeRelativeClock::default();
    let limiter = governor::RateLimiter::dashmap_with_clock(governor_quota(TERMS)?, clock.clone());
    let key = KEY.to_owned();
    replay(gaps, |gap| clock.advance(gap), || Ok(limiter.check_key(&key).is_ok()))
}

fn throttlecrab(gaps: &[Duration]) -> Result<Vec<usize>> {
    let mut limiter = throttlecrab::RateLimiter::new(AdaptiveStore::new());
    // From now on: its store plans its first clean-up by the machine's clock.
    let now = std::cell::Cell::new(SystemTime::now());
    let check = || Ok(throttlecrab_check(&mut limiter, KEY, TERMS, now.get())?);
    replay(gaps, |gap| now.set(now.get() + gap), check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judge_counts_as_one_would_by_hand() {
        let seconds = |secs: &[f64]| secs.iter().map(|s| Duration::from_secs_f64(*s)).collect::<Vec<_>>();
        // Full; 1.5 tokens back, half of one left; 0.5 more make one; full again.
        assert_eq!(exact(&seconds(&[30.0, 1.5, 0.5, 10.0])), [10, 1, 1, 10]);
    }

    #[test]
    fn ours_is_exact() {
        let gaps = gaps();
        assert_eq!(ours(&gaps).unwrap(), exact(&gaps));
    }
}
