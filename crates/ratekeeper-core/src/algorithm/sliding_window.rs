//! Sliding window counter: two counters, the older one fading.
//!
//! What the older window holds is taken to be spread evenly over it, so it
//! counts in proportion to how much of it the trailing window still covers,
//! rounded down: rounded up, a limit of one per second would admit one every
//! two seconds. That is an estimate: a burst at the very end of one window and
//! another at the end of the next can bring a trailing window to twice the
//! limit. Within each window of its own the limit holds exactly.

use super::{Counter, Receipt, Status, mul_div_ceil, mul_div_floor};
use crate::quota::Quota;
use crate::time::Wait;

/// Two neighbouring windows, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindow {
    /// When the present window began.
    pub start: u64,
    /// How long each of the two windows is.
    pub window: u64,
    /// Units used in the window before the present one.
    pub previous: u32,
    /// Units used in the present window.
    pub current: u32,
}

impl SlidingWindow {
    /// The two windows as they stand at `now`.
    fn rolled(&self, window: u64, now: u64) -> Self {
        let elapsed = now.saturating_sub(self.start);
        if self.expires_at() <= now {
            Self { start: now, window, previous: 0, current: 0 }
        } else if elapsed < window {
            Self { window, ..*self }
        } else {
            Self { start: self.start.saturating_add(window), window, previous: self.current, current: 0 }
        }
    }

    /// How much of the previous window counts still, rounded down.
    fn faded(&self, now: u64) -> u64 {
        let left = self.window.saturating_sub(now.saturating_sub(self.start));
        mul_div_floor(self.previous.into(), left, self.window)
    }

    fn used(&self, now: u64) -> u64 {
        self.faded(now) + u64::from(self.current)
    }

    /// From when on less than a unit counts.
    fn full_at(&self) -> u64 {
        match (self.previous, self.current) {
            (0, 0) => 0,
            (previous, 0) => {
                self.start.saturating_add(self.window).saturating_sub(left_at(0, self.window, previous))
            }
            (_, current) => {
                let end = self.start.saturating_add(self.window.saturating_mul(2));
                end.saturating_sub(left_at(0, self.window, current))
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.previous == 0 && self.current == 0
    }
}

/// The most time left in the present window at which at most `n` units of `previous` count still.
///
/// `previous * left / window`, rounded down, is at most `n` exactly when
/// `previous * left < (n + 1) * window`.
fn left_at(n: u64, window: u64, previous: u32) -> u64 {
    window.min(mul_div_ceil(n + 1, window, previous.into()).saturating_sub(1))
}

impl Counter for SlidingWindow {
    fn newest(&self) -> (u64, u64) {
        // A store may drop an empty one, so it must not know more than none.
        if self.is_empty() { (0, 0) } else { (self.start, self.window) }
    }

    fn is_unwell(&self, quota: &Quota, now: u64) -> bool {
        !self.is_empty()
            && (self.window != quota.window_micros() || self.start > now.saturating_add(self.window))
    }

    /// After a step of the clock the present window starts now. Another window is another
    /// counter, which starts empty.
    fn heal(&mut self, quota: &Quota, now: u64) {
        if self.window == quota.window_micros() {
            self.start = now;
        } else {
            *self = Self::default();
        }
    }

    fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait {
        let state = self.rolled(quota.window_micros(), now);
        let window = state.window;
        let room = u64::from(quota.limit().saturating_sub(cost));
        if state.used(now) <= room {
            return Wait::NONE;
        }
        let current = u64::from(state.current);
        let (length, left) = if current <= room {
            (window, left_at(room - current, window, state.previous))
        } else {
            (2 * window, left_at(room, window, state.current))
        };
        Wait::micros(state.start.saturating_add(length).saturating_sub(left).saturating_sub(now))
    }

    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        *self = self.rolled(quota.window_micros(), now);
        self.current = self.current.saturating_add(cost);
        Receipt { at: self.start, detail: 0 }
    }

    fn top_up(&mut self, quota: &Quota, now: u64, cost: u32) {
        let window = if self.is_empty() { quota.window_micros() } else { self.window };
        *self = self.rolled(window, now);
        self.current = self.current.saturating_add(cost);
    }

    fn status(&self, quota: &Quota, now: u64) -> Status {
        let state = self.rolled(quota.window_micros(), now);
        let used = u32::try_from(state.used(now)).unwrap_or(u32::MAX);
        Status {
            remaining: quota.limit().saturating_sub(used),
            reset_after: state.full_at().saturating_sub(now),
        }
    }

    fn refund(&mut self, _: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        *self = self.rolled(self.window, now);
        let counted = if receipt.at == self.start {
            &mut self.current
        } else if receipt.at.saturating_add(self.window) == self.start {
            &mut self.previous
        } else {
            return 0;
        };
        let given = cost.min(*counted);
        *counted -= given;
        given
    }

    fn expires_at(&self) -> u64 {
        match (self.previous, self.current) {
            (0, 0) => 0,
            (_, 0) => self.start.saturating_add(self.window),
            _ => self.start.saturating_add(self.window.saturating_mul(2)),
        }
    }
}
