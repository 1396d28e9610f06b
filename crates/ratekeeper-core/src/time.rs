//! Instants and the clocks that give them.
//!
//! Everything in this crate takes the instant as an argument. A [`Clock`] is
//! what a store asks for it; the one that follows the machine's time lives
//! with the stores, the one that tests turn by hand lives here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Microseconds in one millisecond.
pub(crate) const MICROS_PER_MILLI: u64 = 1_000;
/// Microseconds in one second.
pub(crate) const MICROS_PER_SECOND: u64 = 1_000_000;

/// An instant: whole microseconds since 1970-01-01T00:00:00Z.
///
/// Any `u64` is accepted, but instants beyond [`Timestamp::MAX`] are read as
/// `MAX`, which keeps every sum of an instant and a window exact in a double
/// as well (a Lua script has no other numbers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last instant the arithmetic is exact for: 2^52 µs, in the year 2112.
    pub const MAX: Timestamp = Timestamp(1 << 52);

    /// The instant `micros` microseconds after the epoch, at most [`Self::MAX`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// The instant `secs` seconds after the epoch, at most [`Self::MAX`].
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_micros(secs.saturating_mul(MICROS_PER_SECOND))
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The instant `by` later, at most [`Self::MAX`].
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        Self::from_micros(self.0.saturating_add(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / MICROS_PER_SECOND, self.0 % MICROS_PER_SECOND)
    }
}

/// Where a store gets the instant of a decision from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// A clock that stands still until it is told to move: for tests, yours too.
///
/// Clones share one time.
///
/// ```
/// use ratekeeper_core::{Clock, ManualClock, Timestamp};
/// use std::time::Duration;
///
/// let clock = ManualClock::starting_at(Timestamp::from_secs(1_000));
/// clock.advance(Duration::from_millis(1_500));
/// assert_eq!(clock.now(), Timestamp::from_micros(1_001_500_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `at`.
    #[must_use]
    pub fn starting_at(at: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(at.0)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().after(by));
    }

    /// Sets the clock, backwards too: machines' clocks do that.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// How long until something passes: at once, after a while, or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait(u64);

impl Wait {
    /// It would pass at once.
    pub const NONE: Wait = Wait(0);
    /// It would never pass, however long one waits.
    pub const NEVER: Wait = Wait(u64::MAX);

    /// A wait of `micros` microseconds.
    #[must_use]
    pub const fn micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Whether it passes at once.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether no wait is long enough.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }

    /// The wait in microseconds; `None` if it is for ever.
    #[must_use]
    pub const fn as_micros(self) -> Option<u64> {
        if self.is_never() { None } else { Some(self.0) }
    }

    /// The wait as a duration; `None` if it is for ever.
    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        self.as_micros().map(Duration::from_micros)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_micros() {
            None => f.write_str("never"),
            Some(micros) => write_micros(f, micros),
        }
    }
}

/// Writes a length of time the way people say it: `1m 30s`, `250ms`, `7us`.
pub(crate) fn write_micros(f: &mut fmt::Formatter<'_>, micros: u64) -> fmt::Result {
    const UNITS: [(&str, u64); 6] = [
        ("d", 86_400 * MICROS_PER_SECOND),
        ("h", 3_600 * MICROS_PER_SECOND),
        ("m", 60 * MICROS_PER_SECOND),
        ("s", MICROS_PER_SECOND),
        ("ms", MICROS_PER_MILLI),
        ("us", 1),
    ];
    let mut rest = micros;
    let mut written = 0;
    for (unit, size) in UNITS {
        let count = rest / size;
        rest %= size;
        // Two units are as precise as a person needs; the rest is noise.
        if count > 0 && written < 2 {
            let space = if written > 0 { " " } else { "" };
            write!(f, "{space}{count}{unit}")?;
            written += 1;
        }
    }
    if written == 0 { f.write_str("0s") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_read_like_speech() {
        let cases = [
            (0, "0s"),
            (7, "7us"),
            (250_000, "250ms"),
            (90_000_000, "1m 30s"),
            (86_400_000_001, "1d 1us"),
            (3_661_000_001, "1h 1m"),
        ];
        for (micros, text) in cases {
            assert_eq!(Wait::micros(micros).to_string(), text);
        }
        assert_eq!(Wait::NEVER.to_string(), "never");
        assert!(Wait::NEVER > Wait::micros(1));
    }

    #[test]
    fn instants_stay_in_the_exact_range() {
        assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_micros(1_500_000).to_string(), "1.500000");
    }

    #[test]
    fn clones_of_a_manual_clock_share_one_time() {
        let clock = ManualClock::default();
        clock.clone().advance(Duration::from_secs(2));
        assert_eq!(clock.now(), Timestamp::from_secs(2));
    }
}
