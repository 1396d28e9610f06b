//! What of a decision is given back, and how much of it was.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Decision, Verdict};
use crate::algorithm::Receipt;
use crate::check::{Charge, Check, Level};
use crate::quota::Algorithm;

/// How long a receipt that left the process is good for.
pub const RECEIPT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A charge to give back units of.
#[derive(Clone, Copy, Debug)]
pub struct GiveBack<'c, 'd> {
    /// The charge.
    pub charge: &'c Charge<'c>,
    /// What was said of it when it was charged.
    pub verdict: &'d Verdict,
    /// Proof of what the decision has not given back yet. What the store has [noted](Self::note) beside that is
    /// to be [taken off](Receipt::less).
    pub receipt: Receipt,
    /// Units to give back, at least one.
    pub units: u32,
    /// What the store has to remember, if the receipt left the process.
    pub note: Option<ReceiptNote>,
}

impl GiveBack<'_, '_> {
    /// The charge as it was made: with the quota of the rule or plan of then, which may be another by now.
    /// (Under an override, the verdict has only the override's: then with that of today.)
    #[must_use]
    pub fn charge_made(&self) -> Charge<'_> {
        match self.verdict.level {
            Level::Organisation | Level::Project => *self.charge,
            _ => Charge { quota: &self.verdict.quota, ..*self.charge },
        }
    }

    /// Lets the decision count these units as not given back: nothing was done about them.
    pub fn put_back(&self) {
        self.verdict.given_back.put(self.units);
    }
}

/// What a store remembers of a receipt that left the process: it may come back any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptNote {
    /// The number of the receipt, which no other receipt of the counter has.
    pub nonce: u64,
    /// Units of the charge. All that is ever given back together is at most that.
    pub cost: u32,
    /// From this instant on, in microseconds, nothing is given back.
    pub until: u64,
}

/// Units of a charge that were given back so far. A charge that was given back is still the same charge.
#[derive(Debug, Default)]
pub(crate) struct GivenBack(AtomicU32);

impl GivenBack {
    /// Takes up to `units` of what is left of `cost`; says how many were taken before, too.
    fn take(&self, cost: u32, units: u32) -> (u32, u32) {
        let more = |given: u32| Some(given.saturating_add(units).min(cost));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).unwrap_or(cost);
        (before, units.min(cost.saturating_sub(before)))
    }

    /// Puts back what was taken in vain.
    fn put(&self, units: u32) {
        let less = |given: u32| Some(given.saturating_sub(units));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

impl Clone for GivenBack {
    fn clone(&self) -> Self {
        Self(AtomicU32::new(self.0.load(Ordering::Relaxed)))
    }
}

impl PartialEq for GivenBack {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for GivenBack {}

impl Decision {
    /// What of this decision is given back to `check` if up to `units` of each charge are: each charge with
    /// the verdict on its own counter under the same algorithm, and how many units. The decision keeps
    /// count, so that however often it is given back, it is never more than was charged. Of a reservation only
    /// places are given back: the rest is for settling. `counter_of` is the store's number for the counter of
    /// a charge.
    pub fn given_back_to<'d, 'c>(
        &'d self,
        check: &Check<'c>,
        units: u32,
        counter_of: impl Fn(&Charge<'c>) -> u64,
    ) -> impl Iterator<Item = GiveBack<'c, 'd>> {
        let oldest = self.at.after(RECEIPT_MAX).as_micros();
        let charged = self.verdicts.iter().filter(|_| self.is_allowed());
        let charges = check.charges();
        charged.filter_map(move |verdict| {
            let receipt = verdict.receipt()?;
            let same = |charge: &&'c Charge<'c>| {
                charge.quota.algorithm() == verdict.quota.algorithm()
                    && counter_of(charge) == verdict.counter.0
            };
            let charge = charges.iter().find(same)?;
            // A holder has a number of its own, so nothing of it is given back twice.
            let is_holder = verdict.quota.algorithm() == Algorithm::Concurrency;
            if verdict.held && !is_holder {
                return None;
            }
            let (before, units) = verdict.given_back.take(verdict.cost, units);
            let until = verdict.counted_until().min(oldest);
            let note = ReceiptNote { nonce: verdict.nonce.0, cost: verdict.cost, until };
            let note = (note.nonce != 0 && !is_holder).then_some(note);
            // The store has noted what came before, also what others gave back.
            let receipt = if note.is_some() { receipt } else { receipt.less(before, &verdict.quota) };
            (units > 0).then_some(GiveBack { charge, verdict, receipt, units, note })
        })
    }
}
