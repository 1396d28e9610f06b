//! Waits for what somebody else is about to finish: keys that are in between two nodes, an id that is given back.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The first wait, ...
const FIRST: Duration = Duration::from_millis(1);
/// ... and how often it doubles.
const DOUBLINGS_MAX: u32 = 4;

/// The waits of one call.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    count: u32,
}

impl Pauses {
    /// Waits twice as long as the last time, up to half less at random, and never beyond `end`.
    pub(super) async fn wait(&mut self, end: Instant) {
        let longest = FIRST * (1 << self.count.min(DOUBLINGS_MAX));
        self.count += 1;
        let over = Instant::now() + longest.mul_f64(0.5 + 0.5 * fastrand::f64());
        sleep_until(over.min(end)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_a_bound() {
        let (begun, mut pauses) = (Instant::now(), Pauses::default());
        let far = begun + Duration::from_secs(60);
        for longest in [1, 2, 4, 8, 16, 16, 16] {
            let before = Instant::now();
            pauses.wait(far).await;
            // Timers are of whole milliseconds.
            let took = before.elapsed();
            let longest = Duration::from_millis(longest);
            assert!(took >= longest / 2 && took <= longest + Duration::from_millis(1), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_outlasts_the_call() {
        let (begun, mut pauses) = (Instant::now(), Pauses::default());
        let end = begun + Duration::from_millis(20);
        while Instant::now() < end {
            pauses.wait(end).await;
        }
        assert_eq!(begun.elapsed(), Duration::from_millis(20));
        pauses.wait(end).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(20), "what is over is not waited for");
    }
}
