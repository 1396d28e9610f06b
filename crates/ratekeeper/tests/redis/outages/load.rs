//! Callers that ask in a closed loop, and what each of them saw.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratekeeper::{Limiter, Origin};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::until;

pub(super) const CALLERS: usize = 64;
/// How long a caller does something else after any answer but an admission: without it
/// there would be millions of them, as refusing costs next to nothing.
const PAUSE: Duration = Duration::from_millis(1);

/// One request as its caller saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) caller: usize,
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) allowed: bool,
    pub(super) origin: Origin,
    /// What the quota had left, if a store judged.
    pub(super) left: Option<u32>,
}

/// Callers at work.
pub(super) struct Load {
    callers: Vec<JoinHandle<Vec<Seen>>>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    store: AtomicU64,
    outage: AtomicU64,
    /// Callers that the store has denied.
    denied: AtomicUsize,
}

impl Load {
    /// Starts callers; `subject` says who each of them is.
    pub(super) fn start(
        runtime: &Runtime,
        limiter: &Arc<Limiter<str>>,
        subject: impl Fn(usize) -> String,
    ) -> Self {
        let progress = Arc::new(Progress::default());
        let callers = (0..CALLERS).map(|caller| {
            let (limiter, progress) = (Arc::clone(limiter), Arc::clone(&progress));
            runtime.spawn(call(caller, subject(caller), limiter, progress))
        });
        Self { callers: callers.collect(), progress }
    }

    /// Waits until the store has decided so many more requests.
    #[track_caller]
    pub(super) fn store_decides(&self, count: u64) {
        more("decisions of the store", &self.progress.store, count);
    }

    /// Waits until so many more requests were decided without it.
    #[track_caller]
    pub(super) fn outage_decides(&self, count: u64) {
        more("decisions without the store", &self.progress.outage, count);
    }

    /// Waits until the store has denied every caller something.
    #[track_caller]
    pub(super) fn all_denied(&self) {
        until("a denial for every caller", || self.denied() == CALLERS);
    }

    pub(super) fn denied(&self) -> usize {
        self.progress.denied.load(Ordering::Relaxed)
    }

    /// Ends the load; what was asked is answered first.
    pub(super) fn stop(self, runtime: &Runtime) -> Log {
        self.progress.stop.store(true, Ordering::Relaxed);
        let mut log = Vec::new();
        for caller in self.callers {
            log.extend(runtime.block_on(caller).unwrap());
        }
        Log(log)
    }
}

#[track_caller]
fn more(what: &str, counter: &AtomicU64, count: u64) {
    let goal = counter.load(Ordering::Relaxed) + count;
    until(what, || counter.load(Ordering::Relaxed) >= goal);
}

async fn call(
    caller: usize,
    subject: String,
    limiter: Arc<Limiter<str>>,
    progress: Arc<Progress>,
) -> Vec<Seen> {
    let (mut log, mut was_denied) = (Vec::new(), false);
    while !progress.stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let decision = limiter.check(&subject).await.unwrap();
        let end = Instant::now();
        let (allowed, origin) = (decision.is_allowed(), decision.origin());
        let left = decision.verdicts().first().map(ratekeeper::Verdict::remaining);
        log.push(Seen { caller, start, end, allowed, origin, left });
        let counter = if origin == Origin::Store { &progress.store } else { &progress.outage };
        counter.fetch_add(1, Ordering::Relaxed);
        if origin == Origin::Store && !allowed && !was_denied {
            was_denied = true;
            progress.denied.fetch_add(1, Ordering::Relaxed);
        }
        if origin != Origin::Store || !allowed {
            tokio::time::sleep(PAUSE).await;
        }
    }
    log
}

/// What all callers saw.
#[derive(Debug, Default)]
pub(super) struct Log(pub(super) Vec<Seen>);

impl Log {
    /// Both, one after the other.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The part of it that began before an instant, and the rest.
    pub(super) fn split_at(self, instant: Instant) -> (Self, Self) {
        let (before, after) = self.0.into_iter().partition(|seen| seen.start < instant);
        (Self(before), Self(after))
    }

    pub(super) fn count(&self, wanted: impl Fn(&Seen) -> bool) -> u64 {
        self.0.iter().filter(|seen| wanted(seen)).count() as u64
    }

    /// Requests the store let through.
    pub(super) fn admitted(&self) -> u64 {
        self.count(|seen| seen.allowed && seen.origin == Origin::Store)
    }

    /// Requests the store did not answer. It may have charged some of them.
    pub(super) fn unanswered(&self) -> u64 {
        self.count(|seen| seen.origin == Origin::Outage)
    }

    /// Requests that went on without the store.
    pub(super) fn let_through(&self) -> u64 {
        self.count(|seen| seen.allowed && seen.origin == Origin::Outage)
    }

    /// Each admission took a unit of its own: no two left the same behind.
    #[track_caller]
    pub(super) fn assert_each_unit_once(&self) {
        let admitted = self.0.iter().filter(|seen| seen.allowed && seen.origin == Origin::Store);
        let mut left = HashSet::new();
        for seen in admitted {
            assert!(left.insert(seen.left), "two admissions left {:?}: {seen:?}", seen.left);
        }
    }
}
