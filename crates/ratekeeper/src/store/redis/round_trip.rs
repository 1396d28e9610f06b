//! How long the way to a server and back takes, whatever waits in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Answers after which the shortest is measured anew.
const SAMPLES: u64 = 256;

/// The shortest of the latest round trips: longer ones had to wait for something.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// In microseconds, of the samples before and of those that are being taken.
    settled: AtomicU64,
    shortest: AtomicU64,
    taken: AtomicU64,
}

impl RoundTrip {
    /// Notes an answer to what was sent at `begun`.
    pub(super) fn note(&self, begun: Instant) {
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        if taken.is_multiple_of(SAMPLES) {
            self.settled.store(self.shortest.swap(micros, Ordering::Relaxed), Ordering::Relaxed);
        } else {
            self.shortest.fetch_min(micros, Ordering::Relaxed);
        }
    }

    /// The shortest of the latest 256 to 512.
    pub(super) fn least(&self) -> Duration {
        let shortest = self.shortest.load(Ordering::Relaxed);
        let before = self.settled.load(Ordering::Relaxed);
        Duration::from_micros(if before == 0 { shortest } else { shortest.min(before) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn it_is_the_shortest_and_follows_a_longer_way() {
        let trip = RoundTrip::default();
        let take = async |millis| {
            let begun = Instant::now();
            advance(Duration::from_millis(millis)).await;
            trip.note(begun);
        };
        for millis in [20, 3, 40] {
            take(millis).await;
        }
        assert_eq!(trip.least(), Duration::from_millis(3));
        for _ in 0..2 * SAMPLES {
            take(20).await;
        }
        assert_eq!(trip.least(), Duration::from_millis(20));
    }
}
