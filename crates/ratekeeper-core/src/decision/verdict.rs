//! What one quota said.

use std::time::Duration;

use super::given_back::GivenBack;
use crate::algorithm::{Receipt, Status};
use crate::check::{Enforcement, Level};
use crate::name::Name;
use crate::quota::{Algorithm, Quota};
use crate::time::Wait;

/// What one quota said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub(crate) name: Name,
    pub(crate) quota: Quota,
    pub(crate) reset_after: u64,
    pub(crate) retry_after: Wait,
    pub(crate) receipt_at: u64,
    pub(crate) receipt_detail: u32,
    pub(crate) remaining: u32,
    pub(crate) cost: u32,
    pub(crate) level: Level,
    pub(crate) enforcement: Enforcement,
    /// Whether the receipt is one.
    pub(crate) charged: bool,
    /// Whether a reservation holds the charge, so that only settling it gives anything back.
    pub(crate) held: bool,
    pub(crate) index: u16,
    pub(crate) counter: CounterNumber,
    pub(crate) given_back: GivenBack,
    /// The number of the receipt, if it left the process; else 0.
    pub(crate) nonce: CounterNumber,
}

/// A number for a counter or a receipt. Verdicts of different stores are equal if they say the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterNumber(pub(crate) u64);

impl PartialEq for CounterNumber {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CounterNumber {}

impl Verdict {
    /// The quota's name.
    #[must_use]
    pub const fn name(&self) -> Name {
        self.name
    }

    /// The quota in force, overrides included.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Who set it.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Whether it could have denied the check.
    #[must_use]
    pub const fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    /// Units asked for.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.cost
    }

    /// Units left, after the charge if there was one.
    #[must_use]
    #[inline]
    pub const fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Time until the quota is full again if nobody else asks.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after)
    }

    /// When this quota alone would let the same charge pass.
    #[must_use]
    pub const fn retry_after(&self) -> Wait {
        self.retry_after
    }

    /// Which item of the call it is about ([`Charge::at_index`](crate::Charge::at_index)).
    #[must_use]
    pub fn index(&self) -> usize {
        self.index.into()
    }

    /// The store's number for the counter: refunds are paired with charges by it.
    #[must_use]
    pub const fn counter(&self) -> u64 {
        self.counter.0
    }

    /// Proof of the charge, if something was charged.
    #[must_use]
    #[inline]
    pub fn receipt(&self) -> Option<Receipt> {
        self.charged.then_some(Receipt { at: self.receipt_at, detail: self.receipt_detail })
    }

    /// The number of its receipt, if the decision was made under an id or left the process; else 0.
    #[must_use]
    pub const fn nonce(&self) -> u64 {
        self.nonce.0
    }

    /// The instant, in microseconds, from which on the charge no longer counts.
    #[must_use]
    pub fn counted_until(&self) -> u64 {
        let windows = match self.quota.algorithm() {
            Algorithm::SlidingWindow => 2,
            Algorithm::SlidingLog => 1,
            // The receipt names the end itself.
            _ => 0,
        };
        self.receipt_at.saturating_add(windows * self.quota.window_micros()).saturating_add(1)
    }

    /// Whether this quota had room.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.retry_after.is_none()
    }

    /// Whether this quota denied the check.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_admitted() && self.enforcement == Enforcement::Enforce && self.cost > 0
    }

    /// Whether `retry_after` is only an upper bound, as it is for leases: a
    /// holder may come back before its lease ends.
    #[must_use]
    pub fn is_at_latest(&self) -> bool {
        self.quota.algorithm() == Algorithm::Concurrency
    }

    pub(crate) fn set_receipt(&mut self, receipt: Receipt) {
        self.charged = true;
        self.receipt_at = receipt.at;
        self.receipt_detail = receipt.detail;
    }

    pub(crate) fn set_status(&mut self, status: Status) {
        self.remaining = status.remaining;
        self.reset_after = status.reset_after;
    }

    /// Orders by the share of the capacity that is left.
    pub(super) fn by_share_left(&self, other: &Self) -> std::cmp::Ordering {
        let share = |of: &Self, whole: &Self| u64::from(of.remaining) * u64::from(whole.quota.capacity());
        share(self, other).cmp(&share(other, self))
    }
}
