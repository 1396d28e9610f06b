//! What happened at a rule, for status pages and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "policy-core")]
use std::sync::{Mutex, PoisonError};

/// What happened at one rule that no response shows. It outlives reloads of a policy.
#[derive(Debug, Default)]
pub(crate) struct RuleCounters {
    denied: AtomicU64,
    over_limit: AtomicU64,
    penalties: AtomicU64,
    #[cfg(feature = "policy-core")]
    unresolved: AtomicU64,
    #[cfg(feature = "policy-core")]
    failed: AtomicU64,
    #[cfg(feature = "policy-core")]
    beyond_budget: AtomicU64,
    #[cfg(feature = "policy-core")]
    last_failure: Mutex<Option<String>>,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl RuleCounters {
    pub(super) fn denied(&self) {
        count(&self.denied);
    }

    pub(super) fn over_limit(&self) {
        count(&self.over_limit);
    }

    pub(super) fn penalised(&self) {
        count(&self.penalties);
    }
}

#[cfg(feature = "policy-core")]
impl RuleCounters {
    /// No template found a key, whether or not there is a fallback.
    pub(crate) fn unresolved(&self) {
        count(&self.unresolved);
    }

    /// An expression had no value.
    #[cold]
    pub(crate) fn failed(&self, what: &str, error: &impl std::fmt::Display) {
        count(&self.failed);
        // Another thread that holds it writes the same: no need to wait.
        if let Ok(mut last) = self.last_failure.try_lock() {
            *last = Some(format!("{what}: {error}"));
        }
    }

    /// The budget of a request was spent before its condition or its cost was known.
    #[cold]
    pub(crate) fn beyond_budget(&self) {
        count(&self.beyond_budget);
    }

    pub(crate) fn status(
        &self,
        name: &str,
        mode: crate::Mode,
        denies_in_outage: bool,
    ) -> crate::policy::RuleStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        crate::policy::RuleStatus {
            name: name.to_owned(),
            mode,
            denies_in_outage,
            unresolved: read(&self.unresolved),
            failed: read(&self.failed),
            beyond_budget: read(&self.beyond_budget),
            last_failure: self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            denied: read(&self.denied),
            over_limit: read(&self.over_limit),
            penalties: read(&self.penalties),
        }
    }
}
