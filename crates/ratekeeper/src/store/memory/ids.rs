//! Reservations and idempotency ids: a ledger of decisions, locked before any shard.

use ratekeeper_core::{Begin, Check, Decision, Held, Reservation, Settled};

use super::ledger::IdLedger;
use super::lock::Guard;
use super::shard::Counter;
use super::{LEDGERS, MemoryStore};
use crate::store::StoreError;

impl MemoryStore {
    pub(super) fn reserve_now(
        &self,
        check: &Check<'_>,
        reservation: &Reservation<'_>,
    ) -> Result<Decision, StoreError> {
        let mut ledger = self.ledger(reservation.id());
        match ledger.begin(reservation, check, self.clock.now())? {
            Begin::Repeat(decision) => Ok(*decision),
            Begin::Full => {
                let error = StoreError::capacity(format!("all {} idempotency ids are in use", self.max_ids));
                self.fullness.refused(self.clock.now(), &error);
                Err(error)
            }
            Begin::New => {
                let mut decision = self.decide(check)?;
                if reservation.held_for().is_some() {
                    decision.set_held();
                }
                let held = check.charges().iter().zip(decision.verdicts());
                let held = held.filter_map(|(charge, verdict)| {
                    Held::new(self.counter(charge, verdict.quota()), charge, verdict)
                });
                ledger.record(reservation, check, &decision, held.collect());
                Ok(decision)
            }
        }
    }

    /// What was remembered of the same check under this id.
    pub(crate) fn recall(&self, check: &Check<'_>, under: &Reservation<'_>) -> Option<Decision> {
        match self.ledger(under.id()).begin(under, check, self.clock.now()) {
            Ok(Begin::Repeat(decision)) => Some(*decision),
            Ok(Begin::New | Begin::Full) | Err(_) => None,
        }
    }

    /// Remembers a decision that was charged without its id. At the bound of ids it is forgotten.
    pub(crate) fn remember(&self, check: &Check<'_>, under: &Reservation<'_>, decision: &Decision) {
        let mut ledger = self.ledger(under.id());
        if let Ok(Begin::New) = ledger.begin(under, check, self.clock.now()) {
            ledger.record(under, check, decision, Vec::new());
        }
    }

    pub(super) fn ledger(&self, id: &[u8]) -> Guard<'_, IdLedger> {
        // The remainder of LEDGERS is below LEDGERS, whatever the width.
        self.ledgers[self.fingerprinter.id(id) as usize % LEDGERS].lock()
    }

    pub(super) fn settle_now(&self, id: &[u8], actual: Option<u32>) -> Settled {
        let now = self.clock.now();
        // Held until the counters are right: who is told `Already` finds them so.
        let mut ledger = self.ledger(id);
        let held = match ledger.close(id, now) {
            Err(answer) => return answer,
            Ok(held) => held,
        };
        let counters: Vec<Counter> = held.iter().map(|charge| charge.counter).collect();
        let mut shards = self.lock_all(&counters);
        for charge in held {
            if charge.adds(actual) {
                shards.ensure(&counters, charge.counter, charge.quota(), now);
            }
            let fingerprint = charge.counter.fingerprint;
            shards.update(fingerprint, charge.quota(), now, |state| charge.settle(state, now, actual));
        }
        let room = shards.room();
        drop(shards);
        self.fullness.found(now, room);
        Settled::Done
    }
}
