//! The rounds: ask what changed, read that, put it into force, keep a copy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::MongoSourceError;
use super::copy::{Copied, LocalCopy};
use super::documents::{Documents, FETCH_MAX};
use super::known::Known;
use crate::policy::book::Policies;

/// Polls are earlier or later by up to this share, so that processes that were started
/// together do not ask together.
const JITTER: f64 = 0.1;

/// What ends a round early: a reason that can be logged.
pub(super) type Reason = String;
/// Where to tell that a round is over, and how it went.
pub(super) type Reply = oneshot::Sender<Result<(), Reason>>;

/// One source at work. Its rounds follow one another, never two at once.
pub(super) struct Poller {
    pub(super) documents: Documents,
    pub(super) policies: Policies,
    /// The source, without secrets: for logs and status.
    pub(super) name: String,
    pub(super) known: Mutex<Known>,
    pub(super) copy: Option<LocalCopy>,
    /// Why there is no good copy, if there should be one.
    pub(super) copy_failure: Mutex<Option<String>>,
    /// What to add to a reason while the policies are those of the copy.
    pub(super) restored: Mutex<Option<String>>,
    /// Nothing is put into force any more.
    pub(super) is_stopped: AtomicBool,
}

impl Poller {
    /// Polls until it is told to stop, and whenever it is asked to.
    pub(super) async fn run(self: Arc<Self>, interval: Duration, mut asked: mpsc::Receiver<Reply>) {
        loop {
            let wait = jittered(interval, fastrand::f64());
            let replies = match tokio::time::timeout(wait, asked.recv()).await {
                Ok(None) => return,
                // All who ask before a round begins are served by it.
                Ok(Some(first)) => {
                    std::iter::once(first).chain(std::iter::from_fn(|| asked.try_recv().ok())).collect()
                }
                Err(_) => Vec::new(),
            };
            let done = self.round().await;
            for reply in replies {
                // Whoever asked may be gone.
                let _ = reply.send(done.clone());
            }
        }
    }

    /// Asks once, and says how it went.
    pub(super) async fn round(self: &Arc<Self>) -> Result<(), Reason> {
        let done = self.ask().await;
        match &done {
            Ok(()) => {
                *locked(&self.restored) = None;
                self.policies.source_answered(&self.name);
                self.save().await;
            }
            Err(reason) => {
                let restored = locked(&self.restored).clone().unwrap_or_default();
                self.policies.source_failed(&self.name, &format!("{reason}{restored}"));
            }
        }
        done
    }

    async fn ask(self: &Arc<Self>) -> Result<(), Reason> {
        let heads = self.documents.heads().await?;
        let changed = self.with_known(move |known| known.compare(&heads)).await?;
        for services in changed.chunks(FETCH_MAX) {
            let mut cursor = self.documents.fetch(services).await?;
            while let Some(document) = self.documents.next(&mut cursor).await? {
                self.with_known(move |known| known.apply(&document)).await?;
            }
        }
        Ok(())
    }

    /// Does what may take a while for a large document, away from the tasks of the program.
    async fn with_known<T: Send + Default + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Known) -> T + Send + 'static,
    ) -> Result<T, Reason> {
        let poller = Arc::clone(self);
        let work = move || {
            let mut known = locked(&poller.known);
            if poller.is_stopped.load(Ordering::Acquire) { T::default() } else { change(&mut known) }
        };
        spawn_blocking(work).await.map_err(|error| format!("interrupted: {error}"))
    }

    /// Writes the copy, if there should be one and it is out of date.
    async fn save(self: &Arc<Self>) {
        let poller = Arc::clone(self);
        // Only a panic or the end of the runtime can fail here, and both say so themselves.
        let _ = spawn_blocking(move || poller.write_copy()).await;
    }

    fn write_copy(&self) {
        let Some(copy) = &self.copy else { return };
        let kept = {
            let known = locked(&self.known);
            if !known.is_unsaved {
                return;
            }
            known.kept()
        };
        let written = copy.write(&kept);
        locked(&self.known).is_unsaved = written.is_err();
        self.note_copy(written.err());
    }

    /// Keeps why the copy is no good, and logs it if it is news.
    pub(super) fn note_copy(&self, failure: Option<String>) {
        let mut last = locked(&self.copy_failure);
        if let (Some(failure), Some(copy)) = (&failure, &self.copy)
            && last.as_ref() != Some(failure)
        {
            let copy = copy.path().display();
            tracing::warn!(source = %self.name, %copy, reason = failure, "no good local copy");
        }
        *last = failure;
    }

    /// Puts the policies of a copy into force; they are said to be its until the server answers.
    pub(super) async fn restore(self: &Arc<Self>, copied: Vec<Copied>) -> Result<(), Reason> {
        let count = self.with_known(move |known| known.restore(copied)).await?;
        let path = self.copy.as_ref().map_or_else(String::new, |copy| copy.path().display().to_string());
        *locked(&self.restored) =
            Some(format!("; the policies in force ({count}) are from the local copy {path}"));
        Ok(())
    }

    pub(super) fn unavailable(&self, reason: &str) -> MongoSourceError {
        MongoSourceError::Unavailable { source_name: self.name.clone(), reason: reason.to_owned() }
    }

    /// Nothing is put into force once this has returned.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        drop(locked(&self.known));
    }
}

/// What is behind a lock. A panic elsewhere has left it as good as it was.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `interval`, made longer or shorter by up to [`JITTER`]; `chance` is from 0 to 1.
fn jittered(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(1.0 + JITTER * (2.0 * chance - 1.0))
}

#[cfg(test)]
mod tests {
    use super::super::MongoSource;
    use super::*;

    #[test]
    fn polls_are_spread_around_the_interval() {
        let interval = super::super::settings::INTERVAL_DEFAULT;
        let waits = [0.0, 0.5, 1.0].map(|chance| jittered(interval, chance).as_millis());
        assert_eq!(waits, [27_000, 30_000, 33_000]);
    }

    /// What a poll has begun away from its task goes on when that is aborted.
    #[tokio::test]
    async fn nothing_is_put_into_force_after_a_stop() {
        let policies = Policies::builder().mode(None).build().unwrap();
        let source = MongoSource::builder("mongodb://127.0.0.1:1").build().unwrap();
        let poller = source.poller(&policies, false);
        assert_eq!(poller.with_known(|_| 7).await, Ok(7));
        poller.stop();
        assert_eq!(poller.with_known(|_| 7).await, Ok(0));
    }
}
