//! The quotas as their definitions say, from a list of what was admitted.
//!
//! Nothing here is taken from the algorithms under test: every question goes
//! through the whole list again, in exact fractions of 128-bit integers.

use ratekeeper_core::{Algorithm, Quota};

/// Everything admitted so far: instant and units, in order.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    quota: Quota,
    pub(crate) admitted: Vec<(i128, i128)>,
}

impl Naive {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { quota, admitted: Vec::new() }
    }

    pub(crate) fn admit(&mut self, now: u64, units: u32) {
        self.admitted.push((now.into(), units.into()));
    }

    /// Whether the quota has room for `cost` more.
    pub(crate) fn fits(&self, now: u64, cost: u32) -> bool {
        let (now, cost) = (i128::from(now), i128::from(cost));
        match self.quota.algorithm() {
            Algorithm::FixedWindow => self.in_fixed_window(now) + cost <= self.limit(),
            Algorithm::SlidingWindow => self.fits_sliding_window(now, cost),
            Algorithm::SlidingLog | Algorithm::Concurrency => {
                self.in_trailing_window(now) + cost <= self.limit()
            }
            Algorithm::TokenBucket => self.fits_token_bucket(now, cost),
            Algorithm::LeakyBucket => self.fits_leaky_bucket(now, cost),
        }
    }

    fn limit(&self) -> i128 {
        self.quota.limit().into()
    }

    fn window(&self) -> i128 {
        self.quota.window_micros().into()
    }

    /// A request that finds no window under way starts one; on the calendar
    /// the windows are there already.
    fn in_fixed_window(&self, now: i128) -> i128 {
        if self.quota.is_clocked() {
            // Minutes, hours and days all have the same length.
            let minutes = self.quota.calendar_window().map_or(0, ratekeeper_core::Calendar::offset_minutes);
            let offset = i128::from(minutes) * 60_000_000;
            let index = |at: i128| (at + offset).div_euclid(self.window());
            return self
                .admitted
                .iter()
                .filter(|(at, _)| index(*at) == index(now))
                .map(|(_, units)| units)
                .sum();
        }
        let (mut end, mut used) = (0, 0);
        for (at, units) in &self.admitted {
            if *at >= end {
                (end, used) = (at + self.window(), 0);
            }
            used += units;
        }
        if now < end { used } else { 0 }
    }

    /// What is less than a window old. A lease is a window, too.
    fn in_trailing_window(&self, now: i128) -> i128 {
        self.admitted.iter().filter(|(at, _)| now - at < self.window()).map(|(_, units)| units).sum()
    }

    /// The windows of the counter itself: start of the present one, units of
    /// the one before it, units of the present one. A new row of windows starts
    /// with the first request after a whole window without any.
    pub(crate) fn own_windows(&self, now: i128) -> (i128, i128, i128) {
        let (mut start, mut previous, mut current) = (i128::MIN / 2, 0, 0);
        for (at, units) in self.admitted.iter().copied().chain([(now, 0)]) {
            if at - start >= 2 * self.window() {
                (start, previous, current) = (at, 0, 0);
            } else if at - start >= self.window() {
                (start, previous, current) = (start + self.window(), current, 0);
            }
            current += units;
        }
        (start, previous, current)
    }

    fn fits_sliding_window(&self, now: i128, cost: i128) -> bool {
        let (start, previous, current) = self.own_windows(now);
        let covered = self.window() - (now - start);
        let faded = (previous * covered).div_euclid(self.window());
        faded + current + cost <= self.limit()
    }

    /// In every interval that ends now: no more than the burst and what is
    /// refilled in that time.
    fn fits_token_bucket(&self, now: i128, cost: i128) -> bool {
        let burst = i128::from(self.quota.capacity()) * self.window();
        let mut units = cost;
        let mut fits = units * self.window() <= burst;
        for (at, earlier) in self.admitted.iter().rev() {
            units += earlier;
            fits &= units * self.window() <= burst + (now - at) * self.limit();
        }
        fits
    }

    /// What came before must have drained down to the queue. Instants are in
    /// `1/limit` of a microsecond.
    fn fits_leaky_bucket(&self, now: i128, cost: i128) -> bool {
        let mut drained_at = 0;
        for (at, units) in &self.admitted {
            drained_at = drained_at.max(at * self.limit()) + units * self.window();
        }
        let queue = i128::from(self.quota.queue()) * self.window();
        cost <= self.limit() && drained_at - now * self.limit() <= queue
    }
}
