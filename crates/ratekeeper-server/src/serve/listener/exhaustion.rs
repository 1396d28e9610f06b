//! What is told when the system has no more connections to give.

use std::time::{Duration, Instant};

/// How long nothing may go wrong until what went wrong is over.
const EXHAUSTED_OVER: Duration = Duration::from_secs(10);

/// A time in which the system has no more connections to give: it is told when it
/// begins and when it is over, however often a connection could not be accepted.
#[derive(Debug, Default)]
pub(super) struct Exhaustion {
    last: Option<Instant>,
    failures: u64,
}

impl Exhaustion {
    pub(super) fn goes_on(&mut self, error: &std::io::Error) {
        if self.last.replace(Instant::now()).is_none() {
            tracing::warn!(%error, "connections cannot be accepted; those that end make room for others");
        }
        self.failures += 1;
    }

    pub(super) fn may_be_over(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() >= EXHAUSTED_OVER) {
            tracing::info!(failures = self.failures, "connections are accepted again");
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::logs::tests::told;

    #[test]
    fn running_out_of_descriptors_is_told_when_it_begins_and_when_it_is_over() {
        let error = std::io::Error::other("Too many open files");
        let mut exhaustion = Exhaustion::default();
        let begun = told(|| {
            for _ in 0..100 {
                exhaustion.goes_on(&error);
                exhaustion.may_be_over();
            }
        });
        assert_eq!(begun.lines().count(), 1, "{begun}");
        assert!(begun.contains("WARN") && begun.contains("error=\"Too many open files\""), "{begun}");
        exhaustion.last = Instant::now().checked_sub(EXHAUSTED_OVER);
        let over = told(|| {
            exhaustion.may_be_over();
            exhaustion.may_be_over();
        });
        assert_eq!(over, " INFO connections are accepted again failures=100\n");
    }
}
