//! What is known of the other side, by key, and who waits.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::KEYS_MAX;
use super::fields::{Left, POLICIES_MAX};

/// The other sides.
#[derive(Debug, Default)]
pub(super) struct States(Mutex<HashMap<Box<str>, State>>);

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    under_way: u64,
    /// How many more go through until an instant, as the other side says.
    allowances: Vec<Allowance>,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: u64,
    until: Instant,
}

impl State {
    fn is_idle(&self, now: Instant) -> bool {
        self.waiting == 0 && self.under_way == 0 && self.allowances.iter().all(|each| each.until <= now)
    }

    /// When it was heard of last, as far as that shows.
    fn until(&self) -> Option<Instant> {
        self.allowances.iter().map(|each| each.until).max()
    }
}

impl States {
    /// Takes a place in the queue; says how many wait if there is none.
    pub(super) fn queue(&self, key: &str, queue_max: usize) -> Result<(), usize> {
        self.with(key, |state| match state.waiting >= queue_max {
            true => Err(state.waiting),
            false => {
                state.waiting += 1;
                Ok(())
            }
        })
    }

    /// Leaves the queue.
    pub(super) fn leave(&self, key: &str) {
        if let Some(state) = self.lock().get_mut(key) {
            state.waiting = state.waiting.saturating_sub(1);
        }
    }

    /// Goes out, unless the other side said to wait: then until when.
    pub(super) fn go(&self, key: &str) -> Result<(), Instant> {
        let now = Instant::now();
        self.with(key, |state| {
            state.allowances.retain(|each| each.until > now);
            let closed = state.allowances.iter().filter(|each| each.left == 0).map(|each| each.until).max();
            if let Some(until) = closed {
                return Err(until);
            }
            state.allowances.iter_mut().for_each(|each| each.left -= 1);
            state.under_way += 1;
            Ok(())
        })
    }

    /// Until when the other side said to wait, if it did.
    pub(super) fn closed(&self, key: &str) -> Option<Instant> {
        let now = Instant::now();
        let states = self.lock();
        let closed = states.get(key)?.allowances.iter().filter(|each| each.left == 0 && each.until > now);
        closed.map(|each| each.until).max()
    }

    /// A response has come, or none will.
    pub(super) fn back(&self, key: &str, told: &[Left]) {
        let now = Instant::now();
        if let Some(state) = self.lock().get_mut(key) {
            state.under_way = state.under_way.saturating_sub(1);
            if !told.is_empty() {
                // What others have under way is not counted in it yet. An order to wait stays in force: a late response
                // from before it knows nothing of it.
                let under_way = state.under_way;
                state.allowances.retain(|each| each.left == 0 && each.until > now);
                let news = told.iter().map(|left| Allowance {
                    left: left.requests.saturating_sub(under_way),
                    until: now + left.within,
                });
                state.allowances.extend(news);
                if state.allowances.len() > 2 * POLICIES_MAX {
                    state.allowances.sort_by_key(|each| (each.left, std::cmp::Reverse(each.until)));
                    state.allowances.truncate(2 * POLICIES_MAX);
                }
            }
        }
    }

    fn with<T>(&self, key: &str, change: impl FnOnce(&mut State) -> T) -> T {
        let mut states = self.lock();
        if let Some(state) = states.get_mut(key) {
            return change(state);
        }
        if states.len() >= KEYS_MAX {
            make_room(&mut states);
        }
        change(states.entry(key.into()).or_default())
    }

    /// A panic while it is locked leaves whole numbers behind.
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets who is idle, or else who is busy for the shortest time, unless requests of it are here.
fn make_room(states: &mut HashMap<Box<str>, State>) {
    let now = Instant::now();
    states.retain(|_, state| !state.is_idle(now));
    if states.len() < KEYS_MAX {
        return;
    }
    let free = states.iter().filter(|(_, state)| state.waiting == 0 && state.under_way == 0);
    let soonest = free.min_by_key(|(_, state)| state.until()).map(|(key, _)| key.clone());
    if let Some(key) = soonest {
        states.remove(&key);
    }
}
