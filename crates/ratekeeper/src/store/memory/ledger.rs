//! Ids and reservations of a part of all ids, and which of them a data directory does not have yet.

#[cfg(feature = "data-dir")]
use ratekeeper_core::Remembered;
use ratekeeper_core::{Begin, Check, Decision, Held, InvalidInput, Ledger, Reservation, Settled, Timestamp};

use super::shard::Counter;

/// Ids that one part lists at most; beyond that, it is saved as a whole.
const LISTED_MAX: usize = 8_192;

#[derive(Debug)]
pub(super) struct IdLedger {
    ledger: Ledger<Counter>,
    unsaved: Option<Unsaved>,
}

/// What a data directory does not have yet.
#[derive(Debug, Default)]
struct Unsaved {
    listed: Vec<Box<[u8]>>,
    /// Whether more changed than could be listed.
    is_beyond: bool,
}

impl IdLedger {
    pub(super) fn with_max(max: usize) -> Self {
        Self { ledger: Ledger::with_max(max), unsaved: None }
    }

    /// See [`Ledger::begin`].
    pub(super) fn begin(
        &mut self,
        under: &Reservation<'_>,
        check: &Check<'_>,
        now: Timestamp,
    ) -> Result<Begin, InvalidInput> {
        self.ledger.begin(under, check, now)
    }

    /// See [`Ledger::record`].
    pub(super) fn record(
        &mut self,
        under: &Reservation<'_>,
        check: &Check<'_>,
        decision: &Decision,
        held: Vec<Held<Counter>>,
    ) {
        self.ledger.record(under, check, decision, held);
        self.note(under.id());
    }

    /// See [`Ledger::close`].
    pub(super) fn close(&mut self, id: &[u8], now: Timestamp) -> Result<Vec<Held<Counter>>, Settled> {
        let held = self.ledger.close(id, now);
        if held.is_ok() {
            self.note(id);
        }
        held
    }

    fn note(&mut self, id: &[u8]) {
        let Some(unsaved) = &mut self.unsaved else { return };
        if unsaved.listed.len() < LISTED_MAX {
            unsaved.listed.push(id.into());
        } else {
            unsaved.is_beyond = true;
        }
    }
}

#[cfg(feature = "data-dir")]
impl IdLedger {
    /// Has changes listed from now on; with `all`, everything is saved first.
    pub(super) fn save(&mut self, all: bool) {
        self.unsaved.get_or_insert_default().is_beyond |= all;
    }

    /// Hands what is to be saved to `each`.
    pub(super) fn take_unsaved(&mut self, mut each: impl FnMut(&[u8], &Remembered<Counter>)) {
        let Some(Unsaved { listed, is_beyond }) = self.unsaved.as_mut().map(std::mem::take) else { return };
        if is_beyond {
            return self.ledger.iter().for_each(|(id, kept)| each(id, kept));
        }
        for id in listed {
            self.ledger.get(&id).into_iter().for_each(|kept| each(&id, kept));
        }
    }

    /// See [`Ledger::restore`].
    pub(super) fn restore(&mut self, id: &[u8], kept: Remembered<Counter>) -> bool {
        self.ledger.restore(id, kept)
    }
}
