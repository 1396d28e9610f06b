//! What waits for a connection, and how it is put into batches.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::encode::Item;
use super::super::redirect::Redirect;
use super::super::route::Part;
use super::{BATCH_KEYS_MAX, BATCH_MAX, BATCH_MICROS_MAX, Reply};
use crate::store::{StoreError, StoreErrorKind};

/// An item on its way.
#[derive(Debug)]
pub(in crate::store::redis) struct Errand {
    pub(in crate::store::redis) item: Item,
    /// Where its keys are: items of different parts never share a call of the script.
    pub(in crate::store::redis) part: Part,
    pub(in crate::store::redis) manner: Manner,
}

/// How an item travels among those of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::redis) enum Manner {
    /// In one call of the script.
    Together,
    /// In a call of its own: while keys move, a call fails if some of its keys are here and some are not.
    Alone,
    /// In a call of its own to the node that its keys move to.
    Asking,
}

/// Why an item was not answered.
#[derive(Debug)]
pub(in crate::store::redis) enum Refused {
    Failed(StoreError),
    /// Its keys are elsewhere and nothing was done: it comes back.
    Elsewhere(Box<(Redirect, Errand)>),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Refused {
    /// For callers who know of one server only.
    pub(in crate::store::redis) fn into_error(self) -> StoreError {
        match self {
            Self::Failed(error) => error,
            Self::Elsewhere(back) => {
                let why = format!("the server is a node of a cluster: {}", back.0);
                StoreError::new(StoreErrorKind::Unavailable, why)
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) waiting: VecDeque<Job>,
    /// Batches under way, and the items in them.
    pub(super) flying: usize,
    pub(super) aboard: usize,
    /// Batches that were filled so far.
    pub(super) filled: u64,
    /// Whether a task sees to it that nothing waits longer than its total.
    pub(super) is_watched: bool,
}

/// Items that travel together, and the how manieth batch they are.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    pub(super) number: u64,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) errand: Errand,
    pub(super) asked: Instant,
    pub(super) answer: oneshot::Sender<Result<Reply, Refused>>,
}

/// A call that was sent.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) asked: Instant,
    /// None once the call was ended.
    pub(super) answer: Option<oneshot::Sender<Result<Reply, Refused>>>,
}

/// Calls that were answered, and what each is told.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) waiting: Vec<Waiting>,
    pub(super) replies: Vec<Result<Reply, Refused>>,
}

/// Tells those who were answered, if there are any.
pub(super) fn hand_out(landed: Option<Landed>) {
    let Some(Landed { waiting, replies }) = landed else { return };
    for (answer, reply) in waiting.into_iter().map(|each| each.answer).zip(replies) {
        // Sending fails if the caller has given up.
        let _ = answer.map(|answer| answer.send(reply));
    }
}

impl Queue {
    /// Takes those who have waited so long by an instant: they are the first, if there are any.
    pub(super) fn take_late(&mut self, now: Instant, patience: Duration) -> Vec<Job> {
        let count = self.waiting.iter().take_while(|job| job.asked + patience <= now).count();
        self.waiting.drain(..count).collect()
    }

    /// Whether as much waits as one batch can carry.
    pub(super) fn is_full_batch(&self) -> bool {
        self.waiting.len() >= BATCH_MAX
    }

    /// Takes what the next batch carries: an equal share of all there is to do,
    /// so that batches do not take turns being full and empty.
    pub(super) fn next_batch(&mut self, flying_max: usize) -> Option<Batch> {
        if self.waiting.is_empty() {
            return None;
        }
        let share = (self.waiting.len() + self.aboard).div_ceil(flying_max).clamp(1, BATCH_MAX);
        let (mut keys, mut micros) = (0, 0);
        let fits = self.waiting.iter().take(share).take_while(|job| {
            keys += job.errand.item.key_count();
            micros += job.errand.item.work_micros();
            keys <= BATCH_KEYS_MAX && micros <= BATCH_MICROS_MAX
        });
        let count = fits.count().max(1);
        self.aboard += count;
        let number = self.filled;
        self.filled += 1;
        Some(Batch { jobs: self.waiting.drain(..count).collect(), number })
    }
}

/// Takes those of a batch who have waited so long by an instant.
pub(super) fn take_late(jobs: &mut Vec<Job>, now: Instant, patience: Duration) -> Vec<Job> {
    let count = jobs.iter().take_while(|job| job.asked + patience <= now).count();
    jobs.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratekeeper_core::{Charge, Charges, Key, Name, Quota, Reservation};

    use super::super::super::layout::Layout;
    use super::*;

    /// As many items for a check of so many quotas, by the batches they travel in.
    fn batches(text: &str, quotas: usize, items: usize, id: Option<&str>) -> Vec<usize> {
        let quota: Quota = text.parse().expect("a quota");
        let mut charges = Charges::new();
        for index in 0..quotas {
            let name = Name::new(&format!("queued.q{index}")).expect("a short name");
            charges.push(Charge::new(Key::new(name, "s").expect("a short key"), &quota)).expect("few");
        }
        let (layout, check) = (Layout::new(""), charges.check().expect("some"));
        let item = || match id {
            None => Item::check(&layout, &check),
            Some(id) => {
                let once = Reservation::once(id, Duration::from_secs(60)).expect("a short id");
                Item::once(&layout, &check, &once, Vec::new())
            }
        };
        let job = || Job {
            errand: Errand { item: item(), part: Part(0), manner: Manner::Together },
            asked: Instant::now(),
            answer: oneshot::channel().0,
        };
        let mut queue = Queue { waiting: (0..items).map(|_| job()).collect(), ..Queue::default() };
        std::iter::from_fn(|| queue.next_batch(1)).map(|batch| batch.jobs.len()).collect()
    }

    /// A call of the script stays below 5 ms: it is cut between checks, never within one.
    #[test]
    fn a_batch_is_cut_before_it_keeps_the_server_busy() {
        assert_eq!(batches("5/h", 1, 128, None), [64, 64]);
        assert_eq!(batches("5/h", 64, 7, None), [3, 3, 1]);
        assert_eq!(batches("5/h", 1, 64, Some("id")), [64]);
        assert_eq!(batches("5/h", 64, 3, Some("id")), [1, 1, 1], "each takes the careful way");
        assert_eq!(batches("5/h sliding_log", 1, 128, None), [58, 58, 12]);
        assert_eq!(batches("5/h sliding_log", 10, 12, None), [5, 5, 2]);
        assert_eq!(batches("5/h concurrency", 24, 3, None), [2, 1], "a check is never cut");
    }
}
