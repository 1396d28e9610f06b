//! The machine's time, fast to read and never running backwards.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper_core::{Clock, Timestamp};

/// How often the wall clock is asked, in microseconds.
const REFRESH_MICROS: u64 = 1_000_000;
/// A wall clock that was set back is followed by running this much slower.
const SLEW_DIVISOR: i64 = 1_000;

/// The machine's time in microseconds since the epoch.
///
/// Reading the wall clock costs more than a whole decision should, so the
/// processor's counter is read instead and set against the wall clock once a
/// second. A wall clock that jumps ahead is followed at once; one that was set
/// back is followed by running 0.1 % slow, so time never runs backwards.
pub struct SystemClock {
    counter: quanta::Clock,
    /// The counter when the clock was made.
    start: u64,
    /// Microseconds per tick, in units of 2^-64.
    scale: u64,
    /// Wall time minus counter time, in microseconds. Written by whoever holds
    /// `refresh`, read by all.
    offset: AtomicI64,
    /// Counter time of the next look at the wall clock.
    refresh_at: AtomicU64,
    refresh: Mutex<()>,
}

impl SystemClock {
    /// A clock that shows the machine's time.
    #[must_use]
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let start = counter.raw();
        // One multiplication then turns ticks into microseconds. Ticks are never
        // longer than a microsecond, so the scale is below 2^64; cutting it
        // costs 1 us in 13 hours, which the look at the wall makes good.
        let micros_per_2_44_ticks = u128::from(counter.delta_as_nanos(0, 1 << 44)) / 1_000;
        let scale = u64::try_from(micros_per_2_44_ticks << 20).unwrap_or(u64::MAX);
        let offset = AtomicI64::new(wall_micros());
        Self {
            counter,
            start,
            scale,
            offset,
            refresh_at: AtomicU64::new(REFRESH_MICROS),
            refresh: Mutex::new(()),
        }
    }

    #[cold]
    fn look_at_the_wall(&self, elapsed: u64) {
        // Whoever comes second need not wait: the first one is doing it.
        let Ok(_guard) = self.refresh.try_lock() else { return };
        let since = elapsed.saturating_sub(self.refresh_at.load(Ordering::Relaxed)) + REFRESH_MICROS;
        let slowest = self.offset.load(Ordering::Relaxed) - since.cast_signed() / SLEW_DIVISOR;
        let wall = wall_micros() - elapsed.cast_signed();
        self.offset.store(wall.max(slowest), Ordering::Relaxed);
        self.refresh_at.store(elapsed + REFRESH_MICROS, Ordering::Relaxed);
    }
}

fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let ticks = self.counter.raw().saturating_sub(self.start);
        let elapsed = ((u128::from(ticks) * u128::from(self.scale)) >> 64) as u64;
        if elapsed >= self.refresh_at.load(Ordering::Relaxed) {
            self.look_at_the_wall(elapsed);
        }
        Timestamp::from_micros(elapsed.wrapping_add_signed(self.offset.load(Ordering::Relaxed)))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_after(clock: &SystemClock, offset: i64) -> i64 {
        clock.offset.store(offset, Ordering::Relaxed);
        clock.look_at_the_wall(REFRESH_MICROS);
        clock.offset.load(Ordering::Relaxed)
    }

    #[test]
    fn it_shows_the_wall_clock() {
        let clock = SystemClock::new();
        let apart = clock.now().as_micros().cast_signed() - wall_micros();
        assert!(apart.abs() < 1_000_000, "{apart} us apart");
    }

    #[test]
    fn it_follows_a_jump_ahead_at_once_and_a_step_back_slowly() {
        let clock = SystemClock::new();
        let true_offset = wall_micros() - REFRESH_MICROS.cast_signed();
        let hour = 3_600_000_000;

        let ahead = shown_after(&clock, true_offset - hour);
        assert!((ahead - true_offset).abs() < 1_000_000, "the wall jumped ahead: follow");

        let clock = SystemClock::new();
        let behind = shown_after(&clock, true_offset + hour);
        assert_eq!(behind, true_offset + hour - 1_000, "one millisecond a second, no more");
    }
}
