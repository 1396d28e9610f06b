//! The answer: allowed or denied, with the state of every quota it touched.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{Receipt, Status};
use crate::check::{Charge, Check, Enforcement, Level};
use crate::name::Name;
use crate::quota::{Algorithm, Quota};
use crate::time::{Timestamp, Wait, write_micros};

/// Verdicts that fit a decision without allocating.
pub(crate) const VERDICTS_INLINE: usize = 4;

/// Allowed or denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Go on; everything was charged.
    #[default]
    Allow,
    /// Stop; nothing was charged.
    Deny,
}

/// Where a decision came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A store judged it.
    #[default]
    Store,
    /// It repeats the decision made under the same idempotency id.
    Repeat,
    /// No store could be asked; the rule's failure policy decided.
    Outage,
    /// No rule applied.
    Unlimited,
}

/// What one quota said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub(crate) name: Name,
    pub(crate) quota: Quota,
    pub(crate) reset_after: u64,
    pub(crate) retry_after: Wait,
    pub(crate) receipt_at: u64,
    pub(crate) receipt_detail: u32,
    pub(crate) remaining: u32,
    pub(crate) cost: u32,
    pub(crate) level: Level,
    pub(crate) enforcement: Enforcement,
    /// Whether the receipt is one.
    pub(crate) charged: bool,
    pub(crate) index: u16,
    pub(crate) counter: CounterNumber,
    pub(crate) given_back: GivenBack,
    /// The number of the receipt, if it left the process; else 0.
    pub(crate) nonce: CounterNumber,
}

/// How long a receipt that left the process is good for.
pub const RECEIPT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A charge to give back units of.
#[derive(Clone, Copy, Debug)]
pub struct GiveBack<'c, 'd> {
    /// The charge.
    pub charge: &'c Charge<'c>,
    /// What was said of it when it was charged.
    pub verdict: &'d Verdict,
    /// Proof of it.
    pub receipt: Receipt,
    /// Units to give back, at least one.
    pub units: u32,
    /// What the store has to remember, if the receipt left the process.
    pub note: Option<ReceiptNote>,
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
    /// Takes up to `units` of what is left of `cost`.
    fn take(&self, cost: u32, units: u32) -> u32 {
        let more = |given: u32| Some(given.saturating_add(units).min(cost));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).unwrap_or(cost);
        units.min(cost.saturating_sub(before))
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

/// A number for a counter or a receipt. Verdicts of different stores are equal if they say the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterNumber(pub(crate) u64);

impl PartialEq for CounterNumber {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CounterNumber {}

impl Verdict {
    /// The quota's name.
    #[must_use]
    pub const fn name(&self) -> Name {
        self.name
    }

    /// The quota in force, overrides included.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Who set it.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Whether it could have denied the check.
    #[must_use]
    pub const fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    /// Units asked for.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.cost
    }

    /// Units left, after the charge if there was one.
    #[must_use]
    #[inline]
    pub const fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Time until the quota is full again if nobody else asks.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after)
    }

    /// When this quota alone would let the same charge pass.
    #[must_use]
    pub const fn retry_after(&self) -> Wait {
        self.retry_after
    }

    /// Which item of the call it is about ([`Charge::at_index`](crate::Charge::at_index)).
    #[must_use]
    pub fn index(&self) -> usize {
        self.index.into()
    }

    /// The store's number for the counter: refunds are paired with charges by it.
    #[must_use]
    pub const fn counter(&self) -> u64 {
        self.counter.0
    }

    /// Proof of the charge, if something was charged.
    #[must_use]
    #[inline]
    pub fn receipt(&self) -> Option<Receipt> {
        self.charged.then_some(Receipt { at: self.receipt_at, detail: self.receipt_detail })
    }

    /// The number of its receipt, if the decision was made under an id or left the process; else 0.
    #[must_use]
    pub const fn nonce(&self) -> u64 {
        self.nonce.0
    }

    /// The instant, in microseconds, from which on the charge no longer counts.
    #[must_use]
    pub fn counted_until(&self) -> u64 {
        let windows = match self.quota.algorithm() {
            Algorithm::SlidingWindow => 2,
            Algorithm::SlidingLog => 1,
            // The receipt names the end itself.
            _ => 0,
        };
        self.receipt_at.saturating_add(windows * self.quota.window_micros()).saturating_add(1)
    }

    /// Whether this quota had room.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.retry_after.is_none()
    }

    /// Whether this quota denied the check.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_admitted() && self.enforcement == Enforcement::Enforce && self.cost > 0
    }

    /// Whether `retry_after` is only an upper bound, as it is for leases: a
    /// holder may come back before its lease ends.
    #[must_use]
    pub fn is_at_latest(&self) -> bool {
        self.quota.algorithm() == Algorithm::Concurrency
    }

    pub(crate) fn set_receipt(&mut self, receipt: Receipt) {
        self.charged = true;
        self.receipt_at = receipt.at;
        self.receipt_detail = receipt.detail;
    }

    pub(crate) fn set_status(&mut self, status: Status) {
        self.remaining = status.remaining;
        self.reset_after = status.reset_after;
    }

    /// Orders by the share of the capacity that is left.
    fn by_share_left(&self, other: &Self) -> std::cmp::Ordering {
        let share = |of: &Self, whole: &Self| u64::from(of.remaining) * u64::from(whole.quota.capacity());
        share(self, other).cmp(&share(other, self))
    }
}

/// When to try again where a rule denies because the store is away.
const OUTAGE_RETRY_MICROS: u64 = 1_000_000;

/// The answer to a check. By default: allowed, because no limit applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub(crate) outcome: Outcome,
    pub(crate) origin: Origin,
    pub(crate) at: Timestamp,
    pub(crate) retry_after: Wait,
    pub(crate) proceed_after: u64,
    pub(crate) verdicts: SmallVec<[Verdict; VERDICTS_INLINE]>,
    /// The gates of the penalties that the check led to.
    pub(crate) tipped: Vec<Name>,
}

impl Decision {
    /// A decision no store made: an outage's, or one where no rule applied. Nobody knows when
    /// an outage ends; whoever is denied because of it is told to try again in a second.
    #[must_use]
    pub fn without_store(outcome: Outcome, origin: Origin, at: Timestamp) -> Self {
        let retry_after = match outcome {
            Outcome::Allow => Wait::default(),
            Outcome::Deny => Wait::micros(OUTAGE_RETRY_MICROS),
        };
        Self { outcome, origin, at, retry_after, ..Self::default() }
    }

    /// The same decision, marked as coming from `origin`.
    #[must_use]
    pub fn from_origin(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// The decision turned into a denial, because whoever asked would not wait
    /// as long as it told them to hold back. Its charges must be given back.
    #[must_use]
    pub fn given_up(mut self) -> Self {
        for verdict in &mut self.verdicts {
            verdict.charged = false;
        }
        Self { outcome: Outcome::Deny, retry_after: Wait::micros(self.proceed_after), ..self }
    }

    /// Two decisions on parts of one check as one: denied if either is, with
    /// the longer of both waits, and the verdicts of both.
    #[must_use]
    pub fn joined(mut self, other: &Self) -> Self {
        let denied = self.outcome == Outcome::Deny || other.outcome == Outcome::Deny;
        self.outcome = if denied { Outcome::Deny } else { Outcome::Allow };
        if other.origin != Origin::Unlimited {
            (self.origin, self.at) = (other.origin, other.at);
        }
        self.retry_after = self.retry_after.max(other.retry_after);
        self.proceed_after = self.proceed_after.max(other.proceed_after);
        self.verdicts.extend(other.verdicts.iter().cloned());
        self.tipped.extend_from_slice(&other.tipped);
        self
    }

    /// The decision without verdicts that whoever asked does not know of.
    #[must_use]
    pub fn without(mut self, hidden: impl Fn(&Verdict) -> bool) -> Self {
        self.verdicts.retain(|verdict| !hidden(verdict));
        self
    }

    /// The decision turned into a denial by the verdict at `index`, which only
    /// told (its cost was 0) that it has no room. Its charges must be given back.
    #[must_use]
    pub fn vetoed_by(mut self, index: usize) -> Self {
        for verdict in &mut self.verdicts {
            verdict.charged = false;
        }
        if let Some(verdict) = self.verdicts.get_mut(index) {
            verdict.cost = verdict.cost.max(1);
            self.retry_after = self.retry_after.max(verdict.retry_after);
        }
        Self { outcome: Outcome::Deny, ..self }
    }

    /// Notes which counter each verdict is about, in the order of the charges.
    #[inline]
    pub fn set_counters(&mut self, counters: impl IntoIterator<Item = u64>) {
        for (verdict, counter) in self.verdicts.iter_mut().zip(counters) {
            verdict.counter = CounterNumber(counter);
        }
    }

    /// Numbers the receipts of a decision that leaves the process, so that the store can tell whether they were
    /// given back before. 0 is no number.
    pub fn set_nonce(&mut self, nonce: u64) {
        for verdict in &mut self.verdicts {
            verdict.nonce = CounterNumber(nonce);
        }
    }

    /// Gives verdicts other numbers for their counters; a verdict without one is about none.
    pub fn renumber(&mut self, mut number: impl FnMut(&Verdict) -> Option<u64>) {
        for verdict in &mut self.verdicts {
            match number(verdict) {
                Some(counter) => verdict.counter = CounterNumber(counter),
                None => verdict.charged = false,
            }
        }
    }

    /// What of this decision is given back to `check` if up to `units` of each charge are: each charge with
    /// the verdict on its own counter under the same algorithm, and how many units. The decision keeps
    /// count, so that however often it is given back, it is never more than was charged. `counter_of` is the
    /// store's number for the counter of a charge.
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
            let units = verdict.given_back.take(verdict.cost, units);
            let until = verdict.counted_until().min(oldest);
            let note = ReceiptNote { nonce: verdict.nonce.0, cost: verdict.cost, until };
            // A holder has a number of its own, so nothing of it is given back twice.
            let is_noted = note.nonce != 0 && verdict.quota.algorithm() != Algorithm::Concurrency;
            let note = is_noted.then_some(note);
            (units > 0).then_some(GiveBack { charge, verdict, receipt, units, note })
        })
    }

    /// Whether some quota had no room: it denied the check, or would have if it
    /// did more than watch.
    #[must_use]
    pub fn is_over_limit(&self) -> bool {
        self.verdicts.iter().any(|verdict| !verdict.is_admitted() && verdict.cost > 0)
    }

    /// Whether the request may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allow
    }

    /// Allowed or denied.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Where it came from.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// The instant at which everything was judged.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// When the same check would pass if nobody else asks: denied before it,
    /// allowed at it.
    #[must_use]
    pub const fn retry_after(&self) -> Wait {
        self.retry_after
    }

    /// How long an admitted request should hold back (leaky buckets).
    #[must_use]
    pub const fn proceed_after(&self) -> Duration {
        Duration::from_micros(self.proceed_after)
    }

    /// What each quota said, in the order of the charges; behind them the gates of
    /// penalties that deny the check.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// The gates of the penalties that this check led to, also of rules that only watch.
    /// A decision that is repeated led to none.
    #[must_use]
    pub fn tipped(&self) -> &[Name] {
        &self.tipped
    }

    /// The quota that matters most: of those that denied the one with the
    /// longest wait, else the enforced one with the least left.
    #[must_use]
    pub fn strictest(&self) -> Option<&Verdict> {
        let denied = self.verdicts.iter().filter(|verdict| verdict.is_denied());
        denied.max_by_key(|verdict| verdict.retry_after).or_else(|| {
            let enforced = self.verdicts.iter().filter(|v| v.enforcement == Enforcement::Enforce);
            enforced.min_by(|left, right| left.by_share_left(right))
        })
    }

    /// One sentence a support engineer could paste into a ticket.
    #[must_use]
    pub fn explain(&self) -> String {
        self.to_string()
    }

    /// The same sentence, with the names that the caller gave to its charges.
    #[must_use]
    pub const fn labelled<'d>(&'d self, labels: Labels<'d>) -> impl fmt::Display + use<'d> {
        Sentence { decision: self, labels }
    }
}

/// The names that a caller gave to its raw charges, by [`Verdict::index`]. None for decisions of rules,
/// which have names of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels<'a>(pub &'a [&'a str]);

impl<'a> Labels<'a> {
    /// What people call the quota of a verdict.
    #[must_use]
    pub fn of(&self, verdict: &Verdict) -> &'a str {
        self.0.get(verdict.index()).copied().unwrap_or_else(|| verdict.name.label())
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.labelled(Labels::default()).fmt(f)
    }
}

struct Sentence<'d> {
    decision: &'d Decision,
    labels: Labels<'d>,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { origin, outcome, verdicts, .. } = self.decision;
        match (origin, outcome) {
            (Origin::Outage, Outcome::Allow) => {
                return f.write_str("allowed without counting: the store did not answer");
            }
            (Origin::Outage, Outcome::Deny) => {
                return f.write_str("denied: the store did not answer, and the rule denies then");
            }
            (Origin::Repeat, _) => f.write_str("repeated, charged once: ")?,
            (Origin::Store | Origin::Unlimited, _) => {}
        }
        match (outcome, self.decision.strictest()) {
            (Outcome::Allow, None) if verdicts.is_empty() => f.write_str("allowed: no limit applies"),
            (Outcome::Allow, None) => f.write_str("allowed: every limit that applies only watches"),
            (Outcome::Allow, Some(verdict)) => allowed(f, self, verdict),
            (Outcome::Deny, Some(verdict)) => denied(f, self, verdict),
            (Outcome::Deny, None) => f.write_str("denied"),
        }
    }
}

fn allowed(f: &mut fmt::Formatter<'_>, sentence: &Sentence<'_>, verdict: &Verdict) -> fmt::Result {
    let (decision, name) = (sentence.decision, sentence.labels.of(verdict));
    if verdict.level == Level::Emergency {
        let by = if verdict.is_admitted() { "lifted" } else { "blocked" };
        return write!(f, "allowed: {name} is {by} by an operator");
    }
    write!(
        f,
        "allowed: {name} has {} of {} left ({}{})",
        verdict.remaining,
        verdict.quota.capacity(),
        verdict.quota,
        By(verdict.level),
    )?;
    if verdict.reset_after > 0 {
        f.write_str(", full again in ")?;
        write_micros(f, verdict.reset_after)?;
    }
    if decision.proceed_after > 0 {
        f.write_str("; proceed in ")?;
        write_micros(f, decision.proceed_after)?;
    }
    Ok(())
}

fn denied(f: &mut fmt::Formatter<'_>, sentence: &Sentence<'_>, verdict: &Verdict) -> fmt::Result {
    let (decision, name) = (sentence.decision, sentence.labels.of(verdict));
    if !verdict.is_denied() {
        return write!(f, "given up: {name} would let it proceed in {}", decision.retry_after);
    }
    let Verdict { quota, cost, remaining, level, .. } = verdict;
    if *level == Level::Emergency {
        return write!(f, "denied: {name} is blocked by an operator");
    }
    if verdict.retry_after.is_never() {
        return write!(f, "denied by {name}: a cost of {cost} can never pass {quota}{}", By(*level));
    }
    write!(
        f,
        "denied by {name}: {} of {} left ({quota}{}), {cost} asked for",
        remaining,
        quota.capacity(),
        By(*level),
    )?;
    let others = decision.verdicts.iter().filter(|other| other.is_denied()).count().saturating_sub(1);
    match others {
        0 => {}
        1 => f.write_str(", and 1 other limit denies too")?,
        _ => write!(f, ", and {others} other limits deny too")?,
    }
    let (at_latest, wait) = (verdict.is_at_latest(), decision.retry_after);
    if wait.is_never() {
        return f.write_str("; it can never pass");
    }
    write!(f, "; the same request passes in {}{wait}", if at_latest { "at most " } else { "" })
}

/// Says who set a quota, where it was not the rule itself.
struct By(Level);

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Level::Default | Level::Emergency => Ok(()),
            Level::Plan => f.write_str(", set by the plan"),
            Level::Custom => f.write_str(", set for this key"),
            Level::Organisation => f.write_str(", overridden for the organisation"),
            Level::Project => f.write_str(", overridden for the project"),
        }
    }
}
