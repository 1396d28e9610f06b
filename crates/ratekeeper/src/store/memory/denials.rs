//! Copies of the counters that denied last, to be read without the lock.
//!
//! A denial changes nothing, so it need not keep others out: whoever finds a copy judges that, and only whoever
//! would be admitted takes the lock. Each copy has a version that is odd while it is written (a sequence lock): a
//! reader that meets a writer takes the lock as well, so nobody waits here.
//!
//! The shard decides what is here, with its lock held: a copy is made when a counter denies, and taken away before
//! that lock is given up if the counter changes or goes. So a copy is what its counter says at the moment it is read.

use std::array::from_fn;
use std::sync::OnceLock;
#[cfg(not(shuttle))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(shuttle)]
use shuttle::sync::atomic::{AtomicU64, Ordering, fence};

use super::fingerprint::Fingerprint;
use super::slot::Slot;

/// Copies that a shard has at most: 4 KiB, and 1 MiB for a whole store, once something was denied.
const COPIES_MAX: usize = 64;
/// Places that a counter's copy may be in: the one its fingerprint says and those behind it.
const PLACES: u32 = 4;
/// With all places taken, one denial in so many takes one over: of two keys that want it, the one that is denied
/// more often has it most of the time, and neither writes with every denial.
const TAKEN_OVER_IN: u8 = 8;

/// The copies of a shard.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// A bit for each place that has a copy. Written with the shard's lock held.
    used: AtomicU64,
    copies: OnceLock<Box<[Entry; COPIES_MAX]>>,
}

const _: () = assert!(COPIES_MAX == u64::BITS as usize, "a bit for each place");

/// One copy, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    /// Odd while it is written.
    version: AtomicU64,
    words: [AtomicU64; Slot::WORDS],
}

impl Entry {
    fn vacant() -> Self {
        Self { version: AtomicU64::new(0), words: from_fn(|_| AtomicU64::new(0)) }
    }

    /// What is in it, unless somebody is writing.
    #[inline]
    fn read(&self) -> Option<[u64; Slot::WORDS]> {
        let before = self.version.load(Ordering::Acquire);
        let words = from_fn(|index| self.words[index].load(Ordering::Relaxed));
        // The words are read before the version is read again.
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before;
        is_whole.then_some(words)
    }

    /// Writes it; the shard's lock keeps other writers out.
    fn write(&self, words: [u64; Slot::WORDS]) {
        let before = self.version.load(Ordering::Relaxed);
        self.version.store(before | 1, Ordering::Relaxed);
        // The version is odd before any word changes, and even again after the last.
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.version.store((before | 1).wrapping_add(1), Ordering::Release);
    }
}

/// The places that a counter's copy may be in, the likeliest first.
#[inline]
fn places(fingerprint: Fingerprint) -> impl Iterator<Item = usize> {
    // Another part of the fingerprint than those that choose the shard and the slot.
    let home = fingerprint.low as usize;
    (0..PLACES as usize).map(move |step| (home + step) % COPIES_MAX)
}

impl Denials {
    /// The counter with this fingerprint, if there is a copy of it. Needs no lock.
    #[inline]
    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<Slot> {
        let used = self.used.load(Ordering::Acquire);
        // Of most shards, nothing was denied of late.
        if used == 0 {
            return None;
        }
        let copies = self.copies.get()?;
        let copies = places(fingerprint).filter(|place| used >> place & 1 == 1).map(|place| &copies[place]);
        let mut found = copies.filter_map(|copy| copy.read().map(Slot::from_words));
        found.find(|slot| slot.fingerprint == fingerprint)
    }

    /// Keeps a copy of a counter that denied, if there is a place. Needs the shard's lock.
    pub(super) fn keep(&self, slot: &Slot, turn: &mut u8) {
        let copies = self.copies.get_or_init(|| Box::new(from_fn(|_| Entry::vacant())));
        let used = self.used.load(Ordering::Relaxed);
        let free = places(slot.fingerprint).find(|place| used >> place & 1 == 0);
        *turn = (*turn + 1) % TAKEN_OVER_IN;
        let taken_over = || places(slot.fingerprint).next().filter(|_| *turn == 0);
        let Some(place) = free.or_else(taken_over) else { return };
        copies[place].write(slot.words());
        self.used.store(used | 1 << place, Ordering::Release);
    }

    /// Takes the copy of a counter away that changes or goes. Needs the shard's lock.
    #[inline]
    pub(super) fn forget(&self, fingerprint: Fingerprint) {
        let used = self.used.load(Ordering::Relaxed);
        if used != 0 {
            self.forget_of(used, fingerprint);
        }
    }

    fn forget_of(&self, used: u64, fingerprint: Fingerprint) {
        let Some(copies) = self.copies.get() else { return };
        for place in places(fingerprint).filter(|place| used >> place & 1 == 1) {
            let copied = copies[place].read().map(Slot::from_words);
            if copied.is_some_and(|slot| slot.fingerprint == fingerprint) {
                copies[place].write([0; Slot::WORDS]);
                self.used.store(used & !(1 << place), Ordering::Release);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use ratekeeper_core::{Charge, Check, Key, Name, Quota};

    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::store::memory::shard::RuleNumber;

    fn slot(low: u64, rule: u32) -> Slot {
        Slot::vacant_for(Fingerprint { high: !low, low }, RuleNumber::from_bits(rule))
    }

    #[test]
    fn a_copy_is_found_until_it_is_taken_away() {
        let (denials, mut turn) = (Denials::default(), 0);
        let slots: Vec<Slot> = (0..4).map(|number| slot(number * COPIES_MAX as u64, 7)).collect();
        assert!(denials.find(slots[0].fingerprint).is_none());
        for slot in &slots {
            denials.keep(slot, &mut turn);
        }
        for slot in &slots {
            let found = denials.find(slot.fingerprint).expect("four keys on one place are all kept");
            assert_eq!(found.words(), slot.words());
        }
        denials.forget(slots[2].fingerprint);
        let found = slots.iter().filter(|slot| denials.find(slot.fingerprint).is_some()).count();
        assert_eq!((found, denials.find(slots[2].fingerprint).is_none()), (3, true));
        denials.forget(slots[2].fingerprint);
        assert_eq!(denials.used.load(Ordering::Relaxed).count_ones(), 3);
    }

    #[test]
    fn a_key_that_is_denied_again_and_again_gets_a_place() {
        let (denials, mut turn) = (Denials::default(), 0);
        let slots: Vec<Slot> = (0..5).map(|number| slot(number * COPIES_MAX as u64, 1)).collect();
        slots.iter().for_each(|slot| denials.keep(slot, &mut turn));
        assert!(denials.find(slots[4].fingerprint).is_none(), "all places are taken");
        for _ in 0..TAKEN_OVER_IN {
            denials.keep(&slots[4], &mut turn);
        }
        assert!(denials.find(slots[4].fingerprint).is_some());
        assert_eq!(denials.used.load(Ordering::Relaxed).count_ones(), PLACES);
    }

    #[test]
    fn a_copy_that_is_being_written_is_not_read() {
        let entry = Entry::vacant();
        entry.write([3; Slot::WORDS]);
        assert_eq!(entry.read(), Some([3; Slot::WORDS]));
        entry.version.fetch_or(1, Ordering::Relaxed);
        assert_eq!(entry.read(), None);
        entry.write([4; Slot::WORDS]);
        assert_eq!(entry.read(), Some([4; Slot::WORDS]), "a writer that went away half way does no harm");
    }

    /// With all shards locked by somebody, a key that was denied is denied again; another one waits.
    #[test]
    fn a_denial_needs_no_lock() {
        const FAILED: Duration = Duration::from_secs(60);
        let (store, quota) = (MemoryStore::new(), "1/h".parse::<Quota>().unwrap());
        let key = |subject| Key::new(Name::new("locked").unwrap(), subject).unwrap();
        let ask = |subject| store.decide(&Check::one(&Charge::new(key(subject), &quota))).unwrap();
        let answers: Vec<bool> = (0..2).map(|_| ask("ann").is_allowed()).collect();
        assert_eq!(answers, [true, false]);
        let guards: Vec<_> = store.shards.iter().map(|shard| shard.0.lock()).collect();
        std::thread::scope(|scope| {
            let (sender, answers) = mpsc::channel();
            for subject in ["ann", "bob"] {
                let (sender, ask) = (sender.clone(), &ask);
                scope.spawn(move || sender.send((subject, ask(subject).is_allowed())));
            }
            let first = answers.recv_timeout(FAILED);
            drop(guards);
            assert_eq!(first, Ok(("ann", false)));
            assert_eq!(answers.recv_timeout(FAILED), Ok(("bob", true)));
        });
    }

    /// Readers beside a writer see one counter or the other, and never a part of each.
    #[test]
    fn a_copy_is_read_whole_or_not_at_all() {
        let copy = Entry::vacant();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200_000u64).for_each(|number| copy.write([number; Slot::WORDS])));
            scope.spawn(|| {
                for words in (0..200_000).filter_map(|_| copy.read()) {
                    assert_eq!(words, [words[0]; Slot::WORDS]);
                }
            });
        });
    }
}
