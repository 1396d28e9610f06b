//! Concurrency: how many may be under way at once.
//!
//! Each admitted request holds its units by a lease. It gives them back when
//! it is done (a refund with its receipt); if its process dies, the lease
//! lapses. The wait of a denied request is until leases lapse, so it is an
//! upper bound: holders usually come back sooner.
//!
//! Holders are kept as a sliding log keeps entries, by the instant at which they came. So the lease in force
//! decides when they lapse, also if an override has another one than their rule or plan.

use std::collections::VecDeque;

use super::{Counter, Receipt, Status};
use crate::quota::{ENTRIES_MAX, Quota};
use crate::time::Wait;

/// One request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// When it came, in microseconds.
    pub since: u64,
    /// Tells holders apart.
    pub number: u32,
    /// Units it holds.
    pub units: u32,
}

/// The requests under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concurrency {
    /// In the order in which they came.
    pub holders: VecDeque<Holder>,
    /// The number the next holder gets.
    pub next: u32,
    /// When the last place was taken, returned or not: until its lease lapses, numbers are not used again.
    pub last: u64,
    /// How long holders are kept: the longer of the lease of the rule or plan and the one in force when the
    /// last place was taken.
    pub window: u64,
    /// The lease of the rule or plan, in microseconds; the judge knows it.
    pub own_window: u64,
}

impl Concurrency {
    /// Those whose lease has not lapsed. Once the last that was given has, a store may have dropped them all.
    fn live(&self, quota: &Quota, now: u64) -> impl Iterator<Item = &Holder> {
        let lease = quota.window_micros();
        let dead = self.expires_at() <= now;
        self.holders.iter().skip_while(move |holder| dead || holder.since.saturating_add(lease) <= now)
    }

    fn used(&self, quota: &Quota, now: u64) -> u64 {
        self.live(quota, now).map(|holder| u64::from(holder.units)).sum()
    }

    /// How long a holder that came at `since` holds still.
    fn lapses_after(&self, since: u64, quota: &Quota, now: u64) -> u64 {
        since.saturating_add(quota.window_micros()).min(self.expires_at()).saturating_sub(now)
    }

    /// Forgets what has expired. Numbers start from the instant of the first holder, so that a receipt
    /// from an earlier life of the counter names nobody in this one.
    fn begin_anew(&mut self, now: u64) {
        if self.expires_at() <= now {
            self.holders.clear();
            // The low half of an instant, on purpose.
            self.next = now as u32;
            (self.last, self.window) = (0, 0);
        }
    }

    fn take(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        // If the clock is behind, with the newest: the order stands.
        let holder = Holder { since: now.max(self.last), number: self.next, units: cost };
        self.next = self.next.wrapping_add(1);
        self.last = holder.since;
        self.holders.push_back(holder);
        if self.holders.len() > ENTRIES_MAX as usize {
            self.holders.pop_front();
        }
        Receipt { at: holder.since.saturating_add(quota.window_micros()), detail: holder.number }
    }
}

impl Counter for Concurrency {
    fn keep_for(&mut self, own_window: u64) {
        self.own_window = own_window;
        self.window = self.window.max(own_window);
    }

    fn is_unwell(&self, _: &Quota, now: u64) -> bool {
        self.last > now.saturating_add(self.window)
    }

    /// The clock stepped back by more than a lease: the holders move with it, so that the last place was
    /// taken at this instant.
    fn heal(&mut self, _: &Quota, now: u64) {
        let step = self.last.saturating_sub(now);
        self.last = self.last.saturating_sub(step);
        for holder in &mut self.holders {
            holder.since = holder.since.saturating_sub(step);
        }
    }

    fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait {
        let room = u64::from(quota.limit().saturating_sub(cost));
        let mut used = self.used(quota, now);
        if used <= room {
            return Wait::NONE;
        }
        for holder in self.live(quota, now) {
            used -= u64::from(holder.units);
            if used <= room {
                return Wait::micros(self.lapses_after(holder.since, quota, now));
            }
        }
        Wait::NEVER
    }

    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        self.begin_anew(now);
        self.window = quota.window_micros().max(self.own_window);
        while self.holders.front().is_some_and(|holder| holder.since.saturating_add(self.window) <= now) {
            self.holders.pop_front();
        }
        self.take(quota, now, cost)
    }

    fn top_up(&mut self, quota: &Quota, now: u64, cost: u32) {
        self.begin_anew(now);
        self.window = self.window.max(quota.window_micros()).max(self.own_window);
        self.take(quota, now, cost);
    }

    fn status(&self, quota: &Quota, now: u64) -> Status {
        let used = u32::try_from(self.used(quota, now)).unwrap_or(u32::MAX);
        let last = self.holders.back().filter(|_| used > 0);
        Status {
            remaining: quota.limit().saturating_sub(used),
            reset_after: last.map_or(0, |holder| self.lapses_after(holder.since, quota, now)),
        }
    }

    /// Releases units of the holder the receipt names. One whose lease has
    /// lapsed holds nothing any more.
    fn refund(&mut self, quota: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        if receipt.at <= now || self.expires_at() <= now {
            return 0;
        }
        let named = |holder: &Holder| holder.number == receipt.detail && holder.since < receipt.at;
        let Some(index) = self.holders.iter().position(named) else { return 0 };
        let holder = &mut self.holders[index];
        if holder.since.saturating_add(quota.window_micros()) <= now {
            return 0;
        }
        let given = cost.min(holder.units);
        holder.units -= given;
        if holder.units == 0 {
            self.holders.remove(index);
        }
        given
    }

    fn expires_at(&self) -> u64 {
        if self.window == 0 { 0 } else { self.last.saturating_add(self.window) }
    }
}
