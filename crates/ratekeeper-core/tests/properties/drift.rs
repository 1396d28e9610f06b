//! A year of greed: a client that always takes all there is gets what the
//! rate gives, to the unit.

use ratekeeper_core::{Algorithm, Calendar, CalendarUnit, Quota};

use crate::support::{Counter, DAY, START, quota};

/// Questions in a year.
const STEPS: u32 = 45_000;
/// The longest pause, in microseconds: so that a year passes, yet no bucket
/// below ever fills up, which would lose what it could not hold.
const PAUSE_MAX: u64 = 1_400_000_000;

/// Xorshift: instants that have nothing to do with the windows.
struct Random(u64);

impl Random {
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        1 + self.0 % most
    }
}

/// The odd rates: limit, window in milliseconds, and how much a bucket holds
/// in thousandths of the limit.
const RATES: [(u64, u64, u64); 4] =
    [(7, 3_000, 700_000), (3, 7, 300_000_000), (700_000, 1_000, 1_428_571), (1_000_000_000, 31 * DAY, 900)];

/// Takes all there is at `now`: in one charge, even where a leaky bucket's
/// largest cost would make several of it, or a year would take a day.
fn take_all(counter: &mut Counter, now: u64) -> u64 {
    let all = counter.status(now).remaining;
    if all > 0 {
        let cost = all.min(counter.quota.cost_max());
        assert!(counter.wait(now, cost).is_none(), "{cost} remained of {} at {now}", counter.quota);
        counter.state.charge(&counter.quota, now, all);
    }
    assert!(!counter.wait(now, 1).is_none(), "more than all of {} at {now}", counter.quota);
    all.into()
}

/// Takes all, again and again, and compares with the rate at every instant.
fn flows_exactly(quota: Quota, pause_max: u64) {
    let mut counter = Counter::new(quota);
    let mut random = Random(START);
    let (mut now, mut taken) = (START, 0);
    let (limit, window) = (u128::from(quota.limit()), u128::from(quota.window_micros()));
    for _ in 0..STEPS {
        taken += take_all(&mut counter, now);
        let refilled = u128::from(now - START) * limit / window;
        assert_eq!(u128::from(taken), u128::from(quota.capacity()) + refilled, "{quota} at {now}");
        // Only a bucket of one is ever full; its refill is whole microseconds.
        now += random.up_to(pause_max).min(counter.status(now).reset_after);
    }
    let days = (now - START) / (1_000 * DAY);
    assert!(days > 360, "{days} days of {quota}");
}

#[test]
fn a_token_bucket_gives_its_burst_and_its_rate_over_a_year_to_the_unit() {
    for (limit, millis, permille) in RATES {
        flows_exactly(quota(Algorithm::TokenBucket, limit, millis, Some(permille.max(1_000))), PAUSE_MAX);
    }
    // One a year takes some years to see.
    flows_exactly(quota(Algorithm::TokenBucket, 1, 366 * DAY, None), 20 * PAUSE_MAX);
}

#[test]
fn a_leaky_bucket_lets_its_queue_and_its_rate_through_over_a_year_to_the_unit() {
    for (limit, millis, permille) in RATES {
        flows_exactly(quota(Algorithm::LeakyBucket, limit, millis, Some(permille)), PAUSE_MAX);
    }
    flows_exactly(quota(Algorithm::LeakyBucket, 1, 366 * DAY, None), 20 * PAUSE_MAX);
}

/// A window opens with the first question after the last one ended, and each
/// gives its limit exactly.
#[test]
fn a_fixed_window_gives_its_limit_in_every_window_of_a_year() {
    let rates = RATES.iter().map(|(limit, millis, _)| (*limit, *millis, PAUSE_MAX));
    // Also pauses that leave several questions to a window.
    let dense = [(7, 3_000, 2_000_000), (3, 7, 5_000), (700_000, 1_000, 400_000)];
    let yearly = [(1, 366 * DAY, 20 * PAUSE_MAX)];
    for (limit, millis, pause_max) in rates.chain(dense).chain(yearly) {
        let mut counter = Counter::new(quota(Algorithm::FixedWindow, limit, millis, None));
        let mut random = Random(START);
        let (mut now, mut taken, mut windows, mut end) = (START, 0, 0, 0);
        for _ in 0..STEPS {
            if now >= end {
                end = now + counter.quota.window_micros();
                windows += 1;
            }
            taken += take_all(&mut counter, now);
            assert_eq!(taken, windows * limit, "{} at {now}", counter.quota);
            now += random.up_to(pause_max);
        }
    }
}

#[test]
fn a_calendar_window_gives_its_limit_in_every_minute_hour_and_day_of_a_year() {
    for unit in [CalendarUnit::Minute, CalendarUnit::Hour, CalendarUnit::Day] {
        let calendar = Calendar::with_offset(unit, -330).expect("an offset in range");
        let mut counter = Counter::new(Quota::calendar(7, calendar).expect("a small limit"));
        let mut random = Random(START);
        let (mut now, mut taken, mut windows, mut last) = (START, 0, 0, None);
        for _ in 0..STEPS {
            let window = (now - 330 * 60_000_000) / counter.quota.window_micros();
            if last.replace(window) != Some(window) {
                windows += 1;
            }
            taken += take_all(&mut counter, now);
            assert_eq!(taken, windows * 7, "{} at {now}", counter.quota);
            now += random.up_to(PAUSE_MAX);
        }
    }
}
