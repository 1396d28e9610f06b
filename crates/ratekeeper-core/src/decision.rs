//! The answer: allowed or denied, with the state of every quota it touched.

mod given_back;
mod parts;
mod verdict;
mod words;

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

pub use self::given_back::{GiveBack, RECEIPT_MAX, ReceiptNote};
pub(crate) use self::given_back::{GivenBack, SharedCounts};
pub(crate) use self::verdict::CounterNumber;
pub use self::verdict::Verdict;
pub use self::words::Labels;
use self::words::Sentence;
use crate::check::Enforcement;
use crate::name::Name;
use crate::time::{Timestamp, Wait};

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
    /// To find out which rules apply was more work than the budget of a request: it is denied whole, and nothing
    /// was charged.
    Budget,
}

/// Why a request is denied that no quota and no outage denied.
pub const CONDITION_BUDGET: &str = "condition_budget";

/// When to try again where a rule denies because the store is away.
const OUTAGE_RETRY_MICROS: u64 = 1_000_000;

/// The answer to a check. By default: allowed, because no limit applies.
///
/// Clones keep count together of what is given back.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub(crate) outcome: Outcome,
    pub(crate) origin: Origin,
    pub(crate) at: Timestamp,
    pub(crate) retry_after: Wait,
    pub(crate) proceed_after: u64,
    pub(crate) verdicts: SmallVec<[Verdict; VERDICTS_INLINE]>,
    /// The gates of the penalties that the check led to.
    pub(crate) tipped: Vec<Name>,
    pub(crate) shared: SharedCounts,
}

impl Clone for Decision {
    fn clone(&self) -> Self {
        self.share_counts();
        Self {
            outcome: self.outcome,
            origin: self.origin,
            at: self.at,
            retry_after: self.retry_after,
            proceed_after: self.proceed_after,
            verdicts: self.verdicts.clone(),
            tipped: self.tipped.clone(),
            shared: self.shared.clone(),
        }
    }
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

    /// A denial because the conditions of a request were more work than its budget. The same request is never
    /// less work, so there is nothing to wait for.
    #[must_use]
    #[cold]
    pub fn beyond_budget(at: Timestamp) -> Self {
        Self {
            outcome: Outcome::Deny,
            origin: Origin::Budget,
            at,
            retry_after: Wait::NEVER,
            ..Self::default()
        }
    }

    /// Why it is denied, if that is neither a quota nor an outage: [`CONDITION_BUDGET`].
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        (self.origin == Origin::Budget && !self.is_allowed()).then_some(CONDITION_BUDGET)
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
    /// the longer of both waits, and the verdicts of both. It counts apart from them what it gives back.
    #[must_use]
    pub fn joined(mut self, other: &Self) -> Self {
        let denied = self.outcome == Outcome::Deny || other.outcome == Outcome::Deny;
        self.outcome = if denied { Outcome::Deny } else { Outcome::Allow };
        if other.origin != Origin::Unlimited {
            (self.origin, self.at) = (other.origin, other.at);
        }
        self.retry_after = self.retry_after.max(other.retry_after);
        self.proceed_after = self.proceed_after.max(other.proceed_after);
        self.count_apart();
        self.verdicts.extend(other.apart().verdicts);
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

    /// Takes over what a later decision says of the same counters, so that this one says what is left now.
    /// Its costs change by `units`, because that is what was charged or given back meanwhile. Of what this decision
    /// charged itself, it gives back as much as before.
    pub fn catch_up(&mut self, later: &Self, units: i32) {
        self.share_counts();
        for verdict in &mut self.verdicts {
            let is_same = |newer: &&Verdict| {
                (newer.counter.0, newer.name, newer.quota) == (verdict.counter.0, verdict.name, verdict.quota)
            };
            let Some(newer) = later.verdicts.iter().find(is_same) else { continue };
            verdict.remaining = newer.remaining;
            verdict.reset_after = newer.reset_after;
            verdict.cost = verdict.cost.saturating_add_signed(units);
            self.at = later.at;
        }
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

    /// Notes that a reservation holds what was charged: from then on it is settled or cancelled, not refunded.
    pub fn set_held(&mut self) {
        self.verdicts.iter_mut().for_each(|verdict| verdict.held = true);
    }

    /// The decision without its reservation, which is forgotten: what was charged is refunded as any other charge.
    #[must_use]
    pub fn no_longer_held(mut self) -> Self {
        self.verdicts.iter_mut().for_each(|verdict| verdict.held = false);
        self
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
