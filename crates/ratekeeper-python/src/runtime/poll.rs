//! Looking for an answer a little while before the thread goes to sleep.
//!
//! To wake a thread that sleeps takes longer than a store nearby takes to answer: 63 us
//! instead of 20 us for a round trip between two cores of a virtual machine. So a thread
//! that waits alone looks again and again, giving way to whoever else wants its core. A
//! store that is further away would only cost it time: after a wait that was too long,
//! the next ones sleep at once.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// For how long a thread looks before it sleeps.
const LOOKS_FOR: Duration = Duration::from_micros(100);
/// How many waits sleep at once after one that was too long, at most.
const MAX_PAUSE: u32 = 1024;

/// What was learnt of how long answers take.
#[derive(Debug, Default)]
pub(super) struct Polling {
    /// Waits to come that sleep at once.
    pause: AtomicU32,
    /// Of how many waits the latest pause was.
    latest: AtomicU32,
}

impl Polling {
    /// The future, looked after for a while. A thread that drives its runtime only.
    pub(super) async fn before_sleep<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        if !self.is_worth_it() {
            return future.await;
        }
        let start = Instant::now();
        loop {
            let looked = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
            if let Poll::Ready(output) = looked {
                self.latest.store(0, Ordering::Relaxed);
                return output;
            }
            if start.elapsed() >= LOOKS_FOR {
                self.was_too_long();
                return future.await;
            }
            thread::yield_now();
            tokio::task::yield_now().await;
        }
    }

    // Threads may count past each other; it is a guess about the future either way.
    fn is_worth_it(&self) -> bool {
        let pause = self.pause.load(Ordering::Relaxed);
        self.pause.store(pause.saturating_sub(1), Ordering::Relaxed);
        pause == 0
    }

    fn was_too_long(&self) {
        let pause = (self.latest.load(Ordering::Relaxed) * 2).clamp(1, MAX_PAUSE);
        self.latest.store(pause, Ordering::Relaxed);
        self.pause.store(pause, Ordering::Relaxed);
    }
}
