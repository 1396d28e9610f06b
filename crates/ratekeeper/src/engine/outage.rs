//! What rules say when the store cannot be asked.

mod counts;

use ratekeeper_core::{
    Charge, Charges, Check, Decision, Emergency, Enforcement, InvalidInput, Key, Name, Origin, Outcome, Quota,
};
use smallvec::SmallVec;

use self::counts::Decided;
pub(super) use self::counts::OutageCounters;
pub use self::counts::Outages;
use super::verbs::Terms;
use super::{Asked, Demand, Scope};
use crate::store::{StoreError, StoreErrorKind};

/// What happens to a request when the store cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnOutage {
    /// It goes on, uncounted: the limiter must not take down what it protects.
    #[default]
    Allow,
    /// This process counts in its own memory, with its share of the quota: see
    /// [`LimiterBuilder::instances`](crate::LimiterBuilder::instances).
    Local,
    /// It is denied: what the rule protects must not be exceeded.
    Deny,
}

impl OnOutage {
    /// All of them, by the word for each.
    pub const NAMES: [(&'static str, Self); 3] =
        [("allow", OnOutage::Allow), ("local", OnOutage::Local), ("deny", OnOutage::Deny)];
}

/// Who says what becomes of a request when the store could not answer.
pub(super) trait Away {
    type Error: From<InvalidInput> + Send;

    fn decide(
        demand: &Demand<'_>,
        error: StoreError,
        undecided: &Undecided,
        peek: bool,
    ) -> Result<Decision, Self::Error>;
}

/// The rules do, so an outage is a decision.
pub(super) struct ByRules;

impl Away for ByRules {
    type Error = InvalidInput;

    fn decide(
        demand: &Demand<'_>,
        error: StoreError,
        undecided: &Undecided,
        peek: bool,
    ) -> Result<Decision, InvalidInput> {
        demand.outage(error, undecided, peek)
    }
}

/// The caller does, so an outage is an error.
pub(super) struct ByCaller;

impl Away for ByCaller {
    type Error = StoreError;

    fn decide(_: &Demand<'_>, error: StoreError, _: &Undecided, _: bool) -> Result<Decision, StoreError> {
        Err(error)
    }
}

/// The rules of a demand that the store has not decided on.
pub(super) enum Undecided {
    All,
    /// Those at these places: the rest of the store has decided on the others.
    Some(SmallVec<[usize; 4]>),
}

impl Undecided {
    /// The rules that have one of these charges.
    fn with_charges(demand: &Demand<'_>, check: &Check<'_>, places: &[usize]) -> Self {
        let keys: SmallVec<[Key<'_>; 4]> =
            places.iter().filter_map(|place| check.charges().get(*place)).map(Charge::key).collect();
        let is_undecided = |asked: &Asked<'_>| {
            let mut quotas = asked.limits.quotas().iter();
            quotas.any(|(name, quota)| asked.charge(*name, quota).is_ok_and(|own| keys.contains(&own.key())))
        };
        let rules = demand.rules.iter().enumerate();
        Self::Some(rules.filter(|(_, asked)| is_undecided(asked)).map(|(rule, _)| rule).collect())
    }

    fn has(&self, rule: usize) -> bool {
        match self {
            Self::All => true,
            Self::Some(rules) => rules.contains(&rule),
        }
    }
}

/// This process's share of the quotas of a demand, each with the rule it belongs to.
pub(super) struct Share(SmallVec<[(usize, Name, Quota); 4]>);

impl Share {
    pub(super) fn of(demand: &Demand<'_>) -> Self {
        Self::among(demand, &Undecided::All)
    }

    fn among(demand: &Demand<'_>, undecided: &Undecided) -> Self {
        let local = demand.rules.iter().enumerate().filter(|(rule, asked)| {
            let is_local = asked.terms.scope == Scope::Shared && asked.terms.on_outage == OnOutage::Local;
            is_local && undecided.has(*rule)
        });
        let quotas = local.flat_map(|(rule, asked)| {
            let quotas = asked.limits.quotas().iter();
            quotas.map(move |(name, quota)| (rule, *name, asked.terms.share_of(quota)))
        });
        Self(quotas.collect())
    }

    pub(super) fn charges<'s>(&'s self, demand: &'s Demand<'_>) -> Result<Charges<'s>, InvalidInput> {
        let mut charges = Charges::new();
        self.charge_all(demand, &mut charges)?;
        Ok(charges)
    }

    fn charge_all<'s>(
        &'s self,
        demand: &'s Demand<'_>,
        charges: &mut Charges<'s>,
    ) -> Result<(), InvalidInput> {
        for (rule, name, quota) in &self.0 {
            charges.push(demand.rules[*rule].charge(*name, quota)?)?;
        }
        Ok(())
    }
}

impl Demand<'_> {
    /// The strictest that the rules say.
    pub(super) fn on_outage(&self, undecided: &Undecided) -> OnOutage {
        let rules = self.rules.iter().enumerate().filter(|(rule, _)| undecided.has(*rule));
        rules.filter_map(|(_, asked)| asked.says_in_outage()).max().unwrap_or_default()
    }

    /// What the rules say to a store that could not answer: one that denies is enough, then those that count
    /// for themselves decide. A call that no store could answer is the caller's error.
    #[cold]
    fn outage(&self, error: StoreError, undecided: &Undecided, peek: bool) -> Result<Decision, InvalidInput> {
        let kind = error.kind();
        if let Some(input) = error.into_input() {
            return Err(input);
        }
        let (engine, on_outage) = (&*self.engine, self.on_outage(undecided));
        if on_outage == OnOutage::Local {
            let share = Share::among(self, undecided);
            let charges = share.charges(self)?;
            let Ok(check) = charges.check() else { return Ok(engine.unlimited()) };
            let check = if peek { check.peek() } else { check };
            // If it is full of keys that are limited, even this memory is away.
            if let Ok(decision) = engine.process.decide(&check) {
                self.note_outage(kind, Decided::Local, peek);
                return Ok(decision.from_origin(Origin::Outage));
            }
        }
        let outcome = if on_outage == OnOutage::Deny { Outcome::Deny } else { Outcome::Allow };
        Ok(self.without_store(kind, outcome, peek))
    }

    /// What becomes of a check that the store could not decide, or only in part: then the answers that there are
    /// stand, unless the rules of the rest deny.
    #[cold]
    pub(super) async fn undecided<A: Away>(
        &self,
        check: &Check<'_>,
        mut error: StoreError,
        peek: bool,
    ) -> Result<Decision, A::Error> {
        let Some(answered) = error.take_answered() else {
            return A::decide(self, error, &Undecided::All, peek);
        };
        let undecided = Undecided::with_charges(self, check, &answered.undecided);
        match A::decide(self, error, &undecided, peek) {
            // What this process has counted for itself is not the store's to give back.
            Ok(rest) if rest.is_allowed() => Ok(rest.without_receipts().joined(&answered.decision)),
            rest => {
                if !peek {
                    // What cannot be given back comes back with time; the store counts it.
                    let _ = self.engine.store.undo(check, &answered.decision, answered.end).await;
                }
                rest
            }
        }
    }

    /// What becomes of a request that no store has decided.
    pub(super) fn without_store(&self, kind: StoreErrorKind, outcome: Outcome, peek: bool) -> Decision {
        let decided = match outcome {
            Outcome::Allow => Decided::Allowed,
            Outcome::Deny => Decided::Denied,
        };
        self.note_outage(kind, decided, peek);
        Decision::without_store(outcome, Origin::Outage, self.engine.store.now())
    }

    /// A peek neither admits nor denies, so it is not counted.
    fn note_outage(&self, kind: StoreErrorKind, decided: Decided, peek: bool) {
        if !peek {
            self.engine.outages.note(self, kind, decided);
        }
    }
}

impl Asked<'_> {
    /// What it says to a store that could not answer, if anything. What operators have set needs no store: whom they
    /// block is denied, and what they lift is not. A rule that only watches this request denies it in an outage as
    /// little as ever.
    fn says_in_outage(&self) -> Option<OnOutage> {
        let (on_outage, is_enforced) = (self.terms.on_outage, self.enforcement == Enforcement::Enforce);
        match self.emergency {
            Emergency::Lift => None,
            Emergency::Block if is_enforced => Some(OnOutage::Deny),
            Emergency::Block | Emergency::Off => {
                let can_deny = is_enforced || on_outage != OnOutage::Deny;
                (self.terms.scope == Scope::Shared && can_deny).then_some(on_outage)
            }
        }
    }
}

// The store does not know what was admitted without it, so this process remembers what it charged under an id.
impl Demand<'_> {
    /// The decision of an outage under the same id, if it charged anything. It is not charged again, whether
    /// or not the store is back.
    pub(super) fn admitted_before(&self, terms: &Terms<'_>) -> Option<Decision> {
        let (under, share) = (terms.once()?, Share::of(self));
        let charges = self.charges_without_store(&share)?;
        let known = self.engine.process.recall(&charges.check().ok()?.by_rules(), under)?;
        // Its refunds go to this process, as those of the first.
        Some(known.from_origin(Origin::Outage))
    }

    /// Remembers what an outage admitted, if it charged anything.
    #[cold]
    pub(super) fn keep_admitted(&self, decision: &Decision, terms: &Terms<'_>) {
        let (under, share) = (terms.once().filter(|_| !terms.is_peek()), Share::of(self));
        let charges = self.charges_without_store(&share);
        if let (Some(under), Some(Ok(check))) = (under, charges.as_ref().map(Charges::check)) {
            self.engine.process.remember(&check.by_rules(), under, decision);
        }
    }

    /// What this process charges while the store is away: its own rules, and its share of the others.
    /// None if these are too many to be one check.
    fn charges_without_store<'s>(&'s self, share: &'s Share) -> Option<Charges<'s>> {
        let mut charges = self.charges(Scope::Process).ok()?;
        share.charge_all(self, &mut charges).ok()?;
        Some(charges)
    }
}
