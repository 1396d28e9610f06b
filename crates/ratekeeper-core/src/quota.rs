//! How much in how long: a [`Quota`] that cannot be invalid, and [`Quotas`],
//! the one or several of them that a rule has.

mod algorithm;
mod making;
#[cfg(test)]
mod tests;
mod text;
mod tiers;

use std::time::Duration;

pub use self::algorithm::Algorithm;
pub use self::tiers::Quotas;
use self::tiers::TIERS;
use crate::algorithm::plus_units;
use crate::calendar::Calendar;
use crate::error::{Field, InvalidInput};
use crate::time::MICROS_PER_SECOND;

/// The largest limit, burst, queue and cost: 10^9 units.
pub const LIMIT_MAX: u32 = 1_000_000_000;
/// The largest limit of the algorithms that remember every request
/// (`sliding_log`, `concurrency`): their state grows with the limit.
pub const ENTRIES_MAX: u32 = 10_000;
/// The shortest window, in milliseconds.
pub const WINDOW_MILLIS_MIN: u64 = 1;
/// The longest window, in milliseconds: 366 days.
pub const WINDOW_MILLIS_MAX: u64 = 366 * 86_400 * 1_000;

/// `limit` units per `window`, counted by one algorithm.
///
/// ```
/// use ratekeeper_core::Quota;
///
/// let quota: Quota = "10/s burst 20".parse()?;
/// assert_eq!((quota.limit(), quota.capacity()), (10, 20));
/// assert_eq!(quota.to_string(), "10/s burst 20");
/// # Ok::<(), ratekeeper_core::InvalidInput>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u32,
    /// Burst of a token bucket, queue of a leaky bucket, otherwise `limit`.
    extra: u32,
    window_micros: u64,
    calendar: Option<Calendar>,
    /// Whether windows begin on multiples of their length since the epoch.
    aligned: bool,
    algorithm: Algorithm,
}

/// How many windows of one quota a key may be counted in at a time: so many up to an hour, and so many
/// [longer](Quota::is_long) ones. Logs and leases do not count.
pub const WINDOWS_MAX: usize = 8;
/// The longest window that is not [long](Quota::is_long).
const SHORT_WINDOW_MAX_MICROS: u64 = 3_600 * MICROS_PER_SECOND;

/// A length of time to a fraction of a microsecond: `micros + rest / limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    pub(crate) micros: u64,
    pub(crate) rest: u32,
}

impl Span {
    /// Whole milliseconds, rounded up, in microseconds: as precise as stores keep it.
    #[inline]
    pub(crate) const fn millis_up(self) -> u64 {
        self.micros.saturating_add((self.rest > 0) as u64).div_ceil(1_000).saturating_mul(1_000)
    }
}

impl Quota {
    /// Whether it lets nothing pass: its limit is 0.
    #[must_use]
    #[inline]
    pub const fn is_closed(&self) -> bool {
        self.limit == 0
    }

    /// Units per window; 0 lets nothing pass.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The most that can be had at one instant: the burst of a token bucket,
    /// the queue of a leaky bucket and the one in service, else the limit.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        match self.algorithm {
            Algorithm::LeakyBucket if self.limit > 0 => self.extra + 1,
            Algorithm::LeakyBucket => 0,
            _ => self.extra,
        }
    }

    /// What one unit adds to the debt of a bucket: `window / limit`; nothing if it is closed.
    #[inline]
    pub(crate) const fn unit(&self) -> Span {
        let limit = self.limit as u64;
        if limit == 0 {
            return Span { micros: 0, rest: 0 };
        }
        Span { micros: self.window_micros / limit, rest: (self.window_micros % limit) as u32 }
    }

    /// The debt up to which a bucket lets a request in: the whole burst of a
    /// token bucket, the queue of a leaky one.
    #[inline]
    pub(crate) fn room(&self) -> Span {
        if self.extra == self.limit {
            return Span { micros: self.window_micros, rest: 0 };
        }
        self.span_of(self.extra)
    }

    /// `units` times [`Self::unit`], where the product is within a year.
    fn span_of(&self, units: u32) -> Span {
        if self.is_closed() {
            return Span::default();
        }
        let (scaled, limit) = (u128::from(units) * u128::from(self.window_micros), u128::from(self.limit));
        match u64::try_from(scaled) {
            Ok(scaled) => {
                let limit = u64::from(self.limit);
                Span { micros: scaled / limit, rest: (scaled % limit) as u32 }
            }
            Err(_) => Span { micros: (scaled / limit) as u64, rest: (scaled % limit) as u32 },
        }
    }

    /// What `units` add to the debt of a bucket, in whole microseconds and a
    /// rest in `1/limit` of one: for stores that repeat the arithmetic elsewhere.
    /// Nothing, if the limit is 0: there is no rate.
    #[must_use]
    pub fn debt_of(&self, units: u32) -> (u64, u32) {
        if self.is_closed() {
            return (0, 0);
        }
        let span = plus_units(Span::default(), units, self);
        (span.micros, span.rest)
    }

    /// The debt up to which a bucket lets a request in, as in [`Self::debt_of`].
    #[must_use]
    pub fn debt_allowed(&self) -> (u64, u32) {
        if self.is_closed() {
            return (0, 0);
        }
        let room = self.room();
        (room.micros, room.rest)
    }

    /// The largest cost that can ever pass.
    #[must_use]
    pub const fn cost_max(&self) -> u32 {
        match self.algorithm {
            Algorithm::LeakyBucket => self.limit,
            _ => self.extra,
        }
    }

    /// How many units may wait in a leaky bucket; 0 for other algorithms.
    #[must_use]
    pub const fn queue(&self) -> u32 {
        match self.algorithm {
            Algorithm::LeakyBucket => self.extra,
            _ => 0,
        }
    }

    /// The window (the longest it can be, for a calendar month), or the lease
    /// of a concurrency quota.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window_micros)
    }

    /// The window in microseconds.
    #[must_use]
    pub const fn window_micros(&self) -> u64 {
        self.window_micros
    }

    /// Whether windows begin on multiples of their length since the epoch.
    #[must_use]
    pub const fn is_aligned(&self) -> bool {
        self.aligned
    }

    /// Whether windows begin by the clock, on the calendar or aligned, rather than with the
    /// first request.
    #[must_use]
    pub const fn is_clocked(&self) -> bool {
        self.aligned || self.calendar.is_some()
    }

    /// The window by the clock that holds `now`: its first instant and the first after it.
    pub(crate) fn window_at(&self, now_micros: u64) -> Option<(u64, u64)> {
        if self.aligned {
            let start = now_micros - now_micros % self.window_micros;
            return Some((start, start + self.window_micros));
        }
        self.calendar.map(|calendar| calendar.window_at(now_micros))
    }

    /// The number of the window, which is part of a counter's identity: its microseconds, and one
    /// more if it follows the calendar, two more if it is aligned.
    #[must_use]
    #[inline]
    pub const fn window_number(&self) -> u64 {
        self.window_micros + self.calendar.is_some() as u64 + 2 * self.aligned as u64
    }

    /// Whether the window is longer than an hour. Counters of such windows are kept apart from those of shorter ones: what
    /// lives for a day would keep what lives for a minute.
    #[must_use]
    #[inline]
    pub const fn is_long(&self) -> bool {
        self.window_micros > SHORT_WINDOW_MAX_MICROS
    }

    /// The debt of a bucket from which a full refill takes longest, as in [`Self::debt_of`]:
    /// of a leaky one, that of the largest cost behind a full queue.
    #[must_use]
    pub fn debt_full(&self) -> (u64, u32) {
        let room = self.room();
        let full = match self.algorithm {
            Algorithm::LeakyBucket => plus_units(room, self.limit, self),
            _ => room,
        };
        (full.micros, full.rest)
    }

    /// The calendar the window follows, if it does.
    #[must_use]
    pub const fn calendar_window(&self) -> Option<Calendar> {
        self.calendar
    }

    /// How it counts.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// What is wrong with counting a key in one more window.
#[must_use]
pub fn too_many_windows() -> InvalidInput {
    let got = format!("more than {WINDOWS_MAX} windows of a quota for one key");
    InvalidInput::new(
        Field::Window,
        got,
        format!(
            "at most {WINDOWS_MAX} up to an hour and {WINDOWS_MAX} longer ones in which something counts at a time"
        ),
    )
}

const fn seconds(secs: u64) -> u64 {
    secs * MICROS_PER_SECOND
}
