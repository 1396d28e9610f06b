//! Units that are given back, with a receipt or in process.

use ratekeeper_core::{Check, Decision, GiveBack, Timestamp};

use super::MemoryStore;

impl MemoryStore {
    pub(super) fn refund_now(&self, check: &Check<'_>, decision: &Decision, units: u32) -> u64 {
        let now = self.clock.now();
        let charges = decision.given_back_to(check, units, |charge| self.number(charge));
        charges.map(|back| u64::from(self.give_back(&back, now))).sum()
    }

    fn give_back(&self, back: &GiveBack<'_, '_>, now: Timestamp) -> u32 {
        let quota = back.verdict.quota();
        let counter = self.counter(&back.charge_made(), quota);
        let fingerprint = counter.fingerprint;
        let mut receipts = back.note.map(|note| (self.receipts.lock(), note));
        let left = match &mut receipts {
            Some((receipts, note)) => receipts.left(fingerprint.low, *note, back.units, now.as_micros()),
            None => Some((0, back.units)),
        };
        let Some((before, units)) = left else {
            drop(receipts);
            back.put_back();
            self.fullness.kept_back(now);
            return 0;
        };
        let mut given = 0;
        self.lock_all(&[counter]).update(fingerprint, quota, now, |state| {
            let now = state.instant(now.as_micros());
            given = state.refund(quota, now, units, back.receipt.less(before, quota));
        });
        if let Some((receipts, note)) = receipts.as_mut().filter(|_| given > 0) {
            receipts.note(fingerprint.low, *note, given);
        }
        given
    }
}
