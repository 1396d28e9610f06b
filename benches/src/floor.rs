//! What no limiter can be faster than: the harness, and a bare look-up.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::KeyText;
use crate::measure::{Contestant, Tally, Work};

/// Writes the key and nothing else.
#[derive(Debug)]
pub struct Harness;

impl Contestant for Harness {
    fn run(&self, work: &Work<'_>) -> Tally {
        work.drive(|_, _| Ok::<_, Infallible>(true))
    }
}

/// A look-up in a concurrent map and one compare-and-swap on a `u64`: no
/// clock, no limit, no bound on the keys.
#[derive(Debug)]
pub struct Floor(papaya::HashMap<String, AtomicU64, ahash::RandomState>);

impl Floor {
    /// A map of all `keys`.
    #[must_use]
    pub fn new(keys: u32) -> Self {
        let map = papaya::HashMap::with_hasher(ahash::RandomState::new());
        let mut key = KeyText::new("user");
        for index in 0..keys {
            key.set(index);
            map.pin().insert(key.text().clone(), AtomicU64::new(0));
        }
        Self(map)
    }
}

impl Contestant for Floor {
    fn run(&self, work: &Work<'_>) -> Tally {
        work.drive(|_, key| {
            let map = self.0.pin();
            let count = map.get(key).ok_or("a key that was never made")?;
            // Always `Some`, so this ends with the first swap that works.
            let swapped = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(old + 1));
            Ok::<_, &str>(swapped.is_ok())
        })
    }
}
