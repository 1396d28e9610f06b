//! Concurrency: how many may be under way at once.
//!
//! Each admitted request holds its units by a lease. It gives them back when
//! it is done (a refund with its receipt); if its process dies, the lease
//! lapses. The wait of a denied request is until leases lapse, so it is an
//! upper bound: holders usually come back sooner.

use std::collections::VecDeque;

use super::{Counter, Receipt, Status};
use crate::quota::Quota;
use crate::time::Wait;

/// One request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// When its lease lapses, in microseconds.
    pub until: u64,
    /// Tells holders of one instant apart.
    pub number: u32,
    /// Units it holds.
    pub units: u32,
}

/// The requests under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concurrency {
    /// In the order in which their leases lapse.
    pub holders: VecDeque<Holder>,
    /// The number the next holder gets.
    pub next: u32,
    /// Until when numbers are not used again: the end of the latest lease
    /// given, returned or not.
    pub known_until: u64,
    /// The lease under which the last place was taken.
    pub lease: u64,
}

impl Concurrency {
    fn live(&self, now: u64) -> impl Iterator<Item = &Holder> {
        self.holders.iter().skip_while(move |holder| holder.until <= now)
    }

    fn used(&self, now: u64) -> u64 {
        self.live(now).map(|holder| u64::from(holder.units)).sum()
    }
}

impl Counter for Concurrency {
    fn is_unwell(&self, quota: &Quota, now: u64) -> bool {
        let lease = quota.window_micros();
        // A shorter lease cuts those that are out. Under the same one, up to a
        // lease more only means that the clock is behind.
        let slack = if lease < self.lease { 0 } else { lease };
        self.known_until > now + lease + slack
    }

    /// The lease was shortened or the clock stepped back: nobody holds for
    /// longer than a lease from now.
    fn heal(&mut self, quota: &Quota, now: u64) {
        let latest = now + quota.window_micros();
        self.known_until = latest;
        self.lease = quota.window_micros();
        for holder in &mut self.holders {
            holder.until = holder.until.min(latest);
        }
    }

    fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait {
        let room = u64::from(quota.limit().saturating_sub(cost));
        let mut used = self.used(now);
        if used <= room {
            return Wait::NONE;
        }
        for holder in self.live(now) {
            used -= u64::from(holder.units);
            if used <= room {
                return Wait::micros(holder.until.saturating_sub(now));
            }
        }
        Wait::NEVER
    }

    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        while self.holders.front().is_some_and(|holder| holder.until <= now) {
            self.holders.pop_front();
        }
        // Numbers start from the instant of the first holder, so that a receipt
        // from an earlier life of the key names nobody in this one.
        if self.known_until <= now {
            self.next = now as u32;
        }
        let holder = Holder { until: now + quota.window_micros(), number: self.next, units: cost };
        self.next = self.next.wrapping_add(1);
        self.known_until = self.known_until.max(holder.until);
        self.lease = quota.window_micros();
        // Nearly always the last; not if a longer lease was in force before.
        let place =
            self.holders.iter().rposition(|other| other.until <= holder.until).map_or(0, |last| last + 1);
        self.holders.insert(place, holder);
        Receipt { at: holder.until, detail: holder.number }
    }

    fn status(&self, quota: &Quota, now: u64) -> Status {
        let used = u32::try_from(self.used(now)).unwrap_or(u32::MAX);
        Status {
            remaining: quota.limit().saturating_sub(used),
            reset_after: self.holders.back().map_or(0, |holder| holder.until.saturating_sub(now)),
        }
    }

    /// Releases units of the holder the receipt names. One whose lease has
    /// lapsed holds nothing any more.
    fn refund(&mut self, _: &Quota, now: u64, cost: u32, receipt: Receipt) -> bool {
        let named = |holder: &Holder| holder.number == receipt.detail && holder.until <= receipt.at;
        let Some(index) = self.holders.iter().position(named) else { return false };
        if self.holders[index].until <= now {
            return false;
        }
        let holder = &mut self.holders[index];
        holder.units = holder.units.saturating_sub(cost);
        if holder.units == 0 {
            self.holders.remove(index);
        }
        true
    }

    fn expires_at(&self) -> u64 {
        self.known_until
    }
}
