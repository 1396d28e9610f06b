//! What was given back under the numbers of receipts that left the process.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ratekeeper_core::ReceiptNote;

/// Receipts a store remembers at once: those that were given back and whose charge still counts. Beyond
/// that nothing is given back, because nobody could tell whether it was before.
pub const RECEIPTS_MAX: usize = 100_000;

/// The number of a counter, and that of a receipt.
type Receipt = (u64, u64);

/// Units that were given back, forgotten once the charge no longer counts.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    given: HashMap<Receipt, u32>,
    forget: BinaryHeap<Reverse<(u64, Receipt)>>,
    /// What a data directory does not have yet, if there is one.
    unsaved: Option<Unsaved>,
}

/// Receipts that are listed at most; beyond that, all are saved.
const LISTED_MAX: usize = 16_384;

#[derive(Debug, Default)]
struct Unsaved {
    listed: Vec<(u64, Receipt)>,
    /// Whether more changed than could be listed.
    is_beyond: bool,
}

/// What was given back under the number of a receipt.
#[cfg(feature = "data-dir")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// From this instant on it is forgotten.
    pub(super) until: u64,
    pub(super) counter: u64,
    pub(super) nonce: u64,
    pub(super) units: u32,
}

impl Receipts {
    /// How many units were given back, and how many of `units` may still be; `None` if there is no room to
    /// remember it.
    pub(super) fn left(
        &mut self,
        counter: u64,
        note: ReceiptNote,
        units: u32,
        now: u64,
    ) -> Option<(u32, u32)> {
        while self.forget.peek().is_some_and(|Reverse((until, _))| *until <= now) {
            if let Some(Reverse((_, over))) = self.forget.pop() {
                self.given.remove(&over);
            }
        }
        if note.until <= now {
            return Some((0, 0));
        }
        match self.given.get(&(counter, note.nonce)) {
            Some(given) => Some((*given, units.min(note.cost.saturating_sub(*given)))),
            None if self.given.len() >= RECEIPTS_MAX => None,
            None => Some((0, units.min(note.cost))),
        }
    }

    /// Notes that `units` were given back.
    pub(super) fn note(&mut self, counter: u64, note: ReceiptNote, units: u32) {
        let receipt = (counter, note.nonce);
        let given = self.given.entry(receipt).or_insert_with(|| {
            self.forget.push(Reverse((note.until, receipt)));
            0
        });
        *given = given.saturating_add(units);
        let Some(unsaved) = &mut self.unsaved else { return };
        if unsaved.listed.len() < LISTED_MAX {
            unsaved.listed.push((note.until, receipt));
        } else {
            unsaved.is_beyond = true;
        }
    }
}

#[cfg(feature = "data-dir")]
impl Receipts {
    /// Has changes listed from now on; with `all`, everything is saved first.
    pub(super) fn save(&mut self, all: bool) {
        self.unsaved.get_or_insert_default().is_beyond |= all;
    }

    /// What is to be saved.
    pub(super) fn take_unsaved(&mut self) -> Vec<Given> {
        let Some(Unsaved { listed, is_beyond }) = self.unsaved.as_mut().map(std::mem::take) else {
            return Vec::new();
        };
        let given = |(until, receipt): (u64, Receipt)| {
            let (counter, nonce) = receipt;
            self.given.get(&receipt).map(|units| Given { until, counter, nonce, units: *units })
        };
        match is_beyond {
            true => self.forget.iter().filter_map(|Reverse(known)| given(*known)).collect(),
            false => listed.into_iter().filter_map(given).collect(),
        }
    }

    /// Takes in what another process gave back.
    pub(super) fn restore(&mut self, given: Given) {
        let receipt = (given.counter, given.nonce);
        if self.given.len() < RECEIPTS_MAX && self.given.insert(receipt, given.units).is_none() {
            self.forget.push(Reverse((given.until, receipt)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_gives_back_its_cost_once_and_is_forgotten_in_time() {
        let mut receipts = Receipts::default();
        let note = ReceiptNote { nonce: 7, cost: 5, until: 100 };
        assert_eq!(receipts.left(1, note, 3, 0), Some((0, 3)));
        receipts.note(1, note, 3);
        assert_eq!(receipts.left(1, note, 9, 0), Some((3, 2)));
        receipts.note(1, note, 2);
        assert_eq!(receipts.left(1, note, 1, 99), Some((5, 0)));
        assert_eq!(receipts.left(2, note, 9, 99), Some((0, 5)), "the same number of another counter");
        assert_eq!(receipts.left(1, note, 1, 100), Some((0, 0)), "it is over");
        assert!(receipts.given.is_empty(), "and forgotten");
    }

    #[test]
    fn a_full_memory_gives_nothing_back() {
        let mut receipts = Receipts::default();
        for nonce in 1..=RECEIPTS_MAX as u64 {
            receipts.note(1, ReceiptNote { nonce, cost: 2, until: 100 }, 1);
        }
        let new = ReceiptNote { nonce: u64::MAX, cost: 2, until: 200 };
        assert_eq!(receipts.left(1, new, 1, 99), None);
        let known = ReceiptNote { nonce: 1, cost: 2, until: 100 };
        assert_eq!(receipts.left(1, known, 5, 99), Some((1, 1)));
        assert_eq!(receipts.left(1, new, 1, 100), Some((0, 1)), "there is room again");
    }
}
