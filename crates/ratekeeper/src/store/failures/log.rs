//! Counts the checks that a store could not decide, and logs when each kind begins and ends.
//!
//! Such a failure lifts a limit, or denies what a limit would have let pass. The first of a kind is a warning at
//! once, and a line says when the kind is over. In between they are only counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{FailureKinds, KINDS, index};
use crate::store::{StoreError, StoreErrorKind};

/// A kind is over when it has not occurred for so long. Bounds the log at two lines of a kind in that time.
const QUIET: Duration = Duration::from_secs(5);
/// Characters of a reason in the log: a server's own words may be long.
const REASON_MAX: usize = 300;

/// Counts the failures of one store.
#[derive(Debug)]
pub(in crate::store) struct FailureLog {
    server: String,
    started: Instant,
    kinds: [Kind; KINDS],
}

#[derive(Debug, Default)]
struct Kind {
    count: AtomicU64,
    /// The count when it began.
    before: AtomicU64,
    lasts: AtomicBool,
    /// Milliseconds since the store was made.
    last: AtomicU64,
}

impl FailureLog {
    pub(in crate::store) fn new(server: String) -> Self {
        Self { server, started: Instant::now(), kinds: Default::default() }
    }

    /// Counts a failure. `is_logged` says that its cause has a line of its own already.
    #[cold]
    pub(in crate::store) fn count(&self, error: &StoreError, is_logged: bool) {
        let Some(kind) = index(error.kind()).map(|index| &self.kinds[index]) else { return };
        let before = kind.count.fetch_add(1, Ordering::Relaxed);
        kind.last.store(self.millis(), Ordering::Relaxed);
        if is_logged || kind.lasts.swap(true, Ordering::Relaxed) {
            return;
        }
        kind.before.store(before, Ordering::Relaxed);
        let reason: String = error.to_string().chars().take(REASON_MAX).collect();
        let (server, kind, hint) = (&self.server, error.kind().name(), error.kind().hint());
        tracing::warn!(%server, kind, %reason, hint, "the store fails checks: rules decide by their failure policy");
    }

    /// Notes which kinds are over; to be called every now and then.
    pub(in crate::store) fn settle(&self) {
        let now = self.millis();
        for (kind, name) in self.kinds.iter().zip(StoreErrorKind::OF_STORES) {
            let quiet = now.saturating_sub(kind.last.load(Ordering::Relaxed));
            if u128::from(quiet) < QUIET.as_millis() || !kind.lasts.swap(false, Ordering::Relaxed) {
                continue;
            }
            let checks = kind.count.load(Ordering::Relaxed) - kind.before.load(Ordering::Relaxed);
            let (server, kind) = (&self.server, name.name());
            tracing::info!(%server, kind, checks, "the store fails no checks of this kind any more");
        }
    }

    pub(in crate::store) fn by_kind(&self) -> FailureKinds {
        let each = |index: usize| &self.kinds[index];
        FailureKinds {
            counts: std::array::from_fn(|index| each(index).count.load(Ordering::Relaxed)),
            lasting: std::array::from_fn(|index| each(index).lasts.load(Ordering::Relaxed)),
        }
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_kind_and_end_when_they_are_quiet() {
        let mut failures = FailureLog::new("server".to_owned());
        failures.count(&StoreError::new(StoreErrorKind::ReadOnly, "no"), false);
        failures.count(&StoreError::new(StoreErrorKind::Unavailable, "gone"), true);
        failures.settle();
        let found = failures.by_kind();
        assert_eq!(
            (found.count(StoreErrorKind::ReadOnly), found.is_lasting(StoreErrorKind::ReadOnly)),
            (1, true)
        );
        assert!(!found.is_lasting(StoreErrorKind::Unavailable), "it has a line of its own");
        assert_eq!(found.iter().map(|(_, count, _)| count).sum::<u64>(), 2);
        assert_eq!(found.count(StoreErrorKind::Input), 0);
        // As if it had been made long ago.
        failures.started = failures.started.checked_sub(QUIET).unwrap();
        failures.settle();
        let found = failures.by_kind();
        assert_eq!(
            (found.count(StoreErrorKind::ReadOnly), found.is_lasting(StoreErrorKind::ReadOnly)),
            (1, false)
        );
    }
}
