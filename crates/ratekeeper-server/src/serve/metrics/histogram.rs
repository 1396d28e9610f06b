//! Counts by size: one atomic addition for the bucket and one for the sum.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sums are kept in millionths, so that they can be added atomically.
const SUM_SCALE: f64 = 1e6;

/// Counts in `BUCKETS` buckets, and those beyond the last.
#[derive(Debug)]
pub(super) struct Histogram<const BUCKETS: usize> {
    counts: [AtomicU64; BUCKETS],
    beyond: AtomicU64,
    sum: AtomicU64,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            beyond: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    #[inline]
    pub(super) fn observe(&self, ends: &[f64; BUCKETS], value: f64) {
        let bucket = ends.iter().position(|end| value <= *end);
        bucket.map_or(&self.beyond, |bucket| &self.counts[bucket]).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * SUM_SCALE) as u64, Ordering::Relaxed);
    }

    /// The sum, and how many there are up to each end, those beyond all of them last.
    pub(super) fn read(&self, ends: &[f64; BUCKETS]) -> (f64, Vec<(f64, u64)>) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = ends.iter().zip(&self.counts).map(|(end, count)| (*end, read(count)));
        let buckets = counts.chain([(f64::INFINITY, read(&self.beyond))]).collect();
        (read(&self.sum) as f64 / SUM_SCALE, buckets)
    }
}
