//! Checks that are asked at the same time travel together.
//!
//! A caller puts an item in the queue. If fewer than [`FLYING_MIN`] batches
//! are under way, a new one starts at once, with whatever is in the queue; so an
//! idle store adds no wait and needs no timer. To a server far away more may be
//! under way, as many as the round trip has room for. While batches are under way the
//! queue fills, and the next to come back takes its share of it: the busier the
//! store, the larger the batches. Where more waits than these can carry, there are more of them, and the
//! next one is sent before the answers to the last are handed out: a server must not wait for us. Batches
//! are sent in the order in which they were filled, so what is asked first is decided first.
//!
//! Waiting in the queue is no outage. What was sent is given up when the server has been silent for a
//! deadline, and what waits behind it then. Each call has a total, too: what was not sent by then, or finds
//! the queue full, is an overload of our own making; what was sent is a timeout, unless its answer has arrived.

mod fates;
mod groups;
mod queue;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use ratekeeper_core::{Check, Clock, Decision, Timestamp};
use smallvec::SmallVec;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use self::fates::Fate;
use self::groups::Groups;
use self::queue::{Batch, Job, Landed, Queue, Waiting, hand_out, take_late};
pub(super) use self::queue::{Errand, Manner, Refused};
use super::answer::{Answer, garbled};
use super::encode::{Item, call};
use super::link::{Answered, Link, Outgoing, out_of_time, timeout};
use super::overload::Overload;
use super::round_trip::RoundTrip;
use super::route::Part;
use super::silence::{Signs, unless_silent_until};
use crate::clock::SystemClock;
use crate::store::failures::FailureLog;
use crate::store::{BreakerState, FailureKinds, Health, StoreError, StoreErrorKind};

/// Batches under way at once, at least. With two, the server works on one while the
/// other is on its way.
const FLYING_MIN: usize = 2;
/// ... and at most, to a server far away.
const FLYING_MAX: usize = 32;
/// As many at least if so much waits that all of them are full: a server that answers several at once, as it
/// does with what it has read at once, has others to go on with.
const FLYING_FULL: usize = 4;
/// For each so long of the way to the server and back there may be one more.
const FLYING_EVERY: Duration = Duration::from_micros(500);
/// Items in one batch: a batch of 64 keeps the server busy for about 0.2 ms.
pub(super) const BATCH_MAX: usize = 64;
/// Microseconds of work in one batch. Bounds on checks see to it that no single item has more.
pub(super) const BATCH_MICROS_MAX: usize = 5_000;
/// Keys in one batch, unless a single item has more.
const BATCH_KEYS_MAX: usize = 1_000;
/// How long a caller waits beyond its total for those who end calls: only a runtime that stands still is so late.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

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
    round_trip: RoundTrip,
    /// A batch was given to the connection, which had no turn to write it yet.
    is_unwritten: AtomicBool,
    batches: AtomicU64,
    items: AtomicU64,
    timeouts: AtomicU64,
    full: AtomicU64,
    failures: AtomicU64,
    /// Of all lanes of the store.
    log: Arc<FailureLog>,
}

/// What a lane lets its callers wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How long the server may be silent.
    pub(super) deadline: Duration,
    /// How many items may wait.
    pub(super) queue_max: usize,
    /// How long a call may take without an answer, wherever it waits.
    pub(super) total: Duration,
}

/// A batch's turn to be sent, which ends when it is dropped.
#[derive(Debug)]
struct Turn<'a> {
    sent: &'a watch::Sender<u64>,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = self.number + 1;
        self.sent.send_modify(|sent| *sent = next.max(*sent));
    }
}

/// The task of batches under way, one after the other.
#[derive(Debug)]
struct Flight {
    lane: Arc<Lane>,
    /// Of the batch under way.
    aboard: usize,
    number: u64,
    is_over: bool,
}

impl Drop for Flight {
    /// If the task ends early, with its runtime or in a panic: its calls fail, and so do those that wait for it.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        drop(Turn { sent: &self.lane.sent, number: self.number });
        let mut queue = self.lane.queue();
        queue.aboard -= self.aboard;
        queue.flying -= 1;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
    }
}

/// The answer to one item, within the reply to its batch.
#[derive(Debug)]
pub(super) struct Reply {
    bytes: Arc<Vec<u8>>,
    start: usize,
    end: usize,
    now: Timestamp,
    /// Whether as many replicas have what was written as the store waits for.
    is_confirmed: bool,
}

impl Reply {
    /// The decision of a check. What was admitted and may be lost in a failover is not told as admitted: the failure
    /// policy decides. Denials stand.
    pub(super) fn decision(&self, check: &Check<'_>) -> Result<Decision, StoreError> {
        let decision = self.answer().decision(check)?;
        if !self.is_confirmed && decision.is_allowed() && !check.is_peek() {
            let why = "charged, but fewer replicas confirmed it in time than the store waits for";
            return Err(StoreError::new(StoreErrorKind::Timeout, why));
        }
        Ok(decision)
    }

    pub(super) fn answer(&self) -> Answer<'_> {
        Answer { now: self.now, bytes: &self.bytes[self.start..self.end] }
    }
}

impl Lane {
    pub(super) fn new(
        link: Arc<Link>,
        bounds: Bounds,
        clock: Option<Arc<dyn Clock>>,
        log: Arc<FailureLog>,
    ) -> Arc<Self> {
        Arc::new(Self {
            link,
            queue: Mutex::default(),
            sent: watch::Sender::new(0),
            bounds,
            overload: Overload::default(),
            clock,
            own_clock: SystemClock::new(),
            ahead: AtomicI64::new(0),
            round_trip: RoundTrip::default(),
            is_unwritten: AtomicBool::new(false),
            batches: AtomicU64::new(0),
            items: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            full: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            log,
        })
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn health(&self) -> Health {
        Health {
            data: None,
            breaker: self.link.breaker_state(),
            breaker_opened: self.link.times_opened(),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            overloads: self.overload.count(),
            full: self.full.load(Ordering::Relaxed),
            is_full: false,
            evicted: 0,
            evicted_exhausted: 0,
            refunds_refused: 0,
            failures: self.failures.load(Ordering::Relaxed),
            by_kind: FailureKinds::default(),
            batches: self.batches.load(Ordering::Relaxed),
            batched: self.items.load(Ordering::Relaxed),
            waiting: self.queue().waiting.len(),
            ..Health::default()
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

    /// Asks, and waits for the answer as long as the server gives signs of life, within the total.
    pub(super) async fn ask(self: &Arc<Self>, item: Item) -> Result<Reply, StoreError> {
        let errand = Errand { item, part: Part::default(), manner: Manner::Together };
        self.run(errand).await.map_err(Refused::into_error)
    }

    /// The same where keys may be elsewhere: then the item comes back, and has not been carried out.
    pub(super) async fn run(self: &Arc<Self>, errand: Errand) -> Result<Reply, Refused> {
        let outcome = match self.submit(errand) {
            Ok(answer) => self.answered(answer).await,
            Err(refusal) => Err(refusal.into()),
        };
        if let Err(Refused::Failed(error)) = &outcome {
            self.count(error);
        }
        outcome
    }

    /// When a call that begins now must be over.
    pub(super) fn end_of_call(&self) -> Instant {
        Instant::now() + self.bounds.total
    }

    /// Asks as a later step of a call, which must be over by `end`.
    pub(super) async fn ask_until(self: &Arc<Self>, end: Instant, item: Item) -> Result<Reply, StoreError> {
        let errand = Errand { item, part: Part::default(), manner: Manner::Together };
        self.run_until(end, errand).await.map_err(Refused::into_error)
    }

    /// The same where keys may be elsewhere.
    pub(super) async fn run_until(self: &Arc<Self>, end: Instant, errand: Errand) -> Result<Reply, Refused> {
        let signs = Signs { since: || end, has_unread: || self.link.has_unread(), due: |_| None };
        match unless_silent_until(Some(end), self.bounds.total, signs, self.run(errand)).await {
            Some(answer) => answer,
            None => {
                let error = out_of_time();
                self.count(&error);
                Err(error.into())
            }
        }
    }

    /// The batch or the queue ends what waits too long: they know what was sent, and what has arrived.
    async fn answered(&self, answer: oneshot::Receiver<Result<Reply, Refused>>) -> Result<Reply, Refused> {
        let latest = Instant::now() + self.bounds.total + ENDED_WITHIN;
        match timeout_at(latest, answer).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => {
                let why = "a task of the store has stopped";
                Err(StoreError::new(StoreErrorKind::Unavailable, why).into())
            }
            Err(_) => Err(timeout(self.bounds.total).into()),
        }
    }

    /// Counts a check that could not be decided.
    pub(super) fn count(&self, error: &StoreError) {
        if error.kind() == StoreErrorKind::Input {
            return; // the caller's fault
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        // The breaker and the overload have lines of their own.
        let is_logged =
            error.kind() == StoreErrorKind::Overloaded || self.link.breaker_state() != BreakerState::Closed;
        self.log.count(error, is_logged);
        match error.kind() {
            StoreErrorKind::Timeout => drop(self.timeouts.fetch_add(1, Ordering::Relaxed)),
            StoreErrorKind::Capacity => drop(self.full.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    fn submit(
        self: &Arc<Self>,
        errand: Errand,
    ) -> Result<oneshot::Receiver<Result<Reply, Refused>>, StoreError> {
        if let Some(refusal) = self.link.refusal() {
            return Err(refusal);
        }
        let (sender, receiver) = oneshot::channel();
        let mut queue = self.queue();
        if queue.waiting.len() >= self.bounds.queue_max {
            drop(queue);
            return Err(self.overloaded(&format!("{} checks wait already", self.bounds.queue_max)));
        }
        // Within the lock, so that the first in the queue is the first who asked.
        queue.waiting.push_back(Job { errand, asked: Instant::now(), answer: sender });
        let flying_max = self.flying_max(&queue);
        let lane = Arc::clone(self);
        if queue.flying < flying_max
            && let Some(batch) = queue.next_batch(flying_max)
        {
            queue.flying += 1;
            drop(queue);
            let flight = Flight { lane, aboard: batch.jobs.len(), number: batch.number, is_over: false };
            self.link.runtime().spawn(fly(flight, batch));
        } else if !queue.is_watched {
            queue.is_watched = true;
            drop(queue);
            self.link.runtime().spawn(lane.watch_queue());
        }
        Ok(receiver)
    }

    /// Ends what waits in the queue for its whole total, until nothing waits.
    async fn watch_queue(self: Arc<Self>) {
        loop {
            let due = {
                let mut queue = self.queue();
                let Some(first) = queue.waiting.front() else {
                    queue.is_watched = false;
                    return;
                };
                first.asked + self.bounds.total
            };
            sleep_until(due).await;
            let late = self.queue().take_late(Instant::now(), self.bounds.total);
            self.end_unsent(late);
        }
    }

    /// Waited for the total and was not sent: so it is not charged.
    fn end_unsent(&self, late: Vec<Job>) {
        for job in late.into_iter().filter(|job| !job.answer.is_closed()) {
            let _ = job.answer.send(Err(self.overloaded(&format!("waited {:?}", self.bounds.total)).into()));
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many batches may be under way: what the server works on, and what is on its way.
    fn flying_max(&self, queue: &Queue) -> usize {
        flying_max(self.round_trip.least(), queue.waiting.len() + queue.aboard)
    }

    /// Waits until all batches before have been sent; ends the calls whose totals are over by then.
    async fn turn(&self, number: u64, jobs: &mut Vec<Job>) -> Turn<'_> {
        while *self.sent.borrow() < number {
            let mut sent = self.sent.subscribe();
            // Never fails: the sender is ours.
            let all_sent = sent.wait_for(|sent| *sent >= number);
            let Some(due) = jobs.first().map(|job| job.asked + self.bounds.total) else {
                let _ = all_sent.await;
                continue;
            };
            if timeout_at(due, all_sent).await.is_err() {
                self.end_unsent(take_late(jobs, Instant::now(), self.bounds.total));
            }
        }
        Turn { sent: &self.sent, number }
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
        let late = queue.take_late(now, self.bounds.total);
        let flying_max = self.flying_max(&queue);
        let batch = if queue.flying > flying_max { None } else { queue.next_batch(flying_max) };
        if batch.is_none() {
            queue.flying -= 1;
        }
        let (waiting, oldest) = (queue.waiting.len(), queue.waiting.front().map(|job| job.asked));
        drop(queue);
        if self.overload.lasts() && late.is_empty() {
            let is_short = waiting <= self.bounds.queue_max / 4;
            if is_short && oldest.is_none_or(|asked| now - asked < self.bounds.total / 4) {
                self.overload.is_over(&self.link.server);
            }
        }
        self.end_unsent(late);
        batch
    }

    /// Sends a batch, hands out the answers to the last one, and waits for those to this one, which are returned. If
    /// there are none, those who asked have been told why.
    async fn deliver(&self, jobs: Vec<Job>, turn: Turn<'_>, last: Option<Landed>) -> Option<Landed> {
        let mut waiting = Vec::with_capacity(jobs.len());
        let split = jobs.into_iter().map(|Job { errand, asked, answer }| {
            waiting.push(Waiting { asked, answer: Some(answer) });
            errand
        });
        let errands: Vec<Errand> = split.collect();
        let begun = Instant::now();
        let outcome = self.answers(&errands, &mut waiting, turn, last).await;
        if outcome.is_ok() {
            self.round_trip.note(begun);
        }
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(errands.len() as u64, Ordering::Relaxed);
        match outcome {
            Ok(fates) => {
                let replies = errands.into_iter().zip(fates).map(|(errand, fate)| fate.told(errand));
                Some(Landed { waiting, replies: replies.collect() })
            }
            Err(error) => {
                if error.kind() == StoreErrorKind::Timeout {
                    self.end_behind_silence();
                }
                for answer in waiting.into_iter().filter_map(|each| each.answer) {
                    let _ = answer.send(Err(error.duplicate().into()));
                }
                None
            }
        }
    }

    /// What becomes of each item of a batch, if its calls do not all fail.
    async fn answers(
        &self,
        errands: &[Errand],
        waiting: &mut [Waiting],
        turn: Turn<'_>,
        last: Option<Landed>,
    ) -> Result<Vec<Fate>, StoreError> {
        let groups = Groups::of(errands);
        let now = self.clock.as_ref().map(|clock| clock.now());
        let together: SmallVec<[Vec<&Item>; 1]> =
            groups.each().map(|places| places.iter().map(|place| &errands[*place].item).collect()).collect();
        let is_asking = groups.each().map(|places| errands[places[0]].manner == Manner::Asking);
        let calls = together.iter().zip(is_asking);
        let calls: SmallVec<[Outgoing<'_>; 1]> =
            calls.map(|(items, is_asking)| Outgoing { call: call(items, now), is_asking }).collect();
        let due = |now| self.end_sent(waiting, now);
        let Answered { replies, is_confirmed } = {
            let mut run = pin!(self.link.run_in_turn(&calls, turn, due));
            // Looked at once, it is on its way.
            let at_once = poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await;
            if last.is_some() {
                self.is_unwritten.store(true, Ordering::Relaxed);
                hand_out(last);
                tokio::task::yield_now().await;
                self.is_unwritten.store(false, Ordering::Relaxed);
            }
            match at_once {
                Poll::Ready(reply) => reply?,
                Poll::Pending => run.await?,
            }
        };
        let mut fates: Vec<Fate> = errands.iter().map(|_| Fate::Failed(garbled())).collect();
        let all = groups.each().zip(&together).zip(calls.iter().zip(replies));
        for ((places, items), (outgoing, reply)) in all {
            let own = self.fates(reply, items, &outgoing.call, is_confirmed);
            places.into_iter().zip(own).for_each(|(place, fate)| fates[place] = fate);
        }
        Ok(fates)
    }

    /// Ends the calls of a batch whose totals are over; says when the next one's is.
    fn end_sent(&self, waiting: &mut [Waiting], now: Instant) -> Option<Instant> {
        let total = self.bounds.total;
        for late in waiting.iter_mut().take_while(|each| each.asked + total <= now) {
            let _ = late.answer.take().map(|answer| answer.send(Err(timeout(total).into())));
        }
        waiting.iter().find(|each| each.answer.is_some()).map(|each| each.asked + total)
    }

    /// A server that is silent to what was sent is so to what has waited as long behind it.
    fn end_behind_silence(&self) {
        let behind = self.queue().take_late(Instant::now(), self.bounds.deadline);
        self.end_unheard(behind);
    }

    /// Waited for a deadline, in which the server was silent.
    fn end_unheard(&self, jobs: Vec<Job>) {
        for job in jobs {
            let _ = job.answer.send(Err(timeout(self.bounds.deadline).into()));
        }
    }
}

/// Sends a batch, hands out the answers, and goes on with what has gathered
/// meanwhile until there is nothing left.
async fn fly(mut flight: Flight, first: Batch) {
    let lane = Arc::clone(&flight.lane);
    let (mut next, mut landed) = (Some(first), None);
    while let Some(Batch { mut jobs, number }) = next {
        let aboard = jobs.len();
        if *lane.sent.borrow() < number {
            // Who knows how long others take to be sent.
            hand_out(landed.take());
        }
        let turn = lane.turn(number, &mut jobs).await;
        let now = Instant::now();
        lane.end_unsent(take_late(&mut jobs, now, lane.bounds.total));
        if !lane.link.is_up() {
            // They have waited for a connection behind others.
            lane.end_unheard(take_late(&mut jobs, now, lane.bounds.deadline));
        }
        // Calls that were given up must not be charged.
        jobs.retain(|job| !job.answer.is_closed());
        if jobs.is_empty() {
            drop(turn);
        } else {
            landed = lane.deliver(jobs, turn, landed.take()).await;
        }
        // Those who were answered may ask again at once: let them, so that the
        // next batch carries them. The server has another one meanwhile. If the next one is full, it goes first:
        // one by one, or those that were answered together would always be written and answered together.
        let is_full = lane.queue().is_full_batch();
        if !is_full {
            hand_out(landed.take());
        }
        let lets_others = if is_full { lane.is_unwritten.load(Ordering::Relaxed) } else { aboard > 1 };
        if lets_others {
            tokio::task::yield_now().await;
        }
        next = lane.landed(aboard);
        if let Some(batch) = &next {
            (flight.aboard, flight.number) = (batch.jobs.len(), batch.number);
        }
    }
    flight.is_over = true;
    hand_out(landed);
}

/// How many batches may be under way to a server so far away, with so many items to be asked.
fn flying_max(round_trip: Duration, items: usize) -> usize {
    let far = usize::try_from(round_trip.as_micros() / FLYING_EVERY.as_micros()).unwrap_or(FLYING_MAX);
    far.clamp(FLYING_MIN, FLYING_MAX).max((items / BATCH_MAX).min(FLYING_FULL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_batches_are_under_way_to_a_server_far_away_and_for_a_crowd() {
        let near = Duration::from_micros(80);
        let expected = [(0, 2), (64, 2), (191, 2), (192, 3), (256, 4), (100_000, 4)];
        for (items, batches) in expected {
            assert_eq!(flying_max(near, items), batches, "{items} items");
        }
        for (millis, batches) in [(1, 4), (5, 10), (10_000, 32)] {
            assert_eq!(flying_max(Duration::from_millis(millis), 512), batches, "{millis} ms");
        }
    }
}
