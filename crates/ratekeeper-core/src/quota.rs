//! How much in how long: a [`Quota`] that cannot be invalid, and [`Quotas`],
//! the one or several of them that a rule has.

mod text;

use std::fmt;
use std::time::Duration;

use crate::algorithm::plus_units;
use crate::calendar::Calendar;
use crate::error::{Field, InvalidInput};
use crate::time::{MICROS_PER_MILLI, MICROS_PER_SECOND};

/// The largest limit, burst, queue and cost: 10^9 units.
pub const LIMIT_MAX: u32 = 1_000_000_000;
/// The largest limit of the algorithms that remember every request
/// (`sliding_log`, `concurrency`): their state grows with the limit.
pub const ENTRIES_MAX: u32 = 10_000;
/// The shortest window, in milliseconds.
pub const WINDOW_MILLIS_MIN: u64 = 1;
/// The longest window, in milliseconds: 366 days.
pub const WINDOW_MILLIS_MAX: u64 = 366 * 86_400 * 1_000;

/// How a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// A counter that starts again when its window ends.
    FixedWindow = 1,
    /// Two counters; the older fades as the window slides over it.
    SlidingWindow = 2,
    /// Every request remembered until it is one window old: exact.
    SlidingLog = 3,
    /// Tokens that refill steadily, up to a burst (GCRA inside).
    TokenBucket = 4,
    /// A steady drip without bursts: requests wait their turn.
    LeakyBucket = 5,
    /// How many may be under way at once, each with a lease that lapses.
    Concurrency = 6,
}

impl Algorithm {
    /// All six.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::Concurrency,
    ];

    /// The name people write: `token_bucket`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::SlidingLog => "sliding_log",
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::LeakyBucket => "leaky_bucket",
            Algorithm::Concurrency => "concurrency",
        }
    }

    const fn limit_max(self) -> u32 {
        match self {
            Algorithm::SlidingLog | Algorithm::Concurrency => ENTRIES_MAX,
            _ => LIMIT_MAX,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Algorithm {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.as_str() == text).ok_or_else(|| {
            let names = Algorithm::ALL.map(Algorithm::as_str).join(", ");
            InvalidInput::new(Field::Algorithm, format!("`{text}`"), format!("one of {names}"))
        })
    }
}

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

/// How many windows of one quota a key may be counted in at a time. Logs and leases do not count.
pub const WINDOWS_MAX: usize = 8;

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
        format!("at most {WINDOWS_MAX} in which something counts at a time"),
    )
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

/// The quotas of one rule: a single one, or several that all must hold.
///
/// ```
/// use ratekeeper_core::Quotas;
///
/// let tiers: Quotas = "{rps=20, rpm=1000, rph=50000, rpd=100000}".parse()?;
/// assert_eq!(tiers.iter().count(), 4);
/// # Ok::<(), ratekeeper_core::InvalidInput>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas(Vec<(&'static str, Quota)>);

/// The tiers people name, and their windows in seconds.
const TIERS: [(&str, u64); 4] = [("rps", 1), ("rpm", 60), ("rph", 3_600), ("rpd", 86_400)];

impl Quotas {
    /// Quotas for some of requests per second, minute, hour and day.
    ///
    /// # Errors
    /// If no tier is given or a limit is out of range.
    pub fn tiers(algorithm: Algorithm, limits: &[(&str, u64)]) -> Result<Self, InvalidInput> {
        let mut quotas: Vec<(&'static str, Quota)> = Vec::new();
        for &(name, limit) in limits {
            let Some((name, secs)) = TIERS.into_iter().find(|(tier, _)| *tier == name) else {
                return Err(InvalidInput::new(Field::QuotaText, format!("`{name}`"), "rps, rpm, rph or rpd"));
            };
            if quotas.iter().any(|(known, _)| *known == name) {
                let got = format!("{name} twice");
                return Err(InvalidInput::new(Field::QuotaText, got, "each tier once"));
            }
            quotas.push((name, Quota::new(algorithm, limit, Duration::from_secs(secs))?));
        }
        if quotas.is_empty() {
            return Err(InvalidInput::new(Field::QuotaText, "no tier", "at least one of rps, rpm, rph, rpd"));
        }
        Ok(Self(quotas))
    }

    /// Each quota with its name within the rule; a single one has none ("").
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Quota)> {
        self.0.iter().copied()
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self(vec![("", quota)])
    }
}

const fn seconds(secs: u64) -> u64 {
    secs * MICROS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_named_in_errors() {
        let second = Duration::from_secs(1);
        let cases = [
            (
                Quota::token_bucket(u64::MAX, second),
                "limit: got 18446744073709551615; expected a whole number from 0 to 1000000000",
            ),
            (
                Quota::new(Algorithm::SlidingLog, 10_001, second),
                "limit: got 10001; expected a whole number from 0 to 10000",
            ),
            (Quota::new(Algorithm::Concurrency, 10_001, second), "from 0 to 10000"),
            (
                Quota::token_bucket(1, Duration::ZERO),
                "window: got 0ns; expected a whole number from 1 to 31622400000 milliseconds",
            ),
            (
                Quota::token_bucket(1, Duration::from_micros(1_500)),
                "window: got 1.5ms; expected a whole number",
            ),
            (Quota::token_bucket(1, Duration::MAX), "366 days"),
            (Quota::token_bucket(1, second).and_then(|q| q.with_burst(0)), "burst: got 0"),
            (
                Quota::token_bucket(1, second).and_then(|q| q.with_queue(1)),
                "queue: got a queue on token_bucket; expected leaky_bucket",
            ),
            (
                Quota::new(Algorithm::FixedWindow, 1, second).and_then(|q| q.with_burst(1)),
                "burst: got a burst on fixed_window; expected token_bucket",
            ),
        ];
        for (result, expected) in cases {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} should contain {expected:?}");
        }
    }

    #[test]
    fn an_override_keeps_the_shape_of_a_quota() {
        let bucket: Quota = "10/s burst 20".parse().unwrap();
        assert_eq!(bucket.overridden(100, None).to_string(), "100/s burst 200");
        let month: Quota = "10 per calendar month".parse().unwrap();
        assert_eq!(month.overridden(5, None).to_string(), "5/calendar month");
        let minute = Some(Duration::from_secs(60));
        assert_eq!(month.overridden(5, minute).to_string(), "5/min fixed_window");
        let drip: Quota = "5/s leaky_bucket queue 3".parse().unwrap();
        assert_eq!(drip.overridden(9, None).to_string(), "9/s leaky_bucket queue 3");
        let aligned: Quota = "10/15min fixed_window aligned".parse().unwrap();
        assert_eq!(aligned.overridden(5, None).to_string(), "5/15min fixed_window aligned");
        assert_eq!(aligned.overridden(5, minute).to_string(), "5/min fixed_window aligned");
    }

    #[test]
    fn an_override_beyond_a_bound_means_the_bound() {
        let wild = |text: &str, limit, window| {
            let quota = text.parse::<Quota>().unwrap().overridden(limit, window);
            (quota.limit(), quota.capacity(), quota.window().as_millis())
        };
        let longest = u128::from(WINDOW_MILLIS_MAX);
        assert_eq!(wild("5/s sliding_log", 10_001, None), (10_000, 10_000, 1_000));
        assert_eq!(wild("5/s", u64::MAX, Some(Duration::ZERO)), (LIMIT_MAX, LIMIT_MAX, 1));
        assert_eq!(
            wild("5/s burst 50", 7, Some(Duration::MAX)),
            (7, 7, longest),
            "a burst of a year's refill"
        );
        assert_eq!(wild("5/s leaky_bucket queue 9", 7, Some(Duration::MAX)), (7, 8, longest));
        for algorithm in Algorithm::ALL {
            let closed = Quota::new(algorithm, 5, Duration::from_secs(1)).unwrap().overridden(0, None);
            assert!(closed.is_closed(), "{algorithm}");
            assert_eq!((closed.capacity(), closed.cost_max()), (0, 0), "{algorithm}");
            let plain = Quota::new(algorithm, 0, Duration::from_secs(1)).unwrap();
            assert_eq!((plain.is_closed(), plain), (true, closed), "{algorithm}: said by the quota itself");
            let opened = Quota::new(algorithm, 5, Duration::from_secs(1)).unwrap();
            assert_eq!(plain.overridden(5, None), opened, "{algorithm}: an override opens it");
        }
    }
}
