//! The thread that follows a file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::alarm::Alarm;
use super::known::Known;
use super::look::{Signature, Target};

/// A file that never stays the same is taken as it is after so many looks.
const LOOKS_MAX: u32 = 50;

/// What the thread shares with whoever started it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) known: Mutex<Known>,
    /// Set once, when the file is not to be followed any longer.
    pub(super) is_stopped: AtomicBool,
}

pub(super) struct Watcher {
    pub(super) target: Target,
    pub(super) debounce: Duration,
    pub(super) poll: Duration,
    pub(super) shared: Arc<Shared>,
    /// Holds one wake-up at most: a second one would say nothing new.
    pub(super) woken: Receiver<()>,
    pub(super) alarm: Alarm,
}

impl Shared {
    pub(super) fn new(known: Known) -> Self {
        Self { known: Mutex::new(known), is_stopped: AtomicBool::new(false) }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn is_known(&self, seen: &Signature) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).is(seen)
    }

    /// Takes what is there if it is still what was seen before, or at any rate;
    /// otherwise returns what is there. It looks while it holds the lock, so
    /// that nobody else takes something newer in between.
    fn take_if_still(&self, target: &Target, seen: &Signature, at_any_rate: bool) -> Option<Signature> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let look = target.look();
        let signature = look.signature();
        if signature != *seen && !at_any_rate {
            return Some(signature);
        }
        if !self.is_stopped() {
            known.take(look);
        }
        None
    }
}

impl Watcher {
    pub(super) fn run(mut self) {
        // Asked before each wait too: whatever follows a change may have used up
        // the wake-up that came with the end.
        while !self.shared.is_stopped() {
            // However it ends, by a wake-up or by the time for a poll, it is
            // time to look.
            let _ = self.woken.recv_timeout(self.poll);
            if !self.shared.is_stopped() {
                self.alarm.arm(&self.target);
                self.follow();
            }
        }
    }

    /// Takes what is there once it has stayed the same.
    fn follow(&mut self) {
        let mut seen = self.target.look().signature();
        if self.shared.is_known(&seen) {
            return;
        }
        for looks in 1..=LOOKS_MAX {
            self.pause();
            if self.shared.is_stopped() {
                return;
            }
            // A link may lead to other folders since.
            self.alarm.arm(&self.target);
            match self.shared.take_if_still(&self.target, &seen, looks == LOOKS_MAX) {
                Some(other) => seen = other,
                None => return,
            }
        }
    }

    /// Lets the debounce pass. Wake-ups in the meantime need no look of their
    /// own: one follows.
    fn pause(&self) {
        let start = Instant::now();
        while !self.shared.is_stopped() {
            let left = self.debounce.saturating_sub(start.elapsed());
            if self.woken.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}
