//! Which counters of a shard a data directory does not have yet.
//!
//! A counter that changes is marked in its slot and listed once, so that a counter that changes again costs a look at its
//! mark. The writer takes the list, and asks for the counters on it as they are by then. Beyond a bound nothing is listed
//! any more: then the shard is written as a whole.

use super::super::fingerprint::Fingerprint;
use super::super::slot::Slot;
#[cfg(feature = "data-dir")]
use super::{Counter, Shard};
#[cfg(feature = "data-dir")]
use crate::store::memory::slot::Pressure;
#[cfg(feature = "data-dir")]
use ratekeeper_core::{Algorithm, State};

/// Counters that a shard lists at most: 16 MiB in all shards together.
const LISTED_MAX: usize = 4_096;

#[derive(Debug)]
pub(super) struct Unsaved {
    /// Counters of this length, in milliseconds, and longer ones are saved; none, if nobody does.
    least_millis: u64,
    /// Those that changed or went, in any order, perhaps twice.
    listed: Vec<Fingerprint>,
    /// Whether more did than could be listed.
    is_beyond: bool,
}

impl Unsaved {
    pub(super) const fn new() -> Self {
        Self { least_millis: u64::MAX, listed: Vec::new(), is_beyond: false }
    }

    /// Notes that a counter changed, came, or goes.
    #[inline]
    pub(super) fn note(&mut self, slot: &mut Slot) {
        if slot.length_millis() >= self.least_millis && !slot.is_unsaved() {
            self.list(slot);
        }
    }

    #[cold]
    fn list(&mut self, slot: &mut Slot) {
        slot.set_unsaved(true);
        if self.listed.len() < LISTED_MAX {
            self.listed.push(slot.fingerprint);
        } else {
            self.is_beyond = true;
        }
    }
}

/// What the writer takes of a shard.
#[cfg(feature = "data-dir")]
#[derive(Debug)]
pub(in super::super) enum Take {
    /// These counters changed or went.
    Listed(Vec<Fingerprint>),
    /// Everything in it is to be written, and nothing else is to be kept.
    All,
}

/// A counter as it is now.
#[cfg(feature = "data-dir")]
#[derive(Debug)]
pub(in super::super) struct Found {
    pub(in super::super) counter: Counter,
    pub(in super::super) state: State,
    pub(in super::super) pressure: Pressure,
}

#[cfg(feature = "data-dir")]
impl Shard {
    /// Has changes of counters that are so long listed from now on.
    pub(in super::super) fn save_from(&mut self, least_millis: u64) {
        self.unsaved.least_millis = least_millis;
    }

    /// Has the shard written as a whole the next time.
    pub(in super::super) fn save_all(&mut self) {
        self.unsaved.is_beyond = true;
    }

    /// What is to be saved; nothing if nothing changed.
    pub(in super::super) fn take_unsaved(&mut self) -> Option<Take> {
        let listed = std::mem::take(&mut self.unsaved.listed);
        if std::mem::take(&mut self.unsaved.is_beyond) {
            return Some(Take::All);
        }
        (!listed.is_empty()).then_some(Take::Listed(listed))
    }

    /// A counter to be saved as it is now; `None` if it is gone, or over.
    pub(in super::super) fn saved(&mut self, fingerprint: Fingerprint, now: u64) -> Option<Found> {
        let index = self.find(fingerprint)?;
        self.slots[index].set_unsaved(false);
        self.found(index, now)
    }

    /// Every counter that is worth saving, as it is now.
    pub(in super::super) fn saved_all(&mut self, now: u64) -> Vec<Found> {
        self.slots.iter_mut().for_each(|slot| slot.set_unsaved(false));
        (0..self.slots.len()).filter_map(|index| self.found(index, now)).collect()
    }

    fn found(&self, index: usize, now: u64) -> Option<Found> {
        let slot = &self.slots[index];
        if slot.is_vacant() || slot.length_millis() < self.unsaved.least_millis || slot.expires_at() <= now {
            return None;
        }
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| slot.is_under(*algorithm))?;
        let grown = || self.grown.get(slot.place()? as usize).cloned().flatten();
        let state = slot.state(algorithm).or_else(grown)?;
        let counter = Counter { fingerprint: slot.fingerprint, rule: slot.rule() };
        Some(Found { counter, state, pressure: slot.pressure() })
    }
}

#[cfg(all(test, feature = "data-dir"))]
mod tests {
    use super::super::RuleNumber;
    use super::*;
    use ratekeeper_core::algorithm::FixedWindow;

    fn fixed(length: u64) -> State {
        State::FixedWindow(FixedWindow { end: 1_000_000_000_000, length, count: 1 })
    }

    fn counter(number: u64) -> Counter {
        Counter {
            fingerprint: Fingerprint { high: number << 8, low: number },
            rule: RuleNumber::from_bits(0),
        }
    }

    fn listed(shard: &mut Shard) -> Vec<u64> {
        match shard.take_unsaved() {
            Some(Take::Listed(listed)) => listed.into_iter().map(|found| found.low).collect(),
            other => panic!("{other:?}"),
        }
    }

    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn a_counter_is_listed_once_until_it_is_saved_and_when_it_goes() {
        let mut shard = Shard::new(usize::MAX);
        shard.insert(counter(1), fixed(HOUR), Pressure::EXHAUSTED, 0);
        assert!(shard.take_unsaved().is_none(), "nobody saves it");
        shard.save_from(60_001);
        for number in [2, 3] {
            shard.insert(counter(number), fixed(HOUR), Pressure::EXHAUSTED, 0);
        }
        shard.insert(counter(4), fixed(60_000_000), Pressure::EXHAUSTED, 0);
        for _ in 0..3 {
            let index = shard.find(counter(2).fingerprint).unwrap();
            shard.put(index, fixed(HOUR), Pressure::EXHAUSTED);
        }
        assert_eq!(listed(&mut shard), [2, 3], "a minute is not worth saving");
        assert!(shard.saved(counter(2).fingerprint, 0).is_some());
        let index = shard.find(counter(2).fingerprint).unwrap();
        shard.put(index, fixed(HOUR), Pressure::EXHAUSTED);
        assert_eq!(listed(&mut shard), [2], "the other is still marked");
        for number in [2, 3] {
            shard.saved(counter(number).fingerprint, 0);
            let index = shard.find(counter(number).fingerprint).unwrap();
            shard.remove(index);
        }
        assert_eq!(listed(&mut shard), [2, 3]);
        assert!(shard.saved(counter(2).fingerprint, 0).is_none(), "it is gone");
    }

    #[test]
    fn beyond_the_bound_the_shard_is_saved_as_a_whole() {
        let mut shard = Shard::new(usize::MAX);
        shard.save_from(60_001);
        for number in 0..LISTED_MAX as u64 + 5 {
            shard.insert(counter(number), fixed(HOUR), Pressure::EXHAUSTED, 0);
        }
        assert!(matches!(shard.take_unsaved(), Some(Take::All)));
        assert_eq!(shard.saved_all(0).len(), LISTED_MAX + 5);
        assert!(shard.take_unsaved().is_none());
        assert_eq!(shard.saved_all(1_000_000_000_000).len(), 0, "what is over is not saved");
    }
}
