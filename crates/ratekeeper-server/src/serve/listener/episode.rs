//! What is logged when connections cannot be served: the beginning and the end, however many there are.

use std::io;
use std::time::{Duration, Instant};

/// How long nothing may go wrong until what went wrong is over.
const OVER_AFTER: Duration = Duration::from_secs(10);

/// A time in which the same thing goes wrong again and again.
#[derive(Debug, Default)]
struct Episode {
    last: Option<Instant>,
    times: u64,
}

impl Episode {
    /// Counts; says whether it is the first time.
    fn goes_on(&mut self) -> bool {
        self.times += 1;
        self.last.replace(Instant::now()).is_none()
    }

    /// How often it went wrong, if that is over now.
    fn ends(&mut self) -> Option<u64> {
        let is_over = self.last.is_some_and(|last| last.elapsed() >= OVER_AFTER);
        is_over.then(|| std::mem::take(self).times)
    }
}

/// The system has no more connections to give.
#[derive(Debug, Default)]
pub(super) struct Exhaustion(Episode);

impl Exhaustion {
    pub(super) fn goes_on(&mut self, error: &io::Error) {
        if self.0.goes_on() {
            tracing::warn!(%error, "connections cannot be accepted; those that end make room for others");
        }
    }

    pub(super) fn may_be_over(&mut self) {
        if let Some(failures) = self.0.ends() {
            tracing::info!(failures, "connections are accepted again");
        }
    }
}

/// There are as many connections as there may be.
#[derive(Debug, Default)]
pub(super) struct Crowd(Episode);

impl Crowd {
    pub(super) fn goes_on(&mut self, connections_max: usize) {
        if self.0.goes_on() {
            tracing::warn!(
                connections_max,
                "as many connections are open as there may be, and calls on others are refused; expected fewer \
                 clients, or a higher --connections-max"
            );
        }
    }

    pub(super) fn may_be_over(&mut self) {
        if let Some(beyond) = self.0.ends() {
            tracing::info!(beyond, "there is room for connections again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::logs::tests::told;

    #[test]
    fn running_out_of_descriptors_is_told_when_it_begins_and_when_it_is_over() {
        let error = io::Error::other("Too many open files");
        let mut exhaustion = Exhaustion::default();
        let begun = told(|| {
            for _ in 0..100 {
                exhaustion.goes_on(&error);
                exhaustion.may_be_over();
            }
        });
        assert_eq!(begun.lines().count(), 1, "{begun}");
        assert!(begun.contains("WARN") && begun.contains("error=\"Too many open files\""), "{begun}");
        exhaustion.0.last = Instant::now().checked_sub(OVER_AFTER);
        let over = told(|| {
            exhaustion.may_be_over();
            exhaustion.may_be_over();
        });
        assert_eq!(over, " INFO connections are accepted again failures=100\n");
    }

    #[test]
    fn too_many_connections_are_told_when_they_begin_and_when_there_is_room() {
        let mut crowd = Crowd::default();
        let begun = told(|| (0..100).for_each(|_| crowd.goes_on(3)));
        assert!(begun.lines().count() == 1 && begun.contains("WARN"), "{begun}");
        assert!(begun.contains("connections_max=3"), "{begun}");
        assert_eq!(told(|| crowd.may_be_over()), "");
        crowd.0.last = Instant::now().checked_sub(OVER_AFTER);
        assert_eq!(told(|| crowd.may_be_over()), " INFO there is room for connections again beyond=100\n");
    }
}
