//! Checks that are asked at the same time travel together.
//!
//! Whoever asks puts an item in the queue. If fewer than [`FLYING_MAX`] batches
//! are under way, a new one starts at once, with whatever is in the queue; so an
//! idle store adds no wait and needs no timer. While batches are under way the
//! queue fills, and the next to come back takes its share of it: the busier the
//! store, the larger the batches. Batches are sent in the order in which they were
//! filled, so what is asked first is decided first.
//!
//! Waiting in the queue is no outage. A call is given up when the server has been
//! silent for a deadline, however long the queue; what waits too long although the
//! server answers, or finds the queue full, is an overload of our own making.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratekeeper_core::{Clock, Timestamp};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::answer::{Answer, split};
use super::encode::{Item, call};
use super::link::{Link, timeout};
use super::overload::Overload;
use super::silence::unless_silent;
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
    /// How many batches have been sent: the number of the one whose turn it is.
    sent: watch::Sender<u64>,
    bounds: Bounds,
    overload: Overload,
    /// Given to the script instead of the server's time.
    clock: Option<Arc<dyn Clock>>,
    own_clock: SystemClock,
    /// How far the server's clock is ahead of ours, in microseconds.
    ahead: AtomicI64,
    batches: AtomicU64,
    items: AtomicU64,
    timeouts: AtomicU64,
    full: AtomicU64,
    failures: AtomicU64,
}

/// What a lane lets its callers wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How long the server may be silent.
    pub(super) deadline: Duration,
    /// How many items may wait, ...
    pub(super) queue_max: usize,
    /// ... and how long, if the server answers.
    pub(super) queue_wait: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Batches under way, and the items in them.
    flying: usize,
    aboard: usize,
    /// Batches that were filled so far.
    filled: u64,
}

/// Items that travel together, and the how manieth batch they are.
#[derive(Debug)]
struct Batch {
    jobs: Vec<Job>,
    number: u64,
}

/// A batch's turn to be sent, which ends when it is dropped.
#[derive(Debug)]
struct Turn<'a>(&'a watch::Sender<u64>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|sent| *sent += 1);
    }
}

#[derive(Debug)]
struct Job {
    item: Item,
    asked: Instant,
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
    pub(super) fn new(link: Arc<Link>, bounds: Bounds, clock: Option<Arc<dyn Clock>>) -> Arc<Self> {
        Arc::new(Self {
            link,
            queue: Mutex::default(),
            sent: watch::Sender::new(0),
            bounds,
            overload: Overload::default(),
            clock,
            own_clock: SystemClock::new(),
            ahead: AtomicI64::new(0),
            batches: AtomicU64::new(0),
            items: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            full: AtomicU64::new(0),
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
            overloads: self.overload.count(),
            full: self.full.load(Ordering::Relaxed),
            is_full: false,
            evicted: 0,
            evicted_exhausted: 0,
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

    /// Asks, and waits for the answer as long as the server gives signs of life.
    pub(super) async fn ask(self: &Arc<Self>, item: Item) -> Result<Reply, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let asked = Instant::now();
        let outcome = match self.submit(Job { item, asked, answer: sender }) {
            Ok(()) => self.answered(asked, receiver).await,
            Err(refusal) => Err(refusal),
        };
        outcome.inspect_err(|error| self.count(error))
    }

    async fn answered(
        &self,
        asked: Instant,
        answer: oneshot::Receiver<Result<Reply, StoreError>>,
    ) -> Result<Reply, StoreError> {
        let stopped =
            |_| Err(StoreError::new(StoreErrorKind::Unavailable, "the store's runtime has stopped"));
        // Others may be answered meanwhile: then it is our queue that takes its time.
        let heard = || self.link.heard_of(asked);
        match unless_silent(asked, self.bounds.deadline, heard, answer).await {
            Some(reply) => reply.unwrap_or_else(stopped),
            None => Err(timeout(self.bounds.deadline)),
        }
    }

    /// Counts a check that could not be decided.
    pub(super) fn count(&self, error: &StoreError) {
        if error.kind() == StoreErrorKind::Input {
            return; // the caller's fault
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        match error.kind() {
            StoreErrorKind::Timeout => drop(self.timeouts.fetch_add(1, Ordering::Relaxed)),
            StoreErrorKind::Capacity => drop(self.full.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    fn submit(self: &Arc<Self>, job: Job) -> Result<(), StoreError> {
        if let Some(refusal) = self.link.refusal() {
            return Err(refusal);
        }
        let mut queue = self.queue();
        if queue.waiting.len() >= self.bounds.queue_max {
            drop(queue);
            return Err(self.overloaded(&format!("{} checks wait already", self.bounds.queue_max)));
        }
        queue.waiting.push_back(job);
        if queue.flying < FLYING_MAX
            && let Some(batch) = queue.next_batch()
        {
            queue.flying += 1;
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
    async fn fly(self: Arc<Self>, first: Batch) {
        let mut next = Some(first);
        while let Some(Batch { mut jobs, number }) = next {
            let aboard = jobs.len();
            let turn = self.turn(number).await;
            // Whoever has given up must not be charged.
            jobs.retain(|job| !job.answer.is_closed());
            if jobs.is_empty() {
                drop(turn);
            } else {
                self.deliver(jobs, turn).await;
            }
            // Those who were answered may ask again at once: let them, so that the
            // next batch carries them. The server has another one meanwhile.
            if aboard > 1 {
                tokio::task::yield_now().await;
            }
            next = self.landed(aboard);
        }
    }

    /// Waits until all batches before have been sent.
    async fn turn(&self, number: u64) -> Turn<'_> {
        if *self.sent.borrow() != number {
            // Never fails: the sender is ours.
            let _ = self.sent.subscribe().wait_for(|sent| *sent == number).await;
        }
        Turn(&self.sent)
    }

    /// Noted here and not by whoever waits, who may hear of it when it is over.
    #[cold]
    fn overloaded(&self, why: &str) -> StoreError {
        self.overload.failed(&self.link.server, why);
        let message = format!("{why} for {}, which answers", self.link.server);
        StoreError::new(StoreErrorKind::Overloaded, message)
    }

    /// Notes that a batch is back; the next one, if there is anything to carry. Whoever has
    /// waited too long is not among that, and hears of it at once.
    fn landed(&self, aboard: usize) -> Option<Batch> {
        let now = Instant::now();
        let mut queue = self.queue();
        queue.aboard -= aboard;
        let late = now.checked_sub(self.bounds.queue_wait).map(|latest| queue.take_late(latest));
        let batch = queue.next_batch();
        if batch.is_none() {
            queue.flying -= 1;
        }
        let (waiting, oldest) = (queue.waiting.len(), queue.waiting.front().map(|job| job.asked));
        drop(queue);
        let late = late.unwrap_or_default();
        if self.overload.lasts() && late.is_empty() {
            let is_short = waiting <= self.bounds.queue_max / 4;
            if is_short && oldest.is_none_or(|asked| now - asked < self.bounds.queue_wait / 4) {
                self.overload.is_over(&self.link.server);
            }
        }
        for job in late.into_iter().filter(|job| !job.answer.is_closed()) {
            let _ = job.answer.send(Err(self.overloaded(&format!("waited {:?}", self.bounds.queue_wait))));
        }
        batch
    }

    async fn deliver(&self, jobs: Vec<Job>, turn: Turn<'_>) {
        let items: Vec<&Item> = jobs.iter().map(|job| &job.item).collect();
        let call = call(&items, self.clock.as_ref().map(|clock| clock.now()));
        let outcome = match self.link.run_in_turn(&call, turn).await {
            Ok(bytes) => self.taken_apart(bytes, &jobs),
            Err(error) => Err(error),
        };
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        match outcome {
            Ok(replies) => {
                for (job, reply) in jobs.into_iter().zip(replies) {
                    // Whoever is gone does not mind.
                    let _ = job.answer.send(Ok(reply));
                }
            }
            Err(error) => {
                for job in jobs {
                    let _ = job.answer.send(Err(error.duplicate()));
                }
            }
        }
    }

    fn taken_apart(&self, bytes: Vec<u8>, batch: &[Job]) -> Result<Vec<Reply>, StoreError> {
        let (now, answers) = split(&bytes, batch.iter().map(|job| job.item.asked))?;
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
    /// Takes those who have asked before an instant: they are the first, if there are any.
    fn take_late(&mut self, latest: Instant) -> Vec<Job> {
        let count = self.waiting.iter().take_while(|job| job.asked < latest).count();
        self.waiting.drain(..count).collect()
    }

    /// Takes what the next batch carries: an equal share of all there is to do,
    /// so that batches do not take turns being full and empty.
    fn next_batch(&mut self) -> Option<Batch> {
        if self.waiting.is_empty() {
            return None;
        }
        let share = (self.waiting.len() + self.aboard).div_ceil(FLYING_MAX).clamp(1, BATCH_MAX);
        let mut keys = 0;
        let fits = self.waiting.iter().take(share).take_while(|job| {
            keys += job.item.key_count();
            keys <= BATCH_KEYS_MAX
        });
        let count = fits.count().max(1);
        self.aboard += count;
        let number = self.filled;
        self.filled += 1;
        Some(Batch { jobs: self.waiting.drain(..count).collect(), number })
    }
}
