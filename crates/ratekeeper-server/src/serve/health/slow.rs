//! A store that is too far away for its deadline: nothing is wrong with it, and yet
//! failure policies decide.

use std::time::Duration;

use ratekeeper::StoreErrorKind;

/// Whether it was last seen to be.
#[derive(Debug, Default)]
pub(super) struct Slow(bool);

impl Slow {
    /// Notes how long an answer took, or why there was none; a line when it begins to be
    /// too slow, and none of what other lines tell.
    pub(super) fn note(&mut self, deadline: Duration, took: Duration, failure: Option<StoreErrorKind>) {
        let is_slow = match failure {
            None => took > deadline / 2,
            Some(StoreErrorKind::Timeout) => true,
            Some(_) => return,
        };
        if is_slow && !self.0 {
            tracing::warn!(
                deadline_ms = deadline.as_millis() as u64,
                took_ms = took.as_millis() as u64,
                "the store takes more than half of its deadline, or misses it; --store-deadline gives it longer"
            );
        }
        self.0 = is_slow;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::logs::tests::told;

    #[test]
    fn a_store_that_is_too_slow_is_told_of_when_it_begins() {
        let mut slow = Slow::default();
        let millis = Duration::from_millis;
        let mut noted = |took, failure| told(|| slow.note(millis(20), millis(took), failure));
        assert_eq!(noted(10, None), "");
        assert_eq!(noted(0, Some(StoreErrorKind::Unavailable)), "", "that is told of elsewhere");
        let begun = noted(11, None);
        assert!(begun.contains("WARN") && begun.contains("deadline_ms=20 took_ms=11"), "{begun}");
        assert_eq!(noted(20, Some(StoreErrorKind::Timeout)), "", "it goes on");
        assert_eq!(noted(1, None), "");
        assert!(noted(20, Some(StoreErrorKind::Timeout)).contains("--store-deadline"));
    }
}
