//! How quotas are made, and what is wrong with those that are not.

use std::time::Duration;

use super::{Algorithm, LIMIT_MAX, Quota, WINDOW_MILLIS_MAX, WINDOW_MILLIS_MIN};
use crate::calendar::Calendar;
use crate::error::{Field, InvalidInput};
use crate::time::MICROS_PER_MILLI;

impl Quota {
    /// A quota of `limit` units per `window`.
    ///
    /// For [`Algorithm::Concurrency`] the window is the lease: how long a
    /// holder that never comes back keeps its place.
    ///
    /// # Errors
    /// If the limit or the window is out of range for the algorithm; the
    /// error names the bound.
    pub fn new(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, InvalidInput> {
        let limit = checked(Field::Limit, limit, 0, algorithm.limit_max())?;
        let window_micros = checked_window(window)?;
        let extra = if algorithm == Algorithm::LeakyBucket { 0 } else { limit };
        Self { limit, extra, window_micros, calendar: None, aligned: false, algorithm }.bounded()
    }

    /// Refuses a bucket that would take years to refill.
    fn bounded(self) -> Result<Self, InvalidInput> {
        let is_bucket = matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let scaled = u128::from(self.extra) * u128::from(self.window_micros);
        let most = u128::from(WINDOW_MILLIS_MAX * MICROS_PER_MILLI) * u128::from(self.limit);
        if is_bucket && scaled > most {
            let got = format!("{} at {} per {:?}", self.extra, self.limit, self.window());
            return Err(InvalidInput::new(
                Field::Burst,
                got,
                "a burst or queue that refills within 366 days",
            ));
        }
        Ok(self)
    }

    /// A token bucket that holds `limit` tokens and refills them in `window`.
    ///
    /// # Errors
    /// As [`Quota::new`].
    pub fn token_bucket(limit: u64, window: Duration) -> Result<Self, InvalidInput> {
        Self::new(Algorithm::TokenBucket, limit, window)
    }

    /// A fixed window that begins on the calendar.
    ///
    /// # Errors
    /// If the limit is out of range.
    pub fn calendar(limit: u64, calendar: Calendar) -> Result<Self, InvalidInput> {
        let window = Duration::from_micros(calendar.unit().longest_micros());
        let quota = Self::new(Algorithm::FixedWindow, limit, window)?;
        Ok(Self { calendar: Some(calendar), ..quota })
    }

    /// The same fixed window on multiples of its length since the epoch, whoever asks first: all
    /// counters of the quota begin anew at the same instants.
    ///
    /// # Errors
    /// If the algorithm is another, or the window follows the calendar.
    pub fn aligned(self) -> Result<Self, InvalidInput> {
        if self.algorithm != Algorithm::FixedWindow || self.calendar.is_some() {
            let on_calendar = if self.calendar.is_some() { " on the calendar" } else { "" };
            let got = format!("aligned windows of {}{on_calendar}", self.algorithm);
            return Err(InvalidInput::new(Field::Algorithm, got, "fixed_window off the calendar"));
        }
        Ok(Self { aligned: true, ..self })
    }

    /// The same rate with room for `burst` at once (token buckets only).
    ///
    /// # Errors
    /// If the burst is out of range or the algorithm has none.
    pub fn with_burst(self, burst: u64) -> Result<Self, InvalidInput> {
        self.require(Algorithm::TokenBucket, Field::Burst)?;
        let extra = checked(Field::Burst, burst, 1, LIMIT_MAX)?;
        self.require_rate(Field::Burst, extra)?;
        Self { extra, ..self }.bounded()
    }

    /// The same rate with `queue` units that may wait their turn (leaky
    /// buckets only; none by default).
    ///
    /// # Errors
    /// If the queue is out of range or the algorithm has none.
    pub fn with_queue(self, queue: u64) -> Result<Self, InvalidInput> {
        self.require(Algorithm::LeakyBucket, Field::Queue)?;
        let extra = checked(Field::Queue, queue, 0, LIMIT_MAX - 1)?;
        self.require_rate(Field::Queue, extra)?;
        Self { extra, ..self }.bounded()
    }

    /// Refuses room for units of which none ever passes.
    fn require_rate(&self, field: Field, units: u32) -> Result<(), InvalidInput> {
        if !self.is_closed() || units == 0 {
            return Ok(());
        }
        let got = format!("{units} on a limit of 0");
        Err(InvalidInput::new(field, got, "none: nothing passes, so nothing can be saved up or wait"))
    }

    fn require(&self, algorithm: Algorithm, field: Field) -> Result<(), InvalidInput> {
        if self.algorithm == algorithm {
            return Ok(());
        }
        let got = format!("a {field} on {}", self.algorithm);
        Err(InvalidInput::new(field, got, format!("{algorithm}: no other algorithm has a {field}")))
    }

    /// The quota as an override has it: another limit, perhaps another window.
    ///
    /// Overrides are written without knowing which quotas they will meet, so
    /// what is beyond a bound of the algorithm means that bound; a limit of 0
    /// lets nothing pass. A token bucket's burst keeps its proportion to the
    /// limit. A window of its own takes a calendar quota off the calendar; an aligned
    /// one stays aligned, to the other length.
    #[must_use]
    pub fn overridden(self, limit: u64, window: Option<Duration>) -> Self {
        let most = self.algorithm.limit_max();
        let limit = u32::try_from(limit).map_or(most, |limit| limit.min(most));
        let window_micros = window.map_or(self.window_micros, nearest_window);
        let extra = match self.algorithm {
            Algorithm::LeakyBucket => self.extra,
            // Of nothing there is no proportion.
            Algorithm::TokenBucket if limit > 0 && !self.is_closed() => {
                let scaled = u64::from(self.extra) * u64::from(limit) / u64::from(self.limit);
                u32::try_from(scaled).unwrap_or(LIMIT_MAX).clamp(1, LIMIT_MAX)
            }
            _ => limit,
        };
        let calendar = if window.is_some() { None } else { self.calendar };
        Self { limit, extra, window_micros, calendar, ..self }.cut_to_bound()
    }

    /// Cuts the burst or queue of a bucket that would take years to refill.
    fn cut_to_bound(self) -> Self {
        if self.is_closed() || self.bounded().is_ok() {
            return self;
        }
        // At least the limit, because a window is never longer than the longest.
        let units = u128::from(WINDOW_MILLIS_MAX * MICROS_PER_MILLI) * u128::from(self.limit)
            / u128::from(self.window_micros);
        Self { extra: u32::try_from(units).map_or(self.extra, |units| units.min(self.extra)), ..self }
    }
}

fn checked(field: Field, value: u64, min: u32, max: u32) -> Result<u32, InvalidInput> {
    u32::try_from(value)
        .ok()
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| InvalidInput::range(field, value, min.into(), max.into(), ""))
}

fn checked_window(window: Duration) -> Result<u64, InvalidInput> {
    let whole_millis = window.subsec_nanos().is_multiple_of(1_000_000);
    u64::try_from(window.as_millis())
        .ok()
        .filter(|millis| whole_millis && (WINDOW_MILLIS_MIN..=WINDOW_MILLIS_MAX).contains(millis))
        .map(|millis| millis * MICROS_PER_MILLI)
        .ok_or_else(|| {
            let unit = "milliseconds (366 days)";
            InvalidInput::range(
                Field::Window,
                format!("{window:?}"),
                WINDOW_MILLIS_MIN,
                WINDOW_MILLIS_MAX,
                unit,
            )
        })
}

/// The window that can be which is nearest to `window`.
fn nearest_window(window: Duration) -> u64 {
    let millis = u64::try_from(window.as_millis()).unwrap_or(WINDOW_MILLIS_MAX);
    millis.clamp(WINDOW_MILLIS_MIN, WINDOW_MILLIS_MAX) * MICROS_PER_MILLI
}
