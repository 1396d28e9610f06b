//! Fixed window: a counter that starts again when its window ends.
//!
//! A window starts with the first request in it, on the calendar, or on a multiple
//! of its length since the epoch. A quota that changes keeps the window under way:
//! its end stands.

use super::{Counter, Receipt, Status};
use crate::quota::Quota;
use crate::time::Wait;

/// A counter and the window it counts in, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindow {
    /// The first instant after the window.
    pub end: u64,
    /// How long the window is.
    pub length: u64,
    /// Units used in it.
    pub count: u32,
}

impl FixedWindow {
    fn start(&self) -> u64 {
        self.end.saturating_sub(self.length)
    }

    /// The window under way at `now`, or the one a request would start.
    fn current(&self, quota: &Quota, now: u64) -> Self {
        if now < self.end {
            return *self;
        }
        let (start, end) = quota.window_at(now).unwrap_or((now, now + quota.window_micros()));
        Self { end, length: end - start, count: 0 }
    }
}

impl Counter for FixedWindow {
    fn newest(&self) -> (u64, u64) {
        (self.start(), self.length)
    }

    fn is_unwell(&self, _: &Quota, now: u64) -> bool {
        self.end > now && self.end - now > self.length.saturating_mul(2)
    }

    /// The clock stepped back by more than a window: what was counted counts
    /// in a window that starts now.
    fn heal(&mut self, _: &Quota, now: u64) {
        self.end = now.saturating_add(self.length);
    }

    fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait {
        let current = self.current(quota, now);
        let used = u64::from(current.count) + u64::from(cost);
        if used <= u64::from(quota.limit()) { Wait::NONE } else { Wait::micros(current.end - now) }
    }

    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        *self = self.current(quota, now);
        self.count = self.count.saturating_add(cost);
        Receipt { at: self.end, detail: 0 }
    }

    fn status(&self, quota: &Quota, now: u64) -> Status {
        let current = self.current(quota, now);
        Status {
            remaining: quota.limit().saturating_sub(current.count),
            reset_after: if current.count == 0 { 0 } else { current.end - now },
        }
    }

    fn refund(&mut self, _: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        let is_there = receipt.at == self.end && now < self.end;
        let given = if is_there { self.count.min(cost) } else { 0 };
        self.count -= given;
        given
    }

    fn expires_at(&self) -> u64 {
        self.end
    }
}
