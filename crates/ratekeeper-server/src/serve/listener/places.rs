//! How many connections there can be, and which one gives way at the bound.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Places beyond the bound, for monitoring: a server that has too much to do must not look dead, or it is
/// killed and its connections go to the next one. At least ...
const SPARE_PLACES_MIN: usize = 8;
/// ... and at most so many, a quarter of the others: each takes a descriptor of those that are reserved.
const SPARE_PLACES_MAX: usize = 32;
/// How long a connection has to leave a place that another one needs.
const LEAVING_WAIT: Duration = Duration::from_millis(100);

/// What a connection is served for.
#[derive(Clone, Debug)]
pub enum Place {
    /// Everything.
    Ordinary,
    /// There are too many connections: only monitoring, once and soon. Every other call is refused.
    Spare(Arc<Spare>),
}

/// A place beyond the bound.
#[derive(Debug, Default)]
pub struct Spare {
    is_busy: AtomicBool,
    is_needed: Notify,
}

impl Place {
    /// Whether it is one beyond the bound.
    #[must_use]
    pub fn is_spare(&self) -> bool {
        matches!(self, Self::Spare(_))
    }

    /// A request has come: it is soon answered, and nothing pushes it out any more.
    #[inline]
    pub(in crate::serve) fn busy(&self) {
        if let Self::Spare(spare) = self {
            spare.is_busy.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until another connection needs the place. Of an ordinary one, that is never.
    pub(in crate::serve) async fn needed(&self) {
        match self {
            Self::Spare(spare) => spare.is_needed.notified().await,
            Self::Ordinary => std::future::pending().await,
        }
    }
}

/// The places of all listeners together.
#[derive(Debug)]
pub(super) struct Places {
    ordinary: Arc<Semaphore>,
    ordinary_max: usize,
    spare: Arc<Semaphore>,
    spare_max: usize,
    /// Connections in spare places, the oldest first.
    waiting: Mutex<VecDeque<Weak<Spare>>>,
}

impl Places {
    /// # Panics
    /// If `connections_max` is beyond what a semaphore can count, some 2^60.
    pub(super) fn of(connections_max: usize) -> Self {
        let spare_max = (connections_max / 4).clamp(SPARE_PLACES_MIN, SPARE_PLACES_MAX);
        Self {
            ordinary: Arc::new(Semaphore::new(connections_max)),
            ordinary_max: connections_max,
            spare: Arc::new(Semaphore::new(spare_max)),
            spare_max,
            waiting: Mutex::default(),
        }
    }

    pub(super) fn ordinary_max(&self) -> usize {
        self.ordinary_max
    }

    /// A place, if there is one. In the spare ones, the oldest connection without a request gives way: monitoring
    /// asks at once, so a crowd of connections that say nothing cannot keep it out.
    pub(super) async fn take(&self) -> Option<(Place, OwnedSemaphorePermit)> {
        if let Ok(permit) = Arc::clone(&self.ordinary).try_acquire_owned() {
            return Some((Place::Ordinary, permit));
        }
        let permit = match Arc::clone(&self.spare).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) if self.push_out() => {
                let freed = Arc::clone(&self.spare).acquire_owned();
                tokio::time::timeout(LEAVING_WAIT, freed).await.ok()?.ok()?
            }
            Err(_) => return None,
        };
        let spare = Arc::new(Spare::default());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|known| known.strong_count() > 0);
        waiting.push_back(Arc::downgrade(&spare));
        Some((Place::Spare(spare), permit))
    }

    /// Tells the oldest connection without a request to go; says whether there is one.
    fn push_out(&self) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle =
            |spare: &Weak<Spare>| spare.upgrade().is_some_and(|spare| !spare.is_busy.load(Ordering::Relaxed));
        let Some(oldest) = waiting.iter().position(is_idle).and_then(|index| waiting.remove(index)) else {
            return false;
        };
        if let Some(spare) = oldest.upgrade() {
            spare.is_needed.notify_one();
        }
        true
    }

    /// Waits until all places are free.
    pub(super) async fn all_free(&self) {
        let all = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let _ = self.ordinary.acquire_many(all(self.ordinary_max)).await;
        let _ = self.spare.acquire_many(all(self.spare_max)).await;
    }
}
