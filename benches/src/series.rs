//! One figure, measured once per round: its median and how far it strayed.

use std::time::Duration;

/// Checks per second, one entry per round.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

/// How one series compares with another.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// The ratio of the medians: what the tables give.
    pub median: f64,
    /// The least ratio within one round.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Series {
    /// Adds the figure of a round.
    pub fn push(&mut self, rate: f64) {
        self.0.push(rate);
    }

    /// The median; with an even number of rounds the mean of the middle two.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            rounds if rounds % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    /// The slowest round.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The fastest round.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// How many times as fast as `other`.
    #[must_use]
    pub fn over(&self, other: &Self) -> Ratio {
        let rounds = || self.0.iter().zip(&other.0).map(|(own, other)| own / other);
        Ratio {
            median: self.median() / other.median(),
            min: rounds().fold(f64::INFINITY, f64::min),
            max: rounds().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// What so many in a hundred do not exceed. Changes the order.
#[must_use]
pub fn percentile(waits: &mut [Duration], percent: usize) -> Duration {
    if waits.is_empty() {
        return Duration::ZERO;
    }
    let place = (waits.len() * percent / 100).min(waits.len() - 1);
    *waits.select_nth_unstable(place).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        let series = Series(vec![3.0, 1.0, 2.0]);
        assert_eq!((series.median(), series.min(), series.max()), (2.0, 1.0, 3.0));
        assert_eq!(Series(vec![1.0, 2.0]).median(), 1.5);
        let ratio = series.over(&Series(vec![1.0, 1.0, 4.0]));
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 0.5, 3.0));
    }

    #[test]
    fn percentiles() {
        let mut waits: Vec<_> = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(percentile(&mut waits, 50), Duration::from_micros(51));
        assert_eq!(percentile(&mut waits, 99), Duration::from_micros(100));
        assert_eq!(percentile(&mut [], 50), Duration::ZERO);
    }
}
