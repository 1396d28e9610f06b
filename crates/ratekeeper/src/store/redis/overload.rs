//! Whether our own queue is the trouble: more is asked than the server can answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts what failed in the queue; a line when that begins, and one when it is over.
#[derive(Debug, Default)]
pub(super) struct Overload {
    failed: AtomicU64,
    lasts: AtomicBool,
}

impl Overload {
    pub(super) fn count(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    #[cold]
    pub(super) fn failed(&self, server: &str, why: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if !self.lasts.swap(true, Ordering::Relaxed) {
            tracing::warn!(%server, reason = why, "overload: rules decide by their failure policy");
        }
    }

    #[cold]
    pub(super) fn is_over(&self, server: &str) {
        if self.lasts.swap(false, Ordering::Relaxed) {
            let failed = self.count();
            tracing::info!(%server, failed, "overload is over: the store decides again");
        }
    }
}
