//! What the fuzz targets in `fuzz/` run, so that `make test` can run it too.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper_core::{Key, Name, Quotas};

use crate::history::{Event, histories};

/// Any text is read as a quota or refused; what was read prints as what reads
/// the same.
///
/// # Panics
/// If it does not.
pub fn quota_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(quotas) = text.parse::<Quotas>() else { return };
    let printed = quotas.to_string();
    assert_eq!(printed.parse::<Quotas>().as_ref(), Ok(&quotas), "{text:?} printed as {printed:?}");
}

/// Any bytes are taken as a key and a name, or refused.
pub fn names_and_keys(bytes: &[u8]) {
    let scope = Name::new("fuzzed").expect("a short name");
    if let Ok(key) = Key::new(scope, bytes) {
        assert_eq!(key.subject(), bytes);
    }
}

/// Any state is judged, healed, charged and refunded without a panic.
///
/// # Panics
/// If it is not.
pub fn poisoned_states(bytes: &[u8]) {
    crate::poison::states(bytes);
}

/// The history that the first 32 of `bytes` are the seed of.
///
/// # Panics
/// Never: every seed has a history.
#[must_use]
pub fn history_of(bytes: &[u8], length: usize) -> Vec<Event> {
    let mut seed = [0; 32];
    seed.iter_mut().zip(bytes).for_each(|(seed, byte)| *seed = *byte);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    histories(length).new_tree(&mut runner).expect("nothing is rejected").current()
}
