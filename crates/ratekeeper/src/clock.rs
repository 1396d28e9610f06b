//! The machine's time, fast to read.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper_core::{Clock, Timestamp};

/// How often the wall clock is asked, in microseconds.
const REFRESH_MICROS: u64 = 1_000_000;
/// How far back one look may set the clock, in microseconds.
const BACK_MICROS_MAX: i64 = 1_000;
/// A look that takes longer than this, in microseconds, tells nothing.
const LOOK_MICROS_MAX: u64 = 1_000;

/// The machine's time in microseconds since the epoch.
///
/// Reading the wall clock costs more than a whole decision should, so the
/// processor's counter is read instead and set against the wall clock once a
/// second. A wall clock that jumps ahead is followed at once; one that was set
/// back, by a millisecond a second at most. Counters never follow a clock back,
/// so such a step gives nobody room.
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
        // costs a microsecond in hours, which the look at the wall makes good.
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

    /// Microseconds since the clock was made, by the counter.
    #[inline]
    fn elapsed(&self) -> u64 {
        let ticks = self.counter.raw().saturating_sub(self.start);
        ((u128::from(ticks) * u128::from(self.scale)) >> 64) as u64
    }

    #[cold]
    fn look_at_the_wall(&self, elapsed: u64) {
        // Whoever comes second need not wait: the first one is doing it.
        let Ok(_guard) = self.refresh.try_lock() else { return };
        let wall = wall_micros();
        let after = self.elapsed();
        if after.saturating_sub(elapsed) > LOOK_MICROS_MAX {
            return; // Put to sleep between the two: look again next time.
        }
        self.follow(wall - after.cast_signed());
        self.refresh_at.store(after + REFRESH_MICROS, Ordering::Relaxed);
    }

    /// Follows the wall clock: ahead at once, back a little.
    fn follow(&self, offset: i64) {
        let least = self.offset.load(Ordering::Relaxed) - BACK_MICROS_MAX;
        self.offset.store(offset.max(least), Ordering::Relaxed);
    }
}

fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let elapsed = self.elapsed();
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

    #[test]
    fn it_shows_the_wall_clock() {
        let clock = SystemClock::new();
        let apart = clock.now().as_micros().cast_signed() - wall_micros();
        assert!(apart.abs() < 1_000_000, "{apart} us apart");
    }

    #[test]
    fn it_follows_a_jump_ahead_at_once_and_a_step_back_slowly() {
        let clock = SystemClock::new();
        let offset = || clock.offset.load(Ordering::Relaxed);
        let (start, hour) = (offset(), 3_600_000_000);
        clock.follow(start + hour);
        assert_eq!(offset(), start + hour, "the wall jumped ahead: follow");
        clock.follow(start);
        assert_eq!(offset(), start + hour - 1_000, "it was set back: a millisecond a second");
        clock.offset.store(start - hour, Ordering::Relaxed);
        clock.look_at_the_wall(clock.elapsed());
        let apart = clock.now().as_micros().cast_signed() - wall_micros();
        assert!(apart.abs() < 1_000_000, "{apart} us apart after a look");
    }
}
