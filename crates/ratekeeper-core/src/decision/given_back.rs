//! What of a decision is given back, and how much of it was.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;

use super::{Decision, VERDICTS_INLINE, Verdict};
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
    /// The decision that keeps count.
    decision: &'d Decision,
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
        self.decision.put_back(self.verdict, self.units);
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

/// Marks the place of a count that clones share.
const SHARED: u32 = 1 << 31;

/// Units of a charge that were given back so far; once the decision has clones, the place of their common
/// [`Count`] instead, marked by [`SHARED`]. Costs are below that. A charge that was given back is still the same charge.
#[derive(Debug, Default)]
pub(crate) struct GivenBack(AtomicU32);

impl GivenBack {
    pub(super) const fn of(given: u32) -> Self {
        Self(AtomicU32::new(given))
    }
}

impl Clone for GivenBack {
    fn clone(&self) -> Self {
        Self::of(self.0.load(Ordering::Relaxed))
    }
}

impl PartialEq for GivenBack {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for GivenBack {}

/// The counts that a decision and its clones have in common, in the order of the verdicts. Made when the first clone is,
/// so that most decisions have none. They say the same of what was decided, so all are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedCounts(OnceLock<Arc<SmallVec<[Count; VERDICTS_INLINE]>>>);

impl SharedCounts {
    /// A decision that is written over an older one has nothing in common with the clones of that.
    #[inline]
    pub(crate) fn forget(&mut self) {
        if self.0.get_mut().is_some() {
            self.drop_now();
        }
    }

    #[cold]
    fn drop_now(&mut self) {
        self.0.take();
    }
}

impl PartialEq for SharedCounts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SharedCounts {}

/// What was given back of one charge, whichever of the clones did it.
#[derive(Debug)]
struct Count {
    /// Units that were charged. What a verdict tells as its cost changes when more is charged, or less.
    cost: u32,
    given: AtomicU32,
}

/// Takes up to `units` of what is left of `cost`; says how many were taken before, too. An error is what is there
/// instead of a number.
fn take(given: &AtomicU32, cost: u32, units: u32) -> Result<(u32, u32), u32> {
    let more = |given: u32| (given < SHARED).then(|| given.saturating_add(units).min(cost));
    let before = given.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)?;
    Ok((before, units.min(cost.saturating_sub(before))))
}

/// Puts back what was taken in vain; says whether there was a number.
fn put(given: &AtomicU32, units: u32) -> bool {
    let less = |given: u32| (given < SHARED).then(|| given.saturating_sub(units));
    given.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

/// What is given back next of a charge.
struct Taken {
    /// Units that were charged.
    cost: u32,
    /// ... of which were given back before,
    before: u32,
    /// ... and are now.
    units: u32,
}

impl Decision {
    /// The counts that it shares with its clones.
    fn shared_counts(&self) -> &[Count] {
        self.shared.0.get_or_init(|| {
            let counts = self.verdicts.iter().zip(0u32..).map(|(verdict, place)| {
                let given = verdict.given_back.0.swap(SHARED | place, Ordering::Relaxed);
                Count { cost: verdict.cost, given: AtomicU32::new(given) }
            });
            Arc::new(counts.collect())
        })
    }

    /// From now on it counts together with its clones, and what was charged is known whatever is told.
    pub(super) fn share_counts(&self) {
        self.shared_counts();
    }

    /// The count of a verdict of its own, if it is a common one.
    fn shared_count(&self, verdict: &Verdict) -> Option<&Count> {
        let place = verdict.given_back.0.load(Ordering::Relaxed).checked_sub(SHARED)?;
        self.shared_counts().get(place as usize)
    }

    fn take(&self, verdict: &Verdict, units: u32) -> Taken {
        let own = take(&verdict.given_back.0, verdict.cost, units).map(|taken| (verdict.cost, taken));
        let taken = own.or_else(|_| {
            let count = self.shared_count(verdict).ok_or(())?;
            take(&count.given, count.cost, units).map(|taken| (count.cost, taken)).map_err(|_| ())
        });
        let (cost, (before, units)) = taken.unwrap_or((verdict.cost, (verdict.cost, 0)));
        Taken { cost, before, units }
    }

    fn put_back(&self, verdict: &Verdict, units: u32) {
        if !put(&verdict.given_back.0, units)
            && let Some(count) = self.shared_count(verdict)
        {
            put(&count.given, units);
        }
    }

    /// Units of the charge that this decision and its clones have not given back: the most of any quota.
    #[must_use]
    pub fn not_given_back(&self) -> u32 {
        let charged = self.verdicts.iter().filter(|verdict| verdict.receipt().is_some());
        charged
            .map(|verdict| self.take(verdict, 0))
            .map(|taken| taken.cost.saturating_sub(taken.before))
            .max()
            .unwrap_or(0)
    }

    /// A copy that counts for itself what it gives back, as a decision does that was told to another process, or is kept
    /// under an id. There the number of the receipt sees to it that nothing is given back twice.
    #[must_use]
    pub fn apart(&self) -> Self {
        let mut copy = Self {
            outcome: self.outcome,
            origin: self.origin,
            at: self.at,
            retry_after: self.retry_after,
            proceed_after: self.proceed_after,
            verdicts: self.verdicts.clone(),
            tipped: self.tipped.clone(),
            shared: SharedCounts::default(),
        };
        if copy.verdicts.iter().any(|verdict| verdict.given_back.0.load(Ordering::Relaxed) >= SHARED) {
            // Another thread may be about to make them.
            self.share_counts();
            copy.shared = self.shared.clone();
        }
        copy.count_apart();
        copy
    }

    /// Counts for itself from now on.
    pub(super) fn count_apart(&mut self) {
        for at in 0..self.verdicts.len() {
            let verdict = &self.verdicts[at];
            let Taken { cost, before, .. } = self.take(verdict, 0);
            let given = verdict.cost.saturating_sub(cost.saturating_sub(before));
            self.verdicts[at].given_back = GivenBack::of(given);
        }
        self.shared.forget();
    }

    /// What of this decision is given back to `check` if up to `units` of each charge are: each charge with
    /// the verdict on its own counter under the same algorithm, and how many units. The decision and its clones keep
    /// count together, so that however often it is given back, it is never more than was charged. Of a reservation only
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
            let Taken { cost, before, units } = self.take(verdict, units);
            let until = verdict.counted_until().min(oldest);
            let note = ReceiptNote { nonce: verdict.nonce.0, cost, until };
            let note = (note.nonce != 0 && !is_holder).then_some(note);
            // The store has noted what came before, also what others gave back.
            let receipt = if note.is_some() { receipt } else { receipt.less(before, &verdict.quota) };
            (units > 0).then_some(GiveBack { charge, verdict, receipt, units, note, decision: self })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::model::Model;
    use crate::name::Name;
    use crate::quota::Quota;
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    /// Ten units of a quota of ten, and what is left of it after what `give_back` does.
    fn ten_units(give_back: impl FnOnce(&mut Model, &Check<'_>, Decision)) -> u32 {
        let quota: Quota = "10/h fixed_window".parse().unwrap();
        let charge =
            Charge::new(Key::new(Name::new("tens").unwrap(), "k").unwrap(), &quota).cost(10).unwrap();
        let (mut model, check) = (Model::default(), Check::one(&charge));
        let decision = model.check(&check, NOW).unwrap();
        give_back(&mut model, &check, decision);
        model.check(&check.peek(), NOW).unwrap().verdicts()[0].remaining()
    }

    #[test]
    fn clones_give_back_together_what_was_charged() {
        let left = ten_units(|model, check, decision| {
            assert_eq!(model.refund(check, &decision, 2, NOW), 2);
            let clone = decision.clone();
            assert_eq!((decision.not_given_back(), clone.not_given_back()), (8, 8));
            assert_eq!(model.refund(check, &clone, 5, NOW), 5);
            assert_eq!((decision.not_given_back(), clone.not_given_back()), (3, 3));
            let other = clone.clone();
            drop(clone);
            assert_eq!(model.refund(check, &other, 10, NOW), 3);
            assert_eq!(model.refund(check, &decision, 10, NOW), 0);
        });
        assert_eq!(left, 10);
    }

    /// Another request's ten units must not come back with these.
    #[test]
    fn a_clone_gives_nothing_back_that_another_charged() {
        let left = ten_units(|model, check, decision| {
            let clone = decision.clone();
            assert_eq!(model.refund(check, &decision, 10, NOW), 10);
            assert!(model.check(check, NOW).unwrap().is_allowed());
            assert_eq!(model.refund(check, &clone, 10, NOW), 0);
        });
        assert_eq!(left, 0);
    }

    #[test]
    fn what_was_taken_in_vain_can_be_given_back_by_any_clone() {
        ten_units(|_, check, decision| {
            let charge = &check.charges()[0];
            let counter_of = |charge: &Charge<'_>| charge.key().digest();
            let taken: Vec<GiveBack<'_, '_>> = decision.given_back_to(check, 10, counter_of).collect();
            // The clone is made while a store is asked.
            let clone = decision.clone();
            assert_eq!((taken[0].charge, clone.not_given_back()), (charge, 0));
            taken[0].put_back();
            assert_eq!((decision.not_given_back(), clone.not_given_back()), (10, 10));
        });
    }

    #[test]
    fn what_is_told_changes_nothing_of_what_can_be_given_back() {
        let left = ten_units(|model, check, mut decision| {
            let clone = decision.clone();
            assert_eq!(model.refund(check, &clone, 3, NOW), 3);
            let later = model.check(&check.peek(), NOW).unwrap();
            decision.catch_up(&later, -3);
            assert_eq!((decision.verdicts()[0].cost(), decision.not_given_back()), (7, 7));
            assert_eq!(decision.apart().not_given_back(), 7);
            decision.catch_up(&later, 5);
            assert_eq!((decision.verdicts()[0].cost(), decision.not_given_back()), (12, 7));
            assert_eq!(decision.apart().not_given_back(), 7);
            assert_eq!(model.refund(check, &decision, 12, NOW), 7);
        });
        assert_eq!(left, 10);
    }

    #[test]
    fn what_is_apart_counts_for_itself() {
        ten_units(|model, check, decision| {
            assert_eq!(model.refund(check, &decision, 4, NOW), 4);
            let apart = decision.clone().apart();
            assert_eq!(model.refund(check, &decision, 10, NOW), 6);
            assert_eq!((apart.not_given_back(), decision.not_given_back()), (6, 0));
        });
    }

    #[test]
    fn a_decision_that_is_written_over_has_nothing_in_common_with_clones_of_the_old_one() {
        ten_units(|model, check, mut decision| {
            let clone = decision.clone();
            assert_eq!(model.refund(check, &clone, 10, NOW), 10);
            let (quota, charge) = (*check.charges()[0].quota(), check.charges()[0]);
            let mut state = crate::State::vacant(quota.algorithm());
            let terms = (&quota, crate::Level::Default);
            crate::judge_one(&charge, terms, &mut state, NOW, false, &mut decision);
            assert_eq!((decision.not_given_back(), clone.not_given_back()), (10, 0));
            decision.set_counters([charge.key().digest()]);
            let again = decision.clone();
            let back = again.given_back_to(check, 4, |charge| charge.key().digest());
            assert_eq!(back.map(|back| back.units).sum::<u32>(), 4);
            assert_eq!((decision.not_given_back(), clone.not_given_back()), (6, 0));
        });
    }

    #[test]
    fn threads_that_clone_and_give_back_at_once_give_back_what_was_charged() {
        for _ in 0..200 {
            ten_units(|_, check, decision| {
                let given = AtomicU32::new(0);
                let give_back = |decision: &Decision, units| {
                    let back = decision.given_back_to(check, units, |charge| charge.key().digest());
                    given.fetch_add(back.map(|back| back.units).sum(), Ordering::Relaxed);
                };
                std::thread::scope(|scope| {
                    for units in 1..=3 {
                        let (decision, give_back) = (&decision, &give_back);
                        scope.spawn(move || {
                            give_back(decision, units);
                            give_back(&decision.clone(), units + 1);
                        });
                    }
                });
                assert_eq!(given.into_inner(), 10);
                assert_eq!(decision.not_given_back(), 0);
            });
        }
    }
}
