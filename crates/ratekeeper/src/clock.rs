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
/// A wall clock that ran evenly for so long is believed, in microseconds.
const EVEN_MICROS_MIN: u64 = 60_000_000;
/// How far a wall clock that runs evenly may stray from the counter meanwhile, in microseconds. One that
/// is being corrected strays by half a millisecond a second at most.
const STRAY_MICROS_MAX: u64 = 100_000;
/// A look that takes longer than this, in microseconds, tells nothing.
const LOOK_MICROS_MAX: u64 = 1_000;

/// The machine's time in microseconds since the epoch.
///
/// Reading the wall clock costs more than a whole decision should, so the
/// processor's counter is read instead and set against the wall clock once a
/// second. A wall clock that jumps ahead is followed at once; one that was set
/// back, by a millisecond a second at most, until it has run evenly with the counter for
/// a minute. Then it is believed: otherwise a jump of a day would take years to undo. Counters never
/// follow a small step back, and re-base a large one, so neither gives anybody room.
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
    refresh: Mutex<Steady>,
}

/// Since when the wall clock has run evenly with the counter.
#[derive(Clone, Copy, Debug)]
struct Steady {
    /// Wall time minus counter time then, in microseconds.
    offset: i64,
    /// Counter time, in microseconds.
    since: u64,
    /// What the last look found, and when.
    last: (i64, u64),
}

impl Steady {
    /// Takes a look at the wall into account; says whether it has run evenly for long enough.
    fn is_believed(&mut self, offset: i64, at: u64) -> bool {
        let (before, looked_at) = self.last;
        // A second look after a second: as much as a correction takes back and a look is inexact.
        let seconds = 1 + at.saturating_sub(looked_at) / REFRESH_MICROS;
        let back = BACK_MICROS_MAX.saturating_mul(seconds.cast_signed());
        self.last = (offset, at);
        if offset.abs_diff(self.offset) > STRAY_MICROS_MAX || before.saturating_sub(offset) > back {
            (self.offset, self.since) = (offset, at);
        }
        at.saturating_sub(self.since) >= EVEN_MICROS_MIN
    }
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
        let offset = wall_micros();
        Self {
            counter,
            start,
            scale,
            offset: AtomicI64::new(offset),
            refresh_at: AtomicU64::new(REFRESH_MICROS),
            refresh: Mutex::new(Steady { offset, since: 0, last: (offset, 0) }),
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
        let Ok(mut steady) = self.refresh.try_lock() else { return };
        let wall = wall_micros();
        let after = self.elapsed();
        if after.saturating_sub(elapsed) > LOOK_MICROS_MAX {
            return; // Put to sleep between the two: look again next time.
        }
        self.follow(&mut steady, wall - after.cast_signed(), after);
        self.refresh_at.store(after + REFRESH_MICROS, Ordering::Relaxed);
    }

    /// Follows the wall clock: ahead at once, back a little, and all the way if it is believed.
    fn follow(&self, steady: &mut Steady, offset: i64, at: u64) {
        let least = self.offset.load(Ordering::Relaxed) - BACK_MICROS_MAX;
        let followed = if steady.is_believed(offset, at) { offset } else { offset.max(least) };
        self.offset.store(followed, Ordering::Relaxed);
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

    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;

    /// Shows a clock the wall once a second, as if `wall(second)` were how far it is ahead of the counter; what the
    /// clock makes of it, relative to when it was made.
    fn followed(seconds: std::ops::Range<u64>, wall: impl Fn(u64) -> i64) -> Vec<i64> {
        let clock = SystemClock::new();
        let start = clock.offset.load(Ordering::Relaxed);
        let mut steady = Steady { offset: start, since: 0, last: (start, 0) };
        let look = |second: u64| {
            clock.follow(&mut steady, start + wall(second), second * SECOND.unsigned_abs());
            clock.offset.load(Ordering::Relaxed) - start
        };
        seconds.map(look).collect()
    }

    #[test]
    fn a_jump_ahead_is_undone_when_the_wall_has_run_evenly_for_a_minute() {
        let shown = followed(0..1_000, |second| if (100..200).contains(&second) { DAY } else { 0 });
        assert_eq!(shown[100..200], [DAY; 100], "the wall jumped ahead: follow");
        for (after, shown) in shown[200..260].iter().enumerate() {
            let slewed = (after as i64 + 1) * 1_000;
            assert_eq!(*shown, DAY - slewed, "it was set back: a millisecond a second");
        }
        assert_eq!(shown[260..], [0; 740], "it has run evenly for a minute");
    }

    #[test]
    fn a_small_step_back_is_followed_as_slowly_as_a_large_one() {
        let back = -90_000;
        let shown = followed(0..1_000, |second| if second < 500 { 0 } else { back });
        for (after, shown) in shown[500..560].iter().enumerate() {
            assert_eq!(*shown, -1_000 * (after as i64 + 1), "{after} s after the step");
        }
        assert_eq!(shown[560..], [back; 440], "it has run evenly for a minute");
    }

    #[test]
    fn a_wall_that_is_being_corrected_runs_evenly() {
        let corrected = |second: u64| second as i64 * -500;
        let shown = followed(0..1_000, |second| corrected(second) + if second == 100 { DAY } else { 0 });
        assert_eq!(shown[161..], (161..1_000).map(corrected).collect::<Vec<_>>());
    }

    #[test]
    fn a_wall_that_keeps_jumping_is_not_believed() {
        let shown =
            followed(0..10_000, |second| if second < 100 { DAY } else { (second as i64 / 59 % 2) * SECOND });
        let slewed = DAY - 9_900 * 1_000;
        assert_eq!(shown.last(), Some(&slewed));
    }

    #[test]
    fn it_looks_at_the_wall() {
        let clock = SystemClock::new();
        let (start, hour) = (clock.offset.load(Ordering::Relaxed), 3_600 * SECOND);
        clock.offset.store(start - hour, Ordering::Relaxed);
        clock.look_at_the_wall(clock.elapsed());
        let apart = clock.now().as_micros().cast_signed() - wall_micros();
        assert!(apart.abs() < 1_000_000, "{apart} us apart after a look");
    }
}
