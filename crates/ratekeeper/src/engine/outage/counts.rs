//! Requests that were decided without the store: counted, and logged now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::Demand;
use crate::store::StoreErrorKind;

/// How many requests were decided without the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// They went on, uncounted.
    pub allowed: u64,
    /// They were denied.
    pub denied: u64,
    /// This process decided with its own share.
    pub local: u64,
}

impl Outages {
    /// Those of this process, whichever limiter decided. In a child of a fork they go on where its parent was.
    #[must_use]
    pub fn of_process() -> Self {
        PROCESS.read()
    }
}

/// Those of all engines.
static PROCESS: OutageCounts = OutageCounts::new();
/// An engine logs at most one line in so long; requests in between are counted in the next.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Rules that are named in a line.
const NAMED_MAX: usize = 8;

/// What was decided without the store.
#[derive(Clone, Copy)]
pub(super) enum Decided {
    Allowed,
    Denied,
    Local,
}

#[derive(Debug)]
struct OutageCounts {
    allowed: AtomicU64,
    denied: AtomicU64,
    local: AtomicU64,
}

impl OutageCounts {
    const fn new() -> Self {
        Self { allowed: AtomicU64::new(0), denied: AtomicU64::new(0), local: AtomicU64::new(0) }
    }

    fn count(&self, decided: Decided) {
        let counter = match decided {
            Decided::Allowed => &self.allowed,
            Decided::Denied => &self.denied,
            Decided::Local => &self.local,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Outages {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Outages { allowed: read(&self.allowed), denied: read(&self.denied), local: read(&self.local) }
    }
}

/// What an engine decided without its store, and when it last logged that.
#[derive(Debug)]
pub(in crate::engine) struct OutageCounters {
    counts: OutageCounts,
    /// Requests since the last line.
    unlogged: AtomicU64,
    /// When the next line may be logged, in microseconds of the store's time.
    next_line: AtomicU64,
}

impl Default for OutageCounters {
    fn default() -> Self {
        Self { counts: OutageCounts::new(), unlogged: AtomicU64::new(0), next_line: AtomicU64::new(0) }
    }
}

impl OutageCounters {
    pub(in crate::engine) fn read(&self) -> Outages {
        self.counts.read()
    }

    /// Counts a request, and logs it unless a line was logged a moment ago.
    #[cold]
    pub(super) fn note(&self, demand: &Demand<'_>, kind: StoreErrorKind, decided: Decided) {
        self.counts.count(decided);
        PROCESS.count(decided);
        let requests = self.unlogged.fetch_add(1, Ordering::Relaxed) + 1;
        let (now, next) = (demand.engine.store.now(), self.next_line.load(Ordering::Relaxed));
        let then = now.after(LOG_EVERY).as_micros();
        // A clock that was set back does not keep it silent for longer.
        let is_time = now.as_micros() >= next || then < next;
        let (relaxed, next_line) = (Ordering::Relaxed, &self.next_line);
        if !is_time || next_line.compare_exchange(next, then, relaxed, relaxed).is_err() {
            return;
        }
        self.unlogged.fetch_sub(requests, Ordering::Relaxed);
        let rules = demand.rules.iter().take(NAMED_MAX).map(|asked| asked.terms.name.to_string());
        let (rules, kind) = (rules.collect::<Vec<_>>().join(", "), kind.name());
        match decided {
            Decided::Allowed => {
                tracing::warn!(rules, kind, requests, "the store did not decide: a request passed uncounted");
            }
            Decided::Denied => {
                tracing::warn!(rules, kind, requests, "the store did not decide: a request was denied");
            }
            Decided::Local => {
                tracing::warn!(
                    rules,
                    kind,
                    requests,
                    "the store did not decide: this process's share of the limit did"
                );
            }
        }
    }
}
