//! Token bucket and leaky bucket: one instant of state.
//!
//! GCRA, the generic cell rate algorithm: instead of counting tokens, keep the
//! instant at which the bucket will be full again. Its distance from now is
//! the debt; every unit adds `window / limit` to it.
//!
//! That fraction is kept exactly: a debt is whole microseconds and a rest in
//! `1/limit` of one, and a unit is `window / limit` in the same two parts. No
//! rate drifts, however odd, and sums stay within 64 bits.

use super::{Attempt, Counter, Receipt, Status, div_floor, mul_div_ceil};
use crate::quota::{Quota, Span};
use crate::time::Wait;

/// When the bucket is full (a token bucket) or empty (a leaky one) again:
/// `full_at + remainder / denominator` microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Whole microseconds.
    pub full_at: u64,
    /// The part of a microsecond on top, in units of `1/denominator`.
    pub remainder: u32,
    /// The limit under which the remainder was made; 0 if never used.
    pub denominator: u32,
    /// How far ahead of the clock `full_at` may be, in microseconds: the longest
    /// full refill among the quotas that charged it while it owed something, or
    /// the debt that was kept, if that is longer. Further ahead (by more than a
    /// window), the clock has stepped back.
    pub ahead: u64,
}

/// How many windows of debt beyond a full refill are remembered.
pub const DEBT_WINDOWS_MAX: u64 = 10;
/// The longest debt that is remembered, in microseconds, unless a full refill takes longer.
const DEBT_MICROS_MAX: u64 = 366 * 86_400_000_000;

impl Bucket {
    /// What the bucket owes at `now`.
    #[inline]
    fn debt(&self, quota: &Quota, now: u64) -> Span {
        if self.full_at < now {
            return Span::default();
        }
        let micros = self.full_at - now;
        let is_part = self.denominator == quota.limit() && self.remainder < self.denominator;
        if is_part || self.remainder == 0 {
            return Span { micros, rest: self.remainder };
        }
        self.rescaled(micros, quota)
    }

    /// The debt of a bucket that another limit made, or nobody: a part of a microsecond is less than one.
    fn rescaled(&self, micros: u64, quota: &Quota) -> Span {
        if self.denominator == 0 || quota.is_closed() {
            return Span { micros, rest: 0 };
        }
        let remainder = self.remainder.min(self.denominator - 1);
        let rest = mul_div_ceil(remainder.into(), quota.limit().into(), self.denominator.into());
        carried(micros, rest, quota)
    }

    /// Whether the clock has stepped back behind what was charged. No quota makes
    /// a debt too large: one that is above the asker's room is waited out.
    ///
    /// Up to a window more than the bucket may be ahead only means that whoever
    /// asks brings an instant from before the last charge: a clock that stepped
    /// back a little, or a thread that waited for its turn after it had looked at
    /// the clock. Cutting the debt then would give room away.
    #[inline]
    fn has_seen_a_step(&self, quota: &Quota, now: u64) -> bool {
        self.full_at > now && self.full_at - now > self.ahead.saturating_add(quota.window_micros())
    }

    #[inline]
    fn set_debt(&mut self, quota: &Quota, now: u64, debt: Span) {
        self.full_at = now.saturating_add(debt.micros);
        self.remainder = debt.rest;
        self.denominator = quota.limit();
    }

    /// Charges a quota whose full refill takes `full`. Of what an unconditional
    /// charge adds beyond that, only so much is remembered. What is owed already is
    /// never cut: it may have been charged under a larger quota.
    #[inline]
    fn add(&mut self, quota: &Quota, now: u64, cost: u32, full: Span) -> Receipt {
        if quota.is_closed() {
            return Receipt { at: self.full_at, detail: self.remainder };
        }
        let debt = self.debt(quota, now);
        let owed = plus_units(debt, cost, quota);
        if owed <= full {
            self.owe(quota, now, debt, owed, full);
        } else {
            // Not `debt`: a clock that steps back again and again would take the bucket ever further ahead.
            let kept = owed.min(kept_at_most(quota, full));
            self.owe(quota, now, debt, kept.max(debt), kept.max(full));
        }
        Receipt { at: self.full_at, detail: self.remainder }
    }

    /// Replaces a debt by the larger one that a charge makes of it, and which may be `ahead`.
    #[inline]
    fn owe(&mut self, quota: &Quota, now: u64, debt: Span, owed: Span, ahead: Span) {
        let before = if debt == Span::default() { 0 } else { self.ahead };
        self.ahead = before.max(ahead.millis_up());
        self.set_debt(quota, now, owed);
    }

    /// After a step of the clock: as after a full charge.
    fn rebase(&mut self, quota: &Quota, now: u64, full: Span) {
        self.ahead = full.millis_up();
        self.set_debt(quota, now, full);
    }

    /// Microseconds until nothing is owed, rounded up.
    #[inline]
    fn reset_after(&self, quota: &Quota, now: u64) -> u64 {
        let debt = self.debt(quota, now);
        debt.micros.saturating_add(u64::from(debt.rest > 0))
    }

    /// Units drain in the order they came, so a charge is owed until the
    /// instant its receipt names: only what is left of it can be given back. A unit that has begun to
    /// drain counts as one.
    fn give_back(&mut self, quota: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        let owed_still = match receipt.at.checked_sub(now) {
            // Receipts come from outside, too.
            Some(micros) => carried(micros, receipt.detail.into(), quota),
            None => Span::default(),
        };
        let debt = self.debt(quota, now);
        let given = plus_units(Span::default(), cost, quota).min(owed_still).min(debt);
        // Nothing is no reason to round a debt to the rate of another quota.
        if given == Span::default() {
            return 0;
        }
        self.set_debt(quota, now, minus(debt, given, quota));
        // At most the cost, which is a u32; a debt that was cut to what is remembered may make it less.
        units_begun(given, quota).min(cost.into()) as u32
    }

    #[inline]
    fn expires_at(&self) -> u64 {
        self.full_at.saturating_add(u64::from(self.remainder > 0))
    }

    /// What a quota that lets nothing pass leaves: there is no rate to tell the
    /// debt in, which waits as it is for a quota that has one.
    #[cold]
    fn closed(&self, now: u64) -> Status {
        Status { remaining: 0, reset_after: self.expires_at().saturating_sub(now) }
    }
}

/// A bucket of tokens: what is not owed can be had at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket(pub Bucket);

impl Counter for TokenBucket {
    #[inline]
    fn is_unwell(&self, quota: &Quota, now: u64) -> bool {
        !quota.is_closed() && self.0.has_seen_a_step(quota, now)
    }

    fn heal(&mut self, quota: &Quota, now: u64) {
        self.0.rebase(quota, now, quota.room());
    }

    #[inline]
    fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait {
        wait_until(plus_units(self.0.debt(quota, now), cost, quota), quota.room())
    }

    /// The parts below in one, so that the debt is worked out once: this is
    /// the commonest charge of all.
    #[inline(always)] // Its parts would go through memory otherwise.
    fn attempt(&mut self, quota: &Quota, now: u64, cost: u32, commit: bool) -> Attempt {
        if quota.is_closed() {
            let status = self.0.closed(now);
            return Attempt { wait: Wait::NEVER, proceed_after: 0, status, receipt: None };
        }
        let (debt, room) = (self.0.debt(quota, now), quota.room());
        let owed = plus_units(debt, cost, quota);
        let wait = if cost > quota.cost_max() { Wait::NEVER } else { wait_until(owed, room) };
        let committed = commit && wait.is_none();
        let after = if committed { owed } else { debt };
        if committed {
            self.0.owe(quota, now, debt, owed, room);
        }
        Attempt {
            wait,
            proceed_after: 0,
            status: Status {
                remaining: units_between(after, room, quota),
                reset_after: after.micros + u64::from(after.rest > 0),
            },
            receipt: committed
                .then_some(Receipt { at: now.saturating_add(after.micros), detail: after.rest }),
        }
    }

    #[inline]
    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        self.0.add(quota, now, cost, quota.room())
    }

    #[inline]
    fn status(&self, quota: &Quota, now: u64) -> Status {
        if quota.is_closed() {
            return self.0.closed(now);
        }
        Status {
            remaining: units_between(self.0.debt(quota, now), quota.room(), quota),
            reset_after: self.0.reset_after(quota, now),
        }
    }

    fn refund(&mut self, quota: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        self.0.give_back(quota, now, cost, receipt)
    }

    #[inline]
    fn expires_at(&self) -> u64 {
        self.0.expires_at()
    }
}

/// A bucket that drips: what is owed is the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeakyBucket(pub Bucket);

impl LeakyBucket {
    /// The most that can be owed: the last of a full queue, at the largest
    /// cost.
    fn debt_max(quota: &Quota) -> Span {
        plus_units(quota.room(), quota.limit(), quota)
    }
}

impl Counter for LeakyBucket {
    fn is_unwell(&self, quota: &Quota, now: u64) -> bool {
        !quota.is_closed() && self.0.has_seen_a_step(quota, now)
    }

    fn heal(&mut self, quota: &Quota, now: u64) {
        self.0.rebase(quota, now, Self::debt_max(quota));
    }

    fn wait(&self, quota: &Quota, now: u64, _: u32) -> Wait {
        wait_until(self.0.debt(quota, now), quota.room())
    }

    fn proceed_after(&self, quota: &Quota, now: u64) -> u64 {
        self.0.reset_after(quota, now)
    }

    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        self.0.add(quota, now, cost, Self::debt_max(quota))
    }

    fn status(&self, quota: &Quota, now: u64) -> Status {
        if quota.is_closed() {
            return self.0.closed(now);
        }
        let (debt, room) = (self.0.debt(quota, now), quota.room());
        // The one in service comes on top of those that queue.
        let remaining = if debt > room { 0 } else { units_between(debt, room, quota) + 1 };
        Status { remaining, reset_after: self.0.reset_after(quota, now) }
    }

    fn refund(&mut self, quota: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        self.0.give_back(quota, now, cost, receipt)
    }

    fn expires_at(&self) -> u64 {
        self.0.expires_at()
    }
}

/// The longest debt that a bucket remembers, if a full refill takes `full`.
fn kept_at_most(quota: &Quota, full: Span) -> Span {
    let micros = full.micros.saturating_add(DEBT_WINDOWS_MAX * quota.window_micros());
    Span { micros: micros.min(DEBT_MICROS_MAX).max(full.micros), rest: full.rest }
}

/// `span` and `cost` units on top.
#[inline]
pub(crate) fn plus_units(span: Span, cost: u32, quota: &Quota) -> Span {
    let (unit, cost) = (quota.unit(), u64::from(cost));
    // Only an unconditional charge can be so large that it is cut here.
    let micros = cost.saturating_mul(unit.micros).saturating_add(span.micros).min(1 << 52);
    carried(micros, u64::from(span.rest) + cost * u64::from(unit.rest), quota)
}

/// Makes whole microseconds of a rest that is more than one.
#[inline]
fn carried(micros: u64, rest: u64, quota: &Quota) -> Span {
    // A closed quota has no parts.
    let limit = u64::from(quota.limit()).max(1);
    // What is left is below the limit, which is a u32.
    if rest < limit {
        Span { micros, rest: rest as u32 }
    } else if rest < 2 * limit {
        Span { micros: micros.saturating_add(1), rest: (rest - limit) as u32 }
    } else {
        Span { micros: micros.saturating_add(rest / limit), rest: (rest % limit) as u32 }
    }
}

/// `larger - smaller`.
#[inline]
fn minus(larger: Span, smaller: Span, quota: &Quota) -> Span {
    let micros = larger.micros - smaller.micros;
    match larger.rest.checked_sub(smaller.rest) {
        Some(rest) => Span { micros, rest },
        None => Span { micros: micros - 1, rest: larger.rest + (quota.limit() - smaller.rest) },
    }
}

/// How many units a span is, the last of them perhaps in part.
fn units_begun(span: Span, quota: &Quota) -> u64 {
    let scaled = u128::from(span.micros) * u128::from(quota.limit()) + u128::from(span.rest);
    u64::try_from(scaled.div_ceil(quota.window_micros().into())).unwrap_or(u64::MAX)
}

/// Where what is left of a charge stands in a bucket once `units` of it were given back: as much earlier as
/// these took, because whatever was charged after it has moved up.
pub(super) fn receipt_less(receipt: Receipt, units: u32, quota: &Quota) -> Receipt {
    let place = carried(receipt.at, receipt.detail.into(), quota);
    let gone = plus_units(Span::default(), units, quota);
    let left = if gone < place { minus(place, gone, quota) } else { Span::default() };
    Receipt { at: left.micros, detail: left.rest }
}

/// How many whole units fit between a debt and the room there is.
#[inline]
fn units_between(debt: Span, room: Span, quota: &Quota) -> u32 {
    if debt >= room {
        return 0;
    }
    let free = minus(room, debt, quota);
    let scaled = u128::from(free.micros) * u128::from(quota.limit()) + u128::from(free.rest);
    // At most the room in units, which is a u32.
    div_floor(scaled, quota.window_micros()) as u32
}

/// How long until what is owed has drained to `room`, rounded up.
#[inline]
fn wait_until(owed: Span, room: Span) -> Wait {
    if owed <= room {
        return Wait::NONE;
    }
    Wait::micros((owed.micros - room.micros).saturating_add(u64::from(owed.rest > room.rest)))
}
