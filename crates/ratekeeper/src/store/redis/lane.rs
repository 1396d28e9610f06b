//! Checks that are asked at the same time travel together.
//!
//! Whoever asks puts an item in the queue. If fewer than [`FLYING_MAX`] batches
//! are under way, a new one starts at once, with whatever is in the queue; so an
//! idle store adds no wait and needs no timer. While batches are under way the
//! queue fills, and the next to come back takes its share of it: the busier the
//! store, the larger the batches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratekeeper_core::{Clock, Timestamp};
use tokio::sync::oneshot;

use super::answer::{Answer, split};
use super::encode::{Item, call};
use super::link::{Link, timeout};
use crate::clock::SystemClock;
use crate::store::{Health, StoreError, StoreErrorKind};

/// Batches under way at once. With two, the server works on one while the
/// other is on its way.
const FLYING_MAX: usize = 2;
/// Items in one batch: a batch of 64 keeps the server busy for about 0.2 ms.
pub(super) const BATCH_MAX: usize = 64;
/// Keys in one batch, unless a single item has more.
const BATCH_KEYS_MAX: usize = 1_000;

/// A connection and the items that wait for it.
#[derive(Debug)]
pub(super) struct Lane {
    link: Arc<Link>,
    queue: Mutex<Queue>,
    queue_max: usize,
    deadline: Duration,
    /// Given to the script instead of the server's time.
    clock: Option<Arc<dyn Clock>>,
    own_clock: SystemClock,
    /// How far the server's clock is ahead of ours, in microseconds.
    ahead: AtomicI64,
    batches: AtomicU64,
    items: AtomicU64,
    timeouts: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Batches under way, and the items in them.
    flying: usize,
    aboard: usize,
}

#[derive(Debug)]
struct Job {
    item: Item,
    answer: oneshot::Sender<Result<Reply, StoreError>>,
}

/// The answer to one item, within the reply to its batch.
#[derive(Debug)]
pub(super) struct Reply {
    bytes: Arc<Vec<u8>>,
    start: usize,
    end: usize,
    now: Timestamp,
}

impl Reply {
    pub(super) fn answer(&self) -> Answer<'_> {
        Answer { now: self.now, bytes: &self.bytes[self.start..self.end] }
    }
}

impl Lane {
    pub(super) fn new(
        link: Arc<Link>,
        queue_max: usize,
        deadline: Duration,
        clock: Option<Arc<dyn Clock>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            link,
            queue: Mutex::default(),
            queue_max,
            deadline,
            clock,
            own_clock: SystemClock::new(),
            ahead: AtomicI64::new(0),
            batches: AtomicU64::new(0),
            items: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn health(&self) -> Health {
        Health {
            breaker: self.link.breaker_state(),
            breaker_opened: self.link.times_opened(),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            batched: self.items.load(Ordering::Relaxed),
            waiting: self.queue().waiting.len(),
        }
    }

    /// The server's time as far as we know it.
    pub(super) fn now(&self) -> Timestamp {
        if let Some(clock) = &self.clock {
            return clock.now();
        }
        let own = self.own_clock.now().as_micros();
        Timestamp::from_micros(own.saturating_add_signed(self.ahead.load(Ordering::Relaxed)))
    }

    /// Asks, and waits for the answer within the deadline.
    pub(super) async fn ask(self: &Arc<Self>, item: Item) -> Result<Reply, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let answer = match self.submit(Job { item, answer: sender }) {
            Ok(()) => tokio::time::timeout(self.deadline, receiver).await,
            Err(refusal) => Ok(Ok(Err(refusal))),
        };
        let stopped = || StoreError::new(StoreErrorKind::Unavailable, "the store's runtime has stopped");
        let outcome = match answer {
            Ok(reply) => reply.unwrap_or_else(|_| Err(stopped())),
            Err(_) => Err(timeout(self.deadline)),
        };
        outcome.inspect_err(|error| self.count(error))
    }

    /// Counts a check that could not be decided.
    pub(super) fn count(&self, error: &StoreError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if error.kind() == StoreErrorKind::Timeout {
            self.timeouts.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn submit(self: &Arc<Self>, job: Job) -> Result<(), StoreError> {
        if let Some(refusal) = self.link.refusal() {
            return Err(refusal);
        }
        let mut queue = self.queue();
        if queue.waiting.len() >= self.queue_max {
            drop(queue);
            let message = format!("{} checks wait for {} already", self.queue_max, self.link.server);
            return Err(StoreError::capacity(message));
        }
        queue.waiting.push_back(job);
        if queue.flying < FLYING_MAX {
            queue.flying += 1;
            let batch = queue.next_batch();
            drop(queue);
            let lane = Arc::clone(self);
            self.link.runtime().spawn(lane.fly(batch));
        }
        Ok(())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a batch, hands out the answers, and goes on with what has gathered
    /// meanwhile until there is nothing left.
    async fn fly(self: Arc<Self>, mut batch: Vec<Job>) {
        while !batch.is_empty() {
            let aboard = batch.len();
            // Whoever has given up must not be charged.
            batch.retain(|job| !job.answer.is_closed());
            if !batch.is_empty() {
                self.deliver(batch).await;
            }
            // Those who were answered may ask again at once: let them, so that the
            // next batch carries them. The server has another one meanwhile.
            if aboard > 1 {
                tokio::task::yield_now().await;
            }
            let mut queue = self.queue();
            queue.aboard -= aboard;
            batch = queue.next_batch();
            if batch.is_empty() {
                queue.flying -= 1;
            }
        }
    }

    async fn deliver(&self, batch: Vec<Job>) {
        let items: Vec<&Item> = batch.iter().map(|job| &job.item).collect();
        let outcome = match self.link.run(&call(&items, self.clock.as_ref().map(|clock| clock.now()))).await {
            Ok(bytes) => self.taken_apart(bytes, &batch),
            Err(error) => Err(error),
        };
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(batch.len() as u64, Ordering::Relaxed);
        match outcome {
            Ok(replies) => {
                for (job, reply) in batch.into_iter().zip(replies) {
                    // Whoever is gone does not mind.
                    let _ = job.answer.send(Ok(reply));
                }
            }
            Err(error) => {
                for job in batch {
                    let _ = job.answer.send(Err(error.duplicate()));
                }
            }
        }
    }

    fn taken_apart(&self, bytes: Vec<u8>, batch: &[Job]) -> Result<Vec<Reply>, StoreError> {
        let (now, answers) = split(&bytes, batch.iter().map(|job| job.item.charges))?;
        if self.clock.is_none() {
            let own = self.own_clock.now().as_micros();
            self.ahead.store(now.as_micros().wrapping_sub(own).cast_signed(), Ordering::Relaxed);
        }
        let mut end = size_of::<f64>();
        let spans: Vec<(usize, usize)> = answers
            .iter()
            .map(|answer| {
                let start = end;
                end += answer.len();
                (start, end)
            })
            .collect();
        let bytes = Arc::new(bytes);
        let reply = |(start, end)| Reply { bytes: Arc::clone(&bytes), start, end, now };
        Ok(spans.into_iter().map(reply).collect())
    }
}

impl Queue {
    /// Takes what the next batch carries: an equal share of all there is to do,
    /// so that batches do not take turns being full and empty.
    fn next_batch(&mut self) -> Vec<Job> {
        let share = (self.waiting.len() + self.aboard).div_ceil(FLYING_MAX).clamp(1, BATCH_MAX);
        let mut keys = 0;
        let fits = self.waiting.iter().take(share).take_while(|job| {
            keys += job.item.key_count();
            keys <= BATCH_KEYS_MAX
        });
        let count = fits.count().max(1).min(self.waiting.len());
        self.aboard += count;
        self.waiting.drain(..count).collect()
    }
}
