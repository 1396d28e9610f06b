//! How late this process was served by the machine: what a request waited
//! because of that is not the store's doing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

/// Timers on the same runtime as the callers.
const TIMERS: usize = 4;
/// How long they sleep at a time.
const STEP: Duration = Duration::from_millis(1);
/// The runtime's timers count in steps of this size.
const TICK: Duration = Duration::from_millis(1);

/// Control timers: they sleep in short steps and note when they woke too late.
pub(super) struct Control {
    late: Arc<Mutex<Vec<Late>>>,
    stop: Arc<AtomicBool>,
}

/// A timer that was due, and when it woke.
#[derive(Clone, Copy)]
struct Late {
    due: Instant,
    woke: Instant,
}

impl Control {
    pub(super) fn start(runtime: &Runtime) -> Self {
        let control = Self { late: Arc::default(), stop: Arc::default() };
        for _ in 0..TIMERS {
            let (late, stop) = (Arc::clone(&control.late), Arc::clone(&control.stop));
            runtime.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let due = Instant::now() + STEP + TICK;
                    tokio::time::sleep(STEP).await;
                    let woke = Instant::now();
                    if woke > due {
                        late.lock().unwrap().push(Late { due, woke });
                    }
                }
            });
        }
        control
    }

    /// The worst lateness of a timer while something took place.
    pub(super) fn worst(&self, start: Instant, end: Instant) -> Duration {
        let late = self.late.lock().unwrap();
        let overlapping = late.iter().filter(|late| late.due < end && late.woke > start);
        overlapping.map(|late| late.woke - late.due).max().unwrap_or_default()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
