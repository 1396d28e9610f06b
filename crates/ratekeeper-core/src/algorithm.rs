//! The six algorithms as pure functions of (state, quota, now, cost).
//!
//! A [`State`] is what a store keeps for one counter. All methods take the
//! quota that is in force now, which need not be the one the state was made
//! under, and the instant in microseconds. The order in a check is always:
//!
//! 1. [`State::instant`]: the clock may not run backwards for a counter;
//! 2. [`State::heal`]: bring a state that the present quota and clock could
//!    not have made back into their range (kept even if the check is denied);
//! 3. [`State::wait`]: would this cost pass, and if not, when?
//! 4. [`State::charge`], if every counter of the check said yes;
//! 5. [`State::status`]: what is left.
//!
//! Rounding is against the caller, by less than one unit; only the sliding
//! window rounds the count of the window before down.
//!
//! A state may come from outside, with numbers that no history makes. It is judged as what it says, or healed, and
//! nothing panics: sums and differences of what a state holds stop at the ends of their range.

mod bucket;
mod concurrency;
mod fixed_window;
mod sliding_log;
mod sliding_window;

pub(crate) use bucket::plus_units;
pub use bucket::{Bucket, DEBT_WINDOWS_MAX, LeakyBucket, TokenBucket};
pub use concurrency::{Concurrency, Holder};
pub use fixed_window::FixedWindow;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;

use crate::quota::{Algorithm, Quota};
use crate::time::{Timestamp, Wait};

/// What a store keeps for one counter.
///
/// The two algorithms whose state grows are boxed, so that the others stay
/// small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`SlidingLog`].
    SlidingLog(Box<SlidingLog>),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// See [`Concurrency`].
    Concurrency(Box<Concurrency>),
}

/// What is left of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Units that could be had now.
    pub remaining: u32,
    /// Microseconds until the quota is full again if nobody else asks.
    pub reset_after: u64,
}

/// Proof of a charge: what a refund needs to find it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// An instant that names the charge: the end of its window, its time in
    /// the log, its place in the bucket, the end of its lease.
    pub at: u64,
    /// What the instant leaves open: a bucket's part of a microsecond, the
    /// number of a holder; 0 for the other algorithms.
    pub detail: u32,
}

impl Receipt {
    /// The receipt for the rest of a charge under `quota`, once `units` of it were given back.
    #[must_use]
    pub fn less(self, units: u32, quota: &Quota) -> Self {
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket if units > 0 && !quota.is_closed() => {
                bucket::receipt_less(self, units, quota)
            }
            // It names a window, an entry or a holder, whatever is left in it.
            _ => self,
        }
    }
}

/// What came of [`Counter::attempt`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) wait: Wait,
    pub(crate) proceed_after: u64,
    pub(crate) status: Status,
    pub(crate) receipt: Option<Receipt>,
}

/// What each algorithm does; learn one, know all. See the module's text for
/// the order of the calls.
pub(crate) trait Counter {
    /// Lets a state that was charged and keeps what came know the window of its rule or plan, which an override's does
    /// not shorten.
    #[inline]
    fn keep_for(&mut self, _own_window: u64) {}

    /// The newest instant it has seen, and its window.
    fn newest(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Whether `quota` and `now` could not have made this state.
    fn is_unwell(&self, quota: &Quota, now: u64) -> bool;

    /// Makes it one they could have made.
    fn heal(&mut self, quota: &Quota, now: u64);

    /// How long until `cost` would pass; the cost is one that can.
    fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait;

    /// How long an admitted request should hold back; asked before charging.
    fn proceed_after(&self, _: &Quota, _: u64) -> u64 {
        0
    }

    /// Charges, whether or not there is room.
    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt;

    /// Charges what an earlier charge turned out to cost more, under the quota
    /// of that time: must not take a quota that has grown since for a fault.
    fn top_up(&mut self, quota: &Quota, now: u64, cost: u32) {
        self.charge(quota, now, cost);
    }

    /// What is left.
    fn status(&self, quota: &Quota, now: u64) -> Status;

    /// Charges `cost` (at least 1) if there is room and `commit` says so.
    #[inline]
    fn attempt(&mut self, quota: &Quota, now: u64, cost: u32, commit: bool) -> Attempt {
        let wait = if cost > quota.cost_max() { Wait::NEVER } else { self.wait(quota, now, cost) };
        let proceed_after = if wait.is_none() { self.proceed_after(quota, now) } else { 0 };
        let receipt = (commit && wait.is_none()).then(|| self.charge(quota, now, cost));
        Attempt { wait, proceed_after, status: self.status(quota, now), receipt }
    }

    /// Gives back; says how many units of the charge were still counted.
    fn refund(&mut self, quota: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32;

    /// From when on it says no more than a vacant one.
    fn expires_at(&self) -> u64;
}

/// Boxed states count like any other.
impl<C: Counter> Counter for Box<C> {
    fn keep_for(&mut self, own_window: u64) {
        (**self).keep_for(own_window);
    }

    fn newest(&self) -> (u64, u64) {
        (**self).newest()
    }

    fn is_unwell(&self, quota: &Quota, now: u64) -> bool {
        (**self).is_unwell(quota, now)
    }

    fn heal(&mut self, quota: &Quota, now: u64) {
        (**self).heal(quota, now);
    }

    fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait {
        (**self).wait(quota, now, cost)
    }

    fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        (**self).charge(quota, now, cost)
    }

    fn top_up(&mut self, quota: &Quota, now: u64, cost: u32) {
        (**self).top_up(quota, now, cost);
    }

    fn status(&self, quota: &Quota, now: u64) -> Status {
        (**self).status(quota, now)
    }

    fn refund(&mut self, quota: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        (**self).refund(quota, now, cost, receipt)
    }

    fn expires_at(&self) -> u64 {
        (**self).expires_at()
    }
}

/// Runs `$value` with `$inner` as the state's own type, known to the compiler.
macro_rules! each {
    ($state:expr, $inner:ident => $value:expr) => {
        match $state {
            $crate::algorithm::State::FixedWindow($inner) => $value,
            $crate::algorithm::State::SlidingWindow($inner) => $value,
            $crate::algorithm::State::SlidingLog($inner) => $value,
            $crate::algorithm::State::TokenBucket($inner) => $value,
            $crate::algorithm::State::LeakyBucket($inner) => $value,
            $crate::algorithm::State::Concurrency($inner) => $value,
        }
    };
}
pub(crate) use each;

/// `now`, or the newest instant of a counter if the clock has stepped back
/// behind it by no more than a window.
#[inline]
pub(crate) fn instant_of(counter: &impl Counter, now: u64) -> u64 {
    let (newest, window) = counter.newest();
    let is_seen = newest > now && newest - now <= window && newest <= Timestamp::MAX.as_micros();
    if is_seen { newest } else { now }
}

impl State {
    /// The state of a counter nobody has used.
    #[must_use]
    #[inline]
    pub fn vacant(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::FixedWindow => State::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingWindow => State::SlidingWindow(SlidingWindow::default()),
            Algorithm::SlidingLog => State::SlidingLog(Box::default()),
            Algorithm::TokenBucket => State::TokenBucket(TokenBucket::default()),
            Algorithm::LeakyBucket => State::LeakyBucket(LeakyBucket::default()),
            Algorithm::Concurrency => State::Concurrency(Box::default()),
        }
    }

    /// The algorithm that made it.
    #[must_use]
    #[inline]
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            State::FixedWindow(_) => Algorithm::FixedWindow,
            State::SlidingWindow(_) => Algorithm::SlidingWindow,
            State::SlidingLog(_) => Algorithm::SlidingLog,
            State::TokenBucket(_) => Algorithm::TokenBucket,
            State::LeakyBucket(_) => Algorithm::LeakyBucket,
            State::Concurrency(_) => Algorithm::Concurrency,
        }
    }

    /// Whether it is of a fixed size, and so cheap to copy.
    #[must_use]
    #[inline]
    pub const fn is_small(&self) -> bool {
        !matches!(self, State::SlidingLog(_) | State::Concurrency(_))
    }

    /// `now`, or the newest instant in the state if the clock has stepped back
    /// behind it by no more than a window. (Further back, see [`Self::heal`].)
    #[must_use]
    pub fn instant(&self, now: u64) -> u64 {
        each!(self, state => instant_of(state, now))
    }

    /// Whether [`Self::heal`] would change anything.
    #[must_use]
    pub fn is_unwell(&self, quota: &Quota, now: u64) -> bool {
        each!(self, state => state.is_unwell(quota, now))
    }

    /// Brings the state into what `quota` and `now` could have made: after the
    /// quota changed, or the clock stepped back by more than a window.
    pub fn heal(&mut self, quota: &Quota, now: u64) {
        each!(self, state => if state.is_unwell(quota, now) { state.heal(quota, now) });
    }

    /// Lets a log or leases know the window of the rule or plan, in microseconds: what came stays at least as long,
    /// also while an override has a shorter one.
    #[inline]
    pub fn keep_for(&mut self, own_window: u64) {
        each!(self, state => state.keep_for(own_window));
    }

    /// How long until `cost` (at least 1) would pass; [`Wait::NEVER`] if it is
    /// more than the quota ever holds. The state must be well.
    #[must_use]
    pub fn wait(&self, quota: &Quota, now: u64, cost: u32) -> Wait {
        if cost > quota.cost_max() {
            return Wait::NEVER;
        }
        each!(self, state => state.wait(quota, now, cost))
    }

    /// How long an admitted request should hold back before it goes on: only
    /// ever more than 0 for a leaky bucket. Ask before charging.
    #[must_use]
    pub fn proceed_after(&self, quota: &Quota, now: u64) -> u64 {
        each!(self, state => state.proceed_after(quota, now))
    }

    /// Charges `cost`, whether or not there is room for it.
    pub fn charge(&mut self, quota: &Quota, now: u64, cost: u32) -> Receipt {
        each!(self, state => state.charge(quota, now, cost))
    }

    /// Charges what an earlier charge turned out to cost more, under the quota
    /// of that time.
    pub fn top_up(&mut self, quota: &Quota, now: u64, cost: u32) {
        // Nothing was charged under a limit of 0, which has no rate to charge by.
        if !quota.is_closed() {
            each!(self, state => state.top_up(quota, now, cost));
        }
    }

    /// What is left.
    #[must_use]
    pub fn status(&self, quota: &Quota, now: u64) -> Status {
        each!(self, state => state.status(quota, now))
    }

    /// Gives `cost` units of the charge behind `receipt` back, never more than
    /// are still taken. In another window it does nothing. Says how many units that was; one of which a part
    /// has drained is one. If some were given back before, the receipt must be [what is left](Receipt::less).
    pub fn refund(&mut self, quota: &Quota, now: u64, cost: u32, receipt: Receipt) -> u32 {
        // Nothing is no reason to round a debt to the rate of another quota, and a closed quota has no rate: a
        // receipt cannot be of such a charge, unless somebody made it up.
        if cost == 0 || quota.is_closed() {
            return 0;
        }
        each!(self, state => state.refund(quota, now, cost, receipt))
    }

    /// From this instant on the state says no more than a vacant one.
    #[must_use]
    pub fn expires_at(&self) -> u64 {
        each!(self, state => state.expires_at())
    }
}

/// `a * b / c` rounded down, without overflow in between.
#[inline]
pub(crate) fn mul_div_floor(a: u64, b: u64, c: u64) -> u64 {
    div_floor(u128::from(a) * u128::from(b), c)
}

/// `a * b / c` rounded up, without overflow in between.
#[inline]
pub(crate) fn mul_div_ceil(a: u64, b: u64, c: u64) -> u64 {
    let (dividend, divisor) = (u128::from(a) * u128::from(b), u128::from(c));
    match u64::try_from(dividend) {
        Ok(dividend) => dividend.div_ceil(c),
        Err(_) => u64::try_from(dividend.div_ceil(divisor)).unwrap_or(u64::MAX),
    }
}

/// Rounds down. All sums in this crate fit 64 bits once divided; a quotient
/// that would not is cut at `u64::MAX`.
#[inline]
pub(crate) fn div_floor(dividend: u128, divisor: u64) -> u64 {
    // Hardware divides 64 bits in a few cycles; the wide division is a call.
    match u64::try_from(dividend) {
        Ok(dividend) => dividend / divisor,
        Err(_) => u64::try_from(dividend / u128::from(divisor)).unwrap_or(u64::MAX),
    }
}
