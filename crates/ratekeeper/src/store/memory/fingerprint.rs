//! Counters are found by a keyed 128-bit fingerprint of their key.
//!
//! Keeping the keys would cost more than the counters. The fingerprint is two hashes under independent random
//! keys, each of two steps with a proven bound, whatever two keys of counters somebody picks without knowing the
//! secret:
//!
//! 1. NH (Black and others, UMAC, 1999) makes 128 bits of a text: the sum of `(word + secret) * (word + secret)` over its
//!    pairs of 64-bit words. Two texts give the same sum with a chance of at most 2^-64 if they are equally long. If
//!    one has a pair more, the sums are equal only if the product of two uniform words is what is left, which
//!    has a chance of at most 2^-63.
//! 2. A multilinear hash (Lemire and Kaser, 2014) makes 64 bits of these: the upper half of `c + a * left + b * right`
//!    modulo 2^128. It is strongly universal, so two sums meet with a chance of 2^-64.
//!
//! Both steps are sums, so keys that differ in the same way have hashes that differ in the same way, and could
//! crowd some shards and leave others empty. So the half that chooses the place is mixed; that can be undone, and
//! so leaves every chance as it is.
//!
//! Together that is below 2^-62 for one hash, and, as one bit says whether a window is long, below 2^-123 for the pair. The secrets are drawn per store and no
//! fingerprint ever leaves it, so nobody can look for a key that meets another's counter, or for many that crowd one place.
//! SipHash would do as well, at several times the cost.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ratekeeper_core::{Algorithm, Key, OverrideScope, SUBJECT_BYTES_MAX};
use smallvec::SmallVec;

/// The keyed fingerprint of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Fingerprint {
    pub(super) high: u64,
    pub(super) low: u64,
}

impl Fingerprint {
    /// The same for a key under all algorithms and in all windows.
    #[inline]
    pub(super) const fn key(self) -> u64 {
        self.high & !LONG
    }
}

/// The window of a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) number: u64,
    /// Whether it is kept apart from windows up to an hour.
    pub(super) is_long: bool,
}

impl Window {
    /// One that is not kept apart.
    pub(super) const fn short(number: u64) -> Self {
        Self { number, is_long: false }
    }
}

/// The bit of `high` that counters of long windows have.
const LONG: u64 = 1;
/// In place of the id of a name, none of which is so small but by a chance of 2^-58.
const SHARED: u64 = 2;
/// The longest text: the three parts of an override's scope, each with its length.
const TEXT_BYTES_MAX: usize = 3 * (SUBJECT_BYTES_MAX + size_of::<u64>());
const PAIR_BYTES: usize = 16;
const PAIRS: usize = TEXT_BYTES_MAX.div_ceil(PAIR_BYTES);
/// Algorithms are below it.
const ALGORITHMS: u64 = 8;

/// A store's secret.
#[derive(Clone)]
pub(super) struct Fingerprinter(Arc<Secret>);

struct Secret {
    /// For the scope of a text and its length, of both hashes.
    scope: [Pair; 2],
    /// For the window and the algorithm, which only the second hash knows.
    window: Pair,
    /// For the words of a text, of both hashes, so that one pass reads both.
    text: Box<[[Pair; 2]; PAIRS]>,
    last: [Multilinear; 2],
}

/// What is added to a pair of words.
type Pair = [u64; 2];

struct Multilinear {
    start: u128,
    left: u128,
    right: u128,
}

impl Multilinear {
    #[inline]
    fn of(&self, sum: u128) -> u64 {
        let (left, right) = (sum >> 64, sum & u128::from(u64::MAX));
        let products = self.left.wrapping_mul(left).wrapping_add(self.right.wrapping_mul(right));
        (self.start.wrapping_add(products) >> 64) as u64
    }
}

/// What a pair of words adds to a sum of NH.
#[inline]
fn product(secret: Pair, words: Pair) -> u128 {
    u128::from(secret[0].wrapping_add(words[0])) * u128::from(secret[1].wrapping_add(words[1]))
}

impl Fingerprinter {
    pub(super) fn random() -> Self {
        // The standard library seeds its maps from the system's randomness.
        let (state, mut drawn) = (RandomState::new(), 0u64);
        Self::drawn(|| {
            drawn += 1;
            state.hash_one(drawn)
        })
    }

    /// The one whose secret another process drew.
    #[cfg(feature = "data-dir")]
    pub(super) fn from_words(words: &[u64]) -> Self {
        debug_assert_eq!(words.len(), Self::WORDS, "each word is drawn once");
        let mut words = words.iter().copied();
        Self::drawn(|| words.next().unwrap_or_default())
    }

    /// Words of a secret.
    #[cfg(feature = "data-dir")]
    pub(super) const WORDS: usize = 2 * 2 + 2 + PAIRS * 2 * 2 + 2 * 3 * 2;

    fn drawn(mut word: impl FnMut() -> u64) -> Self {
        let mut pair = || [word(), word()];
        let (scope, window) = ([pair(), pair()], pair());
        let text = Box::new(std::array::from_fn(|_| [pair(), pair()]));
        let mut wide = || {
            let [upper, lower] = pair();
            u128::from(upper) << 64 | u128::from(lower)
        };
        let last = std::array::from_fn(|_| Multilinear { start: wide(), left: wide(), right: wide() });
        Self(Arc::new(Secret { scope, window, text, last }))
    }

    /// The counter of a key under an algorithm in a window. Those of all algorithms and windows have one
    /// [key](Fingerprint::key), so they are neighbours and can be counted.
    #[inline]
    pub(super) fn counter(&self, key: Key<'_>, algorithm: Algorithm, window: Window) -> Fingerprint {
        let Window { number, is_long } = window;
        let Fingerprint { high, low } =
            self.of(key.subject(), key.scope_id(), number * ALGORITHMS + algorithm as u64);
        Fingerprint { high: high | if is_long { LONG } else { 0 }, low }
    }

    /// The counter of a [shared scope](ratekeeper_core::Charge::shared_scope), which is
    /// the same under any rule.
    pub(super) fn shared_counter(&self, subject: &[u8]) -> Fingerprint {
        self.of(subject, SHARED, 0)
    }

    pub(super) fn scope(&self, scope: OverrideScope<'_>) -> Fingerprint {
        let parts = [scope.endpoint(), scope.organisation_id(), scope.project_id().unwrap_or_default()];
        let mut text: SmallVec<[u8; 256]> = SmallVec::new();
        for part in parts {
            text.extend(part.len().to_le_bytes());
            text.extend_from_slice(part.as_bytes());
        }
        self.of(&text, scope.project_id().is_some().into(), 0)
    }

    pub(super) fn id(&self, id: &[u8]) -> u64 {
        // The last bit says nothing.
        self.of(id, 0, 0).high >> 1
    }

    /// The fingerprint of a text in a scope; `window` tells those with one `high` apart.
    #[inline]
    fn of(&self, text: &[u8], scope: u64, window: u64) -> Fingerprint {
        let Secret { scope: of_scope, window: of_window, text: of_text, last } = &*self.0;
        // Only an id that no reservation can have is longer, and that only chooses a ledger.
        let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
        let head = [scope, text.len() as u64];
        let mut high = product(of_scope[0], head);
        let mut low = product(of_scope[1], head).wrapping_add(product(*of_window, [window, 0]));
        let mut add = |secret: &[Pair; 2], words: Pair| {
            high = high.wrapping_add(product(secret[0], words));
            low = low.wrapping_add(product(secret[1], words));
        };
        let (pairs, rest) = text.as_chunks::<PAIR_BYTES>();
        pairs.iter().zip(of_text.iter()).for_each(|(pair, secret)| add(secret, words(pair)));
        if !rest.is_empty() {
            add(&of_text[pairs.len()], last_words(text));
        }
        Fingerprint { high: mixed(last[0].of(high)) & !LONG, low: last[1].of(low) }
    }
}

/// Another number for each number, without a pattern.
#[inline]
fn mixed(number: u64) -> u64 {
    /// Jon Maiga's, who searched for the factor and the shifts that leave least of a pattern.
    const FACTOR: u64 = 0x0e98_46af_9b1a_615d;
    let number = (number ^ number >> 32).wrapping_mul(FACTOR);
    let number = (number ^ number >> 32).wrapping_mul(FACTOR);
    number ^ number >> 28
}

#[inline]
fn words(pair: &[u8; PAIR_BYTES]) -> Pair {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| pair[at + index]));
    [word(0), word(8)]
}

/// The end of a text as words. They may overlap what came before: with its length they are the text's alone.
#[inline]
fn last_words(text: &[u8]) -> Pair {
    if let Some(pair) = text.last_chunk() {
        return words(pair);
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return [u64::from_le_bytes(*first), u64::from_le_bytes(*last)];
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return [u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into()];
    }
    let byte = |at: usize| text.get(at).copied().map_or(0, u64::from);
    [byte(0) | byte(1) << 8 | byte(2) << 16, 0]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ratekeeper_core::Name;

    use super::*;

    /// Texts of every length, each bit of each flipped: all differ, and so does each with a byte of 0 behind it.
    #[test]
    fn every_bit_of_a_text_counts() {
        let fingerprinter = Fingerprinter::random();
        let (mut seen, mut texts) = (HashSet::new(), 0);
        for length in (0..=70).chain([1_023, 1_024, TEXT_BYTES_MAX]) {
            let mut text = vec![0; length];
            for bit in 0..=length * 8 {
                if bit > 0 {
                    text[(bit - 1) / 8] ^= 1 << ((bit - 1) % 8);
                }
                let Fingerprint { high, low } = fingerprinter.of(&text, 7, 9);
                seen.extend([high, low]);
                texts += 1;
                if bit > 0 {
                    text[(bit - 1) / 8] ^= 1 << ((bit - 1) % 8);
                }
            }
        }
        assert_eq!(seen.len(), 2 * texts, "of so few, not even halves meet");
    }

    #[test]
    fn windows_and_algorithms_of_a_key_are_neighbours() {
        let fingerprinter = Fingerprinter::random();
        let key = Key::new(Name::new("neighbours").unwrap(), "ann").unwrap();
        let counters = Algorithm::ALL.into_iter().flat_map(|algorithm| {
            [0, 1_000_000, 1_000_001]
                .map(|window| fingerprinter.counter(key, algorithm, Window::short(window)))
        });
        let counters: HashSet<Fingerprint> = counters.collect();
        assert_eq!(counters.len(), 3 * Algorithm::ALL.len());
        assert_eq!(counters.iter().map(|counter| counter.high).collect::<HashSet<_>>().len(), 1);
        let other = Key::new(Name::new("neighbours.too").unwrap(), "ann").unwrap();
        let other = fingerprinter.counter(other, Algorithm::TokenBucket, Window::short(0));
        assert!(counters.iter().all(|counter| counter.high != other.high && counter.low != other.low));
        let long = Window { number: 1_000_000, is_long: true };
        let long = fingerprinter.counter(key, Algorithm::TokenBucket, long);
        assert!(counters.iter().all(|counter| counter.key() == long.key() && counter.high != long.high));
    }

    #[test]
    fn two_stores_have_two_secrets() {
        let [one, other] = [(), ()].map(|()| Fingerprinter::random().of(b"ann", 1, 2));
        assert!(one.high != other.high && one.low != other.low);
    }

    /// What chooses the shard and the slot is spread evenly, also for keys that are much alike.
    #[test]
    fn keys_spread_over_all_shards() {
        let fingerprinter = Fingerprinter::random();
        let mut shards = [0u32; 256];
        let mut together = 0;
        for number in 0..25_600 {
            let text = format!("user:{number:08}");
            let shard_in = |scope| (fingerprinter.of(text.as_bytes(), scope, 9).high >> 56) as usize;
            shards[shard_in(7)] += 1;
            together += u32::from(shard_in(7) == shard_in(8));
        }
        // 100 each, give or take ten: eight times that is beyond any luck.
        assert!(shards.iter().all(|count| (20..180).contains(count)), "{shards:?}");
        assert!((20..180).contains(&together), "{together} keys of two rules are in one shard");
    }
}
