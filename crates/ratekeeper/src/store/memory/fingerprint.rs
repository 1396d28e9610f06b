//! Counters are found by a keyed 128-bit fingerprint of their key.
//!
//! Keeping the keys would cost more than the counters. The fingerprint is two
//! Polymur hashes under independent random seeds. Polymur is universal, which
//! is a theorem and not a hope: whatever two keys somebody picks without
//! knowing the seed, they collide with a chance of at most 2^-54 for keys of
//! a kilobyte, so 2^-108 for the pair (and 2^-120 for short ones). The seeds
//! are drawn per store and no fingerprint ever leaves it, so nobody can look
//! for a key that meets another's counter, or for many that crowd one place.
//! SipHash would do as well, at twice the time of all the rest of a look-up.

use polymur_hash::PolymurHash;
use ratekeeper_core::{Algorithm, Key, OverrideScope};
use smallvec::SmallVec;

/// The keyed fingerprint of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Fingerprint {
    pub(super) high: u64,
    pub(super) low: u64,
}

/// Polymur adds its tweak to sums below 2^63 without wrapping.
const TWEAK_MASK: u64 = (1 << 60) - 1;
/// Spreads windows over all bits of a tweak.
const WINDOW_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// In place of the id of a name, none of which is so small but by a chance of 2^-58.
const SHARED: u64 = 2;

/// A store's secret.
#[derive(Clone)]
pub(super) struct Fingerprinter {
    high: PolymurHash,
    low: PolymurHash,
}

impl Fingerprinter {
    pub(super) fn random() -> Self {
        Self { high: random_hash(), low: random_hash() }
    }

    /// The counter of a key in a window. Those of all windows have one `high`, so they are neighbours.
    #[inline]
    pub(super) fn counter(&self, key: Key<'_>, algorithm: Algorithm, window: u64) -> Fingerprint {
        // Names' ids differ in all bits, so the algorithm can be added on top. Odd factors keep
        // windows apart.
        let tweak = key.scope_id().wrapping_add(algorithm as u64);
        let windowed = tweak.wrapping_add(window.wrapping_mul(WINDOW_FACTOR));
        Fingerprint {
            high: self.high.hash_with_tweak(key.subject(), tweak & TWEAK_MASK),
            low: self.low.hash_with_tweak(key.subject(), windowed & TWEAK_MASK),
        }
    }

    /// The counter of a [shared scope](ratekeeper_core::Charge::shared_scope), which is
    /// the same under any rule.
    pub(super) fn shared_counter(&self, subject: &[u8]) -> Fingerprint {
        self.of(subject, SHARED)
    }

    pub(super) fn scope(&self, scope: OverrideScope<'_>) -> Fingerprint {
        let parts = [scope.endpoint(), scope.organisation_id(), scope.project_id().unwrap_or_default()];
        let mut text: SmallVec<[u8; 256]> = SmallVec::new();
        for part in parts {
            text.extend(part.len().to_le_bytes());
            text.extend_from_slice(part.as_bytes());
        }
        self.of(&text, scope.project_id().is_some().into())
    }

    pub(super) fn id(&self, id: &[u8]) -> u64 {
        self.high.hash(id)
    }

    #[inline]
    fn of(&self, bytes: &[u8], tweak: u64) -> Fingerprint {
        Fingerprint {
            high: self.high.hash_with_tweak(bytes, tweak),
            low: self.low.hash_with_tweak(bytes, tweak),
        }
    }
}

fn random_hash() -> PolymurHash {
    // The standard library seeds its maps from the system's randomness.
    let random = || u128::from(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8));
    PolymurHash::new(random() << 64 | random())
}
