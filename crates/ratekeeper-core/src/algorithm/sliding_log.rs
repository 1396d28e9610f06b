//! Sliding log: every request is remembered until it is one window old.
//!
//! Exact: no window of the quota's length ever holds more than the limit. One
//! request is one entry, whatever it costs, and requests of one microsecond
//! share an entry. A log has the window of its rule or plan. An override may have
//! another one: it is judged on the same entries, which stay for the longer of the
//! two. The newest [`ENTRIES_MAX`] entries have as many units as any limit, so
//! nothing depends on older ones, and they go.

use std::collections::VecDeque;

use super::{Counter, Receipt, Status};
use crate::quota::{ENTRIES_MAX, Quota};
use crate::time::Wait;

/// Requests in the order of their instants, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLog {
    /// Instant and units of each entry, oldest first.
    pub entries: VecDeque<(u64, u32)>,
    /// How long entries are kept: the longer of the window of the rule or plan and the one in force when the
    /// last entry was made.
    pub window: u64,
    /// The window of the rule or plan, in microseconds; the judge knows it.
    pub own_window: u64,
}

impl SlidingLog {
    fn last(&self) -> u64 {
        self.entries.back().map_or(0, |&(at, _)| at)
    }

    /// The entries that count. Once all are older than they are kept, a store may
    /// have dropped them; so then none does, even if the window has become longer.
    fn live(&self, quota: &Quota, now: u64) -> impl Iterator<Item = (u64, u32)> {
        let window = quota.window_micros();
        let dead = self.expires_at() <= now;
        self.entries.iter().copied().skip_while(move |(at, _)| dead || at.saturating_add(window) <= now)
    }

    fn push(&mut self, now: u64, cost: u32) {
        match self.entries.back_mut() {
            Some((at, units)) if *at == now => *units = units.saturating_add(cost),
            _ => self.entries.push_back((now, cost)),
        }
        if self.entries.len() > ENTRIES_MAX as usize {
            self.entries.pop_front();
        }
    }

    /// How long an entry of the instant `at` counts still.
    fn leaves_after(&self, at: u64, quota: &Quota, now: u64) -> u64 {
        at.saturating_add(quota.window_micros()).min(self.expires_at()).saturating_sub(now)
    }

    fn used(&self, quota: &Quota, now: u64) -> u64 {
        self.live(quota, now).map(|(_, units)| u64::from(units)).sum()
    }
}

impl Counter for SlidingLog {
    fn keep_for(&mut self, own_window: u64) {
        self.own_window = own_window;
        self.window = self.window.max(own_window);
    }

    fn newest(&self) -> (u64, u64) {
        (self.last(), self.window)
    }

    fn is_unwell(&self, _: &Quota, now: u64) -> bool {
        self.last() > now.saturating_add(self.window)
    }

    /// The clock stepped back by more than a window: the log moves with it, so
    /// that its newest entry is of this instant.
    fn heal(&mut self, _: &Quota, now: u64) {
        let step = self.last().saturating_sub(now);
        for (at, _) in &mut self.entries {
            *at = at.saturating_sub(step);
        }
    }

    fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait {
        let room = u64::from(quota.limit().saturating_sub(cost));
        let mut used = self.used(quota, now);
        if used <= room {
            return Wait::NONE;
        }
        for (at, units) in self.live(quota, now) {
            used -= u64::from(units);
            if used <= room {
                return Wait::micros(self.leaves_after(at, quota, now));
            }
        }
        Wait::NEVER
    }

    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        if self.expires_at() <= now {
            self.entries.clear();
        }
        self.window = quota.window_micros().max(self.own_window);
        while self.entries.front().is_some_and(|(at, _)| at.saturating_add(self.window) <= now) {
            self.entries.pop_front();
        }
        self.push(now, cost);
        Receipt { at: now, detail: 0 }
    }

    fn top_up(&mut self, quota: &Quota, now: u64, cost: u32) {
        if self.expires_at() <= now {
            self.entries.clear();
        }
        self.window = self.window.max(quota.window_micros());
        // If the clock has stepped back, with the newest: the order stands.
        self.push(now.max(self.last()), cost);
    }

    fn status(&self, quota: &Quota, now: u64) -> Status {
        let used = u32::try_from(self.used(quota, now)).unwrap_or(u32::MAX);
        Status {
            remaining: quota.limit().saturating_sub(used),
            reset_after: if used == 0 { 0 } else { self.leaves_after(self.last(), quota, now) },
        }
    }

    /// Takes from the entry that the receipt names and no other: whatever came later counts for its whole
    /// window.
    fn refund(&mut self, quota: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        if receipt.at.saturating_add(quota.window_micros()) <= now || self.expires_at() <= now {
            return 0;
        }
        let Ok(index) = self.entries.binary_search_by_key(&receipt.at, |(at, _)| *at) else { return 0 };
        let (_, units) = &mut self.entries[index];
        let given = cost.min(*units);
        *units -= given;
        if *units == 0 {
            self.entries.remove(index);
        }
        given
    }

    fn expires_at(&self) -> u64 {
        if self.entries.is_empty() { 0 } else { self.last().saturating_add(self.window) }
    }
}
