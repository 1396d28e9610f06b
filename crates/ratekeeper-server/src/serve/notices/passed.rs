//! Which keys a notice was left of lately, so that a busy key does not flood the receiver.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Keys that are remembered; of those beyond, no notice is left.
const PASSED_MAX: usize = 10_000;
/// A key is told of once in so long at most: short windows begin often.
const REPEAT_MIN: Duration = Duration::from_secs(60);
/// How often those are looked for that can be forgotten, at the bound.
const CLEAN_EVERY: Duration = Duration::from_secs(1);

/// There is no room for another key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The shares of quotas that are told of, and what was told.
#[derive(Debug)]
pub(super) struct Passed {
    /// In percent, the largest first.
    percents: Vec<u64>,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    hasher: RandomState,
    /// By the hash of a rule, a key and a quota: the share, and until when it stays told.
    of: HashMap<u64, (u64, Instant)>,
    cleaned: Option<Instant>,
}

impl Passed {
    pub(super) fn new(mut percents: Vec<u64>) -> Self {
        percents.sort_unstable_by(|one, other| other.cmp(one));
        Self { percents, told: Mutex::default() }
    }

    /// The largest share that is told of among those that are used.
    pub(super) fn percent(&self, used: u64) -> Option<u64> {
        self.percents.iter().copied().find(|percent| *percent <= used)
    }

    /// Whether it was not told yet, and remembers that it is now until the quota is whole again.
    pub(super) fn is_new(&self, of: &[&str], percent: u64, whole_after: Duration) -> Result<bool, Full> {
        self.is_new_at(of, percent, whole_after, Instant::now())
    }

    fn is_new_at(
        &self,
        of: &[&str],
        percent: u64,
        whole_after: Duration,
        now: Instant,
    ) -> Result<bool, Full> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let place = told.hasher.hash_one(of);
        let known = told.of.get(&place).filter(|(_, until)| *until > now).map(|(percent, _)| *percent);
        if known.is_some_and(|known| known >= percent) {
            return Ok(false);
        }
        if known.is_none() && told.of.len() >= PASSED_MAX && !told.of.contains_key(&place) {
            told.make_room(now)?;
        }
        let until = now.checked_add(whole_after.max(REPEAT_MIN)).unwrap_or(now + REPEAT_MIN);
        told.of.insert(place, (percent, until));
        Ok(true)
    }
}

impl Told {
    fn make_room(&mut self, now: Instant) -> Result<(), Full> {
        if self.cleaned.is_none_or(|cleaned| now.saturating_duration_since(cleaned) >= CLEAN_EVERY) {
            self.cleaned = Some(now);
            self.of.retain(|_, (_, until)| *until > now);
        }
        if self.of.len() < PASSED_MAX { Ok(()) } else { Err(Full) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_key_is_told_of_once_for_each_share_and_window() {
        let (passed, begin, hour) = (Passed::new(vec![80, 100]), Instant::now(), Duration::from_secs(3_600));
        assert_eq!(
            (passed.percent(79), passed.percent(99), passed.percent(100)),
            (None, Some(80), Some(100))
        );
        let is_new = |key: &str, percent, seconds| {
            passed.is_new_at(&["r", key, "q"], percent, hour, begin + Duration::from_secs(seconds)).unwrap()
        };
        assert!(is_new("ann", 80, 0) && !is_new("ann", 80, 1) && is_new("bob", 80, 1));
        assert!(is_new("ann", 100, 2) && !is_new("ann", 100, 3_000) && !is_new("ann", 80, 3_000));
        assert!(is_new("ann", 80, 3_603), "the next window");
        let short = Duration::from_millis(1);
        let soon = |seconds| {
            passed.is_new_at(&["r", "cyd", "q"], 80, short, begin + Duration::from_secs(seconds)).unwrap()
        };
        assert!(soon(0) && !soon(59) && soon(61), "once a minute, however short the window is");
    }

    #[test]
    fn keys_beyond_the_bound_are_not_told_of_until_others_are_over() {
        let (passed, begin) = (Passed::new(vec![80]), Instant::now());
        let at = |key: &str, seconds| {
            passed.is_new_at(&[key], 80, Duration::ZERO, begin + Duration::from_secs(seconds))
        };
        for key in 0..PASSED_MAX {
            assert_eq!(at(&key.to_string(), 0), Ok(true));
        }
        assert_eq!((at("one more", 1), at("0", 1)), (Err(Full), Ok(false)));
        assert_eq!(at("one more", 61), Ok(true));
    }
}
