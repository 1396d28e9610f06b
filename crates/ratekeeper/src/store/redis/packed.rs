//! The records in a packed value, one after the other.

use ratekeeper_core::algorithm::{Bucket, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket};
use ratekeeper_core::{Algorithm, State};

use super::answer::{Reader, garbled, whole};
use super::script::{B_BYTES, FIXED_BYTES, MOVING_BYTES, TTL_BYTES};
use crate::store::StoreError;

/// The counters of a value, and behind them the names of their quotas.
#[derive(Debug)]
pub(super) struct Records<'a> {
    left: u8,
    fixed: Reader<'a>,
    numbers: Reader<'a>,
    moving: Reader<'a>,
    /// For each counter a length and a name; nothing if no quota has one.
    names: Reader<'a>,
}

/// One counter as it is stored. What the numbers mean depends on the algorithm; whether they mean anything matters to
/// the checks that count in it alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedRecord {
    tag: u32,
    window: f64,
    pub(super) limit: u32,
    pub(super) burst: u32,
    a: f64,
    b: f64,
    c: u32,
}

impl<'a> Records<'a> {
    pub(super) fn of(value: &'a [u8]) -> Result<Self, StoreError> {
        let mut reader = Reader(value);
        let [_, left, _, _] = reader.array()?;
        let count = usize::from(left);
        let fixed = Reader(reader.take(FIXED_BYTES * count)?);
        let numbers = Reader(reader.take(B_BYTES * count)?);
        reader.take(TTL_BYTES)?;
        let moving = Reader(reader.take(MOVING_BYTES * count)?);
        Ok(Self { left, fixed, numbers, moving, names: reader })
    }

    /// The next record, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<PackedRecord>, StoreError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let Self { fixed, numbers, moving, .. } = self;
        let (tag, window, limit, burst) = (fixed.u32()?, fixed.double()?, fixed.u32()?, fixed.u32()?);
        let (a, b, c) = (moving.double()?, numbers.double()?, moving.u32()?);
        Ok(Some(PackedRecord { tag, window, limit, burst, a, b, c }))
    }

    /// The name of the record that came last, to be asked for once each; empty if its quota has none.
    pub(super) fn name(&mut self) -> Result<&'a [u8], StoreError> {
        if self.names.0.is_empty() {
            return Ok(&[]);
        }
        let length = self.names.u8()?;
        self.names.take(length.into())
    }
}

impl PackedRecord {
    /// Whether it is the counter of this tag and window.
    pub(super) fn is(&self, tag: u32, window: u64) -> bool {
        self.tag == tag && whole(self.window).is_ok_and(|own| own == window)
    }

    /// The number of its window; 0 if it has all of them.
    pub(super) fn window(&self) -> Result<u64, StoreError> {
        whole(self.window)
    }

    /// The algorithm that its tag says.
    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| *algorithm as u32 == self.tag % 8)
    }

    /// The length of a fixed window that has begun.
    pub(super) fn length(&self) -> Result<u64, StoreError> {
        whole(self.b)
    }

    /// What it says of an algorithm whose counters are packed.
    pub(super) fn state(&self, algorithm: Algorithm) -> Result<State, StoreError> {
        let Self { limit, c, .. } = *self;
        let (window, a, b) = (whole(self.window)?, whole(self.a)?, whole(self.b)?);
        let bucket = Bucket { full_at: a, remainder: c, denominator: limit, ahead: b };
        Ok(match algorithm {
            Algorithm::FixedWindow => State::FixedWindow(FixedWindow { end: a, length: b, count: c }),
            Algorithm::SlidingWindow => {
                let current = u32::try_from(b).map_err(|_| garbled())?;
                State::SlidingWindow(SlidingWindow { start: a, window, previous: c, current })
            }
            Algorithm::TokenBucket => State::TokenBucket(TokenBucket(bucket)),
            Algorithm::LeakyBucket => State::LeakyBucket(LeakyBucket(bucket)),
            Algorithm::SlidingLog | Algorithm::Concurrency => return Err(garbled()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000;

    /// A value with one fixed window.
    fn value(window: f64, end: f64) -> Vec<u8> {
        let fixed =
            [&1_u32.to_le_bytes()[..], &window.to_le_bytes(), &5_u32.to_le_bytes(), &5_u32.to_le_bytes()];
        let moving = [&end.to_le_bytes()[..], &3_u32.to_le_bytes()];
        let length = (HOUR as f64).to_le_bytes();
        [&[2, 1, 0, 0][..], &fixed.concat(), &length, &end.to_le_bytes(), &moving.concat()].concat()
    }

    fn record(value: &[u8]) -> PackedRecord {
        Records::of(value).unwrap().next().unwrap().unwrap()
    }

    #[test]
    fn a_window_that_is_almost_another_is_another() {
        assert!(record(&value(HOUR as f64, 1e15)).is(1, HOUR));
        for window in [(HOUR as f64).next_up(), (HOUR as f64).next_down(), f64::NAN, -1.0, 1.5e300] {
            assert!(!record(&value(window, 1e15)).is(1, HOUR), "{window}");
        }
    }

    #[test]
    fn numbers_that_no_script_writes_matter_when_they_are_asked_for() {
        for end in [f64::NAN, f64::INFINITY, -1.0, 0.5, 1.5e300] {
            let value = value(HOUR as f64, end);
            assert!(record(&value).state(Algorithm::FixedWindow).is_err(), "{end}");
        }
        assert!(record(&value(HOUR as f64, 1e15)).state(Algorithm::FixedWindow).is_ok());
    }
}
