//! How late this process was served by the machine: what a request waited
//! because of that is not the store's doing.
//!
//! Two things can be late. A timer of the runtime wakes after it was due: some
//! timers do nothing but look at that. And a thread that has work is kept waiting
//! for a processor, perhaps in the middle of a request, which no timer notices:
//! the kernel counts that time for each thread.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

/// Threads of the runtime beside the one that makes it, and timers that look whether they are late.
const WORKERS: usize = 2;
const TIMERS: usize = 4;
/// How long they sleep at a time, and how often the kernel is asked.
const STEP: Duration = Duration::from_millis(1);
/// The runtime's timers count in steps of this size.
const TICK: Duration = Duration::from_millis(1);

/// Watches a runtime.
pub(super) struct Control {
    timers: Notes,
    threads: Notes,
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

type Notes = Arc<Mutex<Vec<Late>>>;

/// By how much something was late, and when that was.
#[derive(Clone, Copy)]
struct Late {
    from: Instant,
    to: Instant,
    by: Duration,
}

impl Control {
    /// A runtime with several threads, and its control.
    pub(super) fn of_new_runtime() -> (Runtime, Self) {
        let workers: Arc<Mutex<Vec<String>>> = Arc::default();
        // The thread of a test waits for a processor, too.
        workers.lock().unwrap().push(schedstat_of_this_thread());
        let started = Arc::clone(&workers);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKERS).enable_all().on_thread_start(move || {
            started.lock().unwrap().push(schedstat_of_this_thread());
        });
        let runtime = builder.build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (timers, threads) = (Notes::default(), Notes::default());
        for _ in 0..TIMERS {
            runtime.spawn(watch_timer(Arc::clone(&timers), Arc::clone(&stop)));
        }
        let (notes, stopped) = (Arc::clone(&threads), Arc::clone(&stop));
        let watcher = thread::spawn(move || watch_threads(&workers, &notes, &stopped));
        (runtime, Self { timers, threads, stop, watcher: Some(watcher) })
    }

    /// How much of the time between two instants the machine may have taken: the worst
    /// lateness of a timer, or the time in which threads were kept waiting for a processor.
    pub(super) fn lateness(&self, start: Instant, end: Instant) -> Duration {
        let timers = overlapping(&self.timers, start, end).into_iter().max();
        let threads: Duration = overlapping(&self.threads, start, end).into_iter().sum();
        timers.unwrap_or_default().max(threads)
    }
}

fn schedstat_of_this_thread() -> String {
    let thread = fs::read_link("/proc/thread-self").unwrap();
    format!("/proc/{}/schedstat", thread.display())
}

fn overlapping(notes: &Notes, start: Instant, end: Instant) -> Vec<Duration> {
    let notes = notes.lock().unwrap();
    notes.iter().filter(|late| late.from < end && late.to > start).map(|late| late.by).collect()
}

async fn watch_timer(notes: Notes, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let due = Instant::now() + STEP + TICK;
        tokio::time::sleep(STEP).await;
        let woke = Instant::now();
        if woke > due {
            notes.lock().unwrap().push(Late { from: due, to: woke, by: woke - due });
        }
    }
}

fn watch_threads(workers: &Mutex<Vec<String>>, notes: &Mutex<Vec<Late>>, stop: &AtomicBool) {
    // A thread that ends takes its count with it.
    let kept_waiting = |worker: &String| kept_waiting(worker).unwrap_or_default();
    let ask = || workers.lock().unwrap().iter().map(kept_waiting).collect::<Vec<_>>();
    let (mut asked, mut before) = (Instant::now(), ask());
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(STEP);
        // Asked before the clock, so that whatever it counts was before `to`.
        let now = ask();
        let to = Instant::now();
        // One that has begun meanwhile has waited since then.
        before.resize(now.len(), Duration::ZERO);
        let waits: Vec<Duration> =
            now.iter().zip(&before).map(|(now, before)| now.saturating_sub(*before)).collect();
        let by = taken(&waits, to - asked);
        if !by.is_zero() {
            notes.lock().unwrap().push(Late { from: asked, to, by });
        }
        (asked, before) = (to, now);
    }
}

/// How much of the time the machine has taken, if threads waited so long within a step. They may have waited one after
/// another, or all at once: then it is no more than has passed. The kernel counts a wait when it ends, so it may have begun
/// before the step.
fn taken(waits: &[Duration], step: Duration) -> Duration {
    let longest = waits.iter().max().copied().unwrap_or_default();
    waits.iter().sum::<Duration>().min(step.max(longest))
}

#[test]
fn threads_that_wait_at_once_take_no_more_time_than_has_passed() {
    let millis = |waits: &[u64], step| {
        let waits: Vec<Duration> = waits.iter().copied().map(Duration::from_millis).collect();
        taken(&waits, Duration::from_millis(step)).as_millis()
    };
    assert_eq!(millis(&[5, 5, 5], 5), 5, "at once");
    assert_eq!(millis(&[2, 2, 1], 6), 5, "one after another");
    assert_eq!(millis(&[30, 29, 1], 2), 30, "since before the step");
    assert_eq!(millis(&[], 2), 0);
}

/// How long a thread has been ready and without a processor; nothing if the kernel
/// does not count that.
fn kept_waiting(schedstat: &str) -> Option<Duration> {
    let text = fs::read_to_string(schedstat).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}
