//! A counter in 40 bytes: its fingerprint and its state, packed.

use ratekeeper_core::algorithm::{Bucket, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket};
use ratekeeper_core::{Algorithm, Quota, State, Verdict, WINDOW_MILLIS_MAX};

use super::fingerprint::Fingerprint;
use super::shard::RuleNumber;

/// How much of its quota a counter has used, in halvings of what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pressure(u8);

impl Pressure {
    /// Nothing is left, or not enough: the counter is limiting somebody.
    pub(super) const EXHAUSTED: Pressure = Pressure((1 << PRESSURE_BITS) - 1);

    /// The number of it, for whoever keeps it elsewhere.
    #[cfg(feature = "data-dir")]
    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    /// The pressure with a number; one that is none means exhausted.
    #[cfg(feature = "data-dir")]
    pub(super) fn from_bits(bits: u8) -> Self {
        Self(bits).min(Self::EXHAUSTED)
    }

    #[inline]
    pub(super) fn of(verdict: &Verdict) -> Self {
        if !verdict.is_admitted() {
            return Self::EXHAUSTED;
        }
        Self::left(verdict.remaining(), verdict.quota())
    }

    #[inline]
    pub(super) fn left(remaining: u32, quota: &Quota) -> Self {
        match remaining.checked_ilog2() {
            None => Self::EXHAUSTED,
            // At most 29: a capacity is at most 10^9.
            Some(left) => Self(quota.capacity().ilog2().saturating_sub(left) as u8),
        }
    }
}

/// Who goes first: the counter that has used least, then the one that ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(u64);

// The bits of `Slot::rest`, from the lowest: a length in milliseconds, whether it waits to be saved, the rule,
// the pressure, the algorithm.
const LENGTH_BITS: u32 = 38;
const PRESSURE_BITS: u32 = 5;
const UNSAVED: u64 = 1 << LENGTH_BITS;
const RULE_SHIFT: u32 = LENGTH_BITS + 1;
const PRESSURE_SHIFT: u32 = RULE_SHIFT + RuleNumber::BITS;
const ALGORITHM_SHIFT: u32 = PRESSURE_SHIFT + PRESSURE_BITS;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const RULE_MASK: u64 = ((1 << RuleNumber::BITS) - 1) << RULE_SHIFT;
/// Instants in a rank; those of the clock are below 2^53.
const INSTANT_MASK: u64 = (1 << (u64::BITS - PRESSURE_BITS)) - 1;

const _: () = assert!(2 * WINDOW_MILLIS_MAX <= LENGTH_MASK, "every window fits, and every debt");
const _: () = assert!(u64::BITS - ALGORITHM_SHIFT == 3, "there is room for algorithms up to 7");

/// One place in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) fingerprint: Fingerprint,
    instant: u64,
    first: u32,
    second: u32,
    /// A length in milliseconds (38 bits), whether it waits to be saved (1), the rule (17), the pressure (5) and
    /// the algorithm (3). An algorithm of 0 marks a vacant slot.
    rest: u64,
}

impl Slot {
    pub(super) const VACANT: Slot =
        Slot { fingerprint: Fingerprint { high: 0, low: 0 }, instant: 0, first: 0, second: 0, rest: 0 };

    /// Words that a slot is copied as.
    pub(super) const WORDS: usize = 5;

    /// The slot in words, for whoever keeps it in atomics.
    pub(super) fn words(&self) -> [u64; Self::WORDS] {
        let Slot { fingerprint: Fingerprint { high, low }, instant, first, second, rest } = *self;
        [high, low, instant, u64::from(first) | u64::from(second) << 32, rest]
    }

    /// The slot that was [`Slot::words`].
    #[inline]
    pub(super) fn from_words([high, low, instant, parts, rest]: [u64; Self::WORDS]) -> Self {
        // The lower half, and the upper.
        let (first, second) = (parts as u32, (parts >> 32) as u32);
        Slot { fingerprint: Fingerprint { high, low }, instant, first, second, rest }
    }

    /// A slot for a counter of a rule, to be written.
    pub(super) fn vacant_for(fingerprint: Fingerprint, rule: RuleNumber) -> Self {
        Slot { fingerprint, rest: u64::from(rule.bits()) << RULE_SHIFT, ..Self::VACANT }
    }

    /// Writes a state and leaves the rule and the mark. One that grows is kept elsewhere, at `place`.
    ///
    /// Field by field: a slot built and then copied would be read back before
    /// its parts have left the processor's store buffer, and wait for them.
    #[inline]
    pub(super) fn write(&mut self, state: &State, pressure: Pressure, place: u32) {
        let length = match state {
            State::FixedWindow(FixedWindow { end, length, count }) => {
                self.instant = *end;
                self.first = *count;
                *length
            }
            State::SlidingWindow(SlidingWindow { start, window, previous, current }) => {
                self.instant = *start;
                self.first = *previous;
                self.second = *current;
                *window
            }
            State::TokenBucket(TokenBucket(bucket)) | State::LeakyBucket(LeakyBucket(bucket)) => {
                self.instant = bucket.full_at;
                self.first = bucket.remainder;
                self.second = bucket.denominator;
                bucket.ahead
            }
            State::SlidingLog(_) | State::Concurrency(_) => {
                self.instant = state.expires_at();
                self.first = place;
                kept_for(state)
            }
        };
        self.rest = (self.rest & (RULE_MASK | UNSAVED))
            | (length / 1_000).min(LENGTH_MASK)
            | u64::from(pressure.0) << PRESSURE_SHIFT
            | u64::from(state.algorithm() as u8) << ALGORITHM_SHIFT;
    }

    /// The state in it, for the algorithm its fingerprint stands for; `None`
    /// if it is one that grows.
    #[inline]
    pub(super) fn state(&self, algorithm: Algorithm) -> Option<State> {
        let Slot { instant, first, second, .. } = *self;
        let bucket =
            || Bucket { full_at: instant, remainder: first, denominator: second, ahead: self.length() };
        Some(match algorithm {
            Algorithm::FixedWindow => {
                State::FixedWindow(FixedWindow { end: instant, length: self.length(), count: first })
            }
            Algorithm::SlidingWindow => State::SlidingWindow(SlidingWindow {
                start: instant,
                window: self.length(),
                previous: first,
                current: second,
            }),
            Algorithm::TokenBucket => State::TokenBucket(TokenBucket(bucket())),
            Algorithm::LeakyBucket => State::LeakyBucket(LeakyBucket(bucket())),
            Algorithm::SlidingLog | Algorithm::Concurrency => return None,
        })
    }

    /// Its window, or how long it takes to be full again, in milliseconds: what is short is not worth saving.
    #[inline]
    pub(super) fn length_millis(&self) -> u64 {
        self.rest & LENGTH_MASK
    }

    /// Whether it waits to be saved.
    #[inline]
    pub(super) fn is_unsaved(&self) -> bool {
        self.rest & UNSAVED != 0
    }

    /// Notes whether it waits to be saved.
    #[inline]
    pub(super) fn set_unsaved(&mut self, unsaved: bool) {
        self.rest = if unsaved { self.rest | UNSAVED } else { self.rest & !UNSAVED };
    }

    /// Where its state is kept, if it is one that grows.
    pub(super) fn place(&self) -> Option<u32> {
        let grows = self.is_under(Algorithm::SlidingLog) || self.is_under(Algorithm::Concurrency);
        grows.then_some(self.first)
    }

    /// Whether its state is one of the algorithm.
    pub(super) fn is_under(&self, algorithm: Algorithm) -> bool {
        self.rest >> ALGORITHM_SHIFT == algorithm as u64
    }

    fn length(&self) -> u64 {
        (self.rest & LENGTH_MASK) * 1_000
    }

    #[inline]
    pub(super) fn is_vacant(&self) -> bool {
        self.rest >> ALGORITHM_SHIFT == 0
    }

    pub(super) fn pressure(&self) -> Pressure {
        Pressure((self.rest >> PRESSURE_SHIFT) as u8 & Pressure::EXHAUSTED.0)
    }

    pub(super) fn rule(&self) -> RuleNumber {
        // No wider than a number of a rule.
        RuleNumber::from_bits(((self.rest & RULE_MASK) >> RULE_SHIFT) as u32)
    }

    /// Whether it is a counter of the rule.
    #[inline]
    pub(super) fn is_of(&self, rule: RuleNumber) -> bool {
        self.rest & RULE_MASK == u64::from(rule.bits()) << RULE_SHIFT && !self.is_vacant()
    }

    pub(super) fn rank(&self) -> Rank {
        let pressure = u64::from(self.pressure().0) << (u64::BITS - PRESSURE_BITS);
        Rank(pressure | self.expires_at().min(INSTANT_MASK))
    }

    /// Whether it says anything at an instant.
    #[inline]
    pub(super) fn is_live(&self, now: u64) -> bool {
        // Only a sliding window may end before its instant: one in which nothing was counted.
        self.instant > now && !self.is_under(Algorithm::SlidingWindow) || self.expires_at() > now
    }

    /// From this instant on, in microseconds, the slot says nothing.
    pub(super) fn expires_at(&self) -> u64 {
        let code = self.rest >> ALGORITHM_SHIFT;
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| *algorithm as u64 == code);
        let state = algorithm.and_then(|algorithm| self.state(algorithm));
        state.map_or(self.instant, |state| state.expires_at())
    }
}

/// How long entries and holders are kept, in microseconds.
fn kept_for(state: &State) -> u64 {
    match state {
        State::SlidingLog(log) => log.window,
        State::Concurrency(leases) => leases.window,
        State::FixedWindow(_) | State::SlidingWindow(_) | State::TokenBucket(_) | State::LeakyBucket(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_40_bytes_and_gives_back_what_went_in() {
        assert_eq!(size_of::<Slot>(), 40);
        let fingerprint = Fingerprint { high: 1, low: 2 };
        let year = WINDOW_MILLIS_MAX * 1_000;
        let bucket =
            Bucket { full_at: 1 << 52, remainder: 999_999_999, denominator: 1_000_000_000, ahead: 2 * year };
        let quota = "100/s".parse().unwrap();
        let states = [
            State::FixedWindow(FixedWindow { end: 1 << 52, length: year, count: u32::MAX }),
            State::SlidingWindow(SlidingWindow {
                start: 1 << 52,
                window: year,
                previous: u32::MAX,
                current: u32::MAX,
            }),
            State::TokenBucket(TokenBucket(bucket)),
            State::LeakyBucket(LeakyBucket(bucket)),
        ];
        for state in states {
            let rule = RuleNumber::from_bits((1 << RuleNumber::BITS) - 1);
            let mut slot = Slot::vacant_for(fingerprint, rule);
            assert!(slot.is_vacant());
            slot.write(&state, Pressure::left(1, &quota), 0);
            slot.set_unsaved(true);
            slot.write(&state, Pressure::EXHAUSTED, 0);
            assert!(slot.is_unsaved() && slot.length_millis() > 0, "the mark stays until it is taken away");
            assert!(slot.rule() == rule && slot.is_of(rule));
            assert_eq!(slot.state(state.algorithm()).as_ref(), Some(&state));
            assert_eq!(Slot::from_words(slot.words()).state(state.algorithm()).as_ref(), Some(&state));
            assert!(slot.is_live(slot.expires_at() - 1) && !slot.is_live(slot.expires_at()));
            assert_eq!(slot.expires_at(), state.expires_at());
            assert_eq!(slot.pressure(), Pressure::EXHAUSTED);
            assert!(!slot.is_vacant());
            slot.set_unsaved(false);
            assert!(!slot.is_unsaved() && slot.is_of(rule));
            assert_eq!(slot.state(state.algorithm()).as_ref(), Some(&state));
        }
        assert!(Slot::VACANT.is_vacant());
    }

    #[test]
    fn pressure_grows_as_less_is_left() {
        let quota = "100/s".parse().unwrap();
        let left = [100, 60, 30, 10, 1, 0].map(|left| Pressure::left(left, &quota));
        assert!(left.is_sorted_by(|before, after| before <= after), "{left:?}");
        assert!(left[0] < left[4] && left[4] < left[5], "{left:?}");
        assert_eq!(left[5], Pressure::EXHAUSTED);
    }
}
