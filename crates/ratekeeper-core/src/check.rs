//! What a store is asked: the charges of one request, judged together.

use smallvec::SmallVec;

use crate::error::{Field, InvalidInput};
use crate::key::Key;
use crate::name::{DIGEST_START, digest_more};
use crate::overrides::OverrideScope;
use crate::penalty::Penalty;
use crate::quota::{Algorithm, LIMIT_MAX, Quota};

/// The most charges one check may carry.
pub const CHARGES_MAX: usize = 64;
/// Charges on logs and places in one check. Each counts as 200 us of a server's work, and a check, which is
/// never cut, as less than 5 ms.
pub const LIST_CHARGES_MAX: usize = 24;

/// Charges that fit a check without allocating.
const CHARGES_INLINE: usize = 4;

/// Whether a charge can deny the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// It can.
    #[default]
    Enforce,
    /// It is counted and told, but never denies: monitor mode, or a key that a
    /// ramp has not reached.
    Shadow,
}

/// An operator's hand on the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Emergency {
    /// The quota decides.
    #[default]
    Off,
    /// Everything passes and nothing is counted.
    Lift,
    /// Nothing passes.
    Block,
}

/// Who set a quota's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// The rule.
    #[default]
    Default,
    /// The plan of the subject.
    Plan,
    /// An exact entry for the subject.
    Custom,
    /// An override for the organisation.
    Organisation,
    /// An override for the project.
    Project,
    /// An emergency lift or block.
    Emergency,
}

impl Level {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Default => "default",
            Level::Plan => "plan",
            Level::Custom => "custom",
            Level::Organisation => "organisation",
            Level::Project => "project",
            Level::Emergency => "emergency",
        }
    }
}

/// A unit more than any quota has room for. It stands for all costs above [`LIMIT_MAX`], where
/// these come from requests: nobody passes by asking for more than can be counted, and
/// nobody is told that it is the program's fault.
pub const COST_BEYOND: u32 = LIMIT_MAX + 1;

#[cold]
fn beyond_bounds(cost: u64) -> InvalidInput {
    InvalidInput::range(Field::Cost, cost, 0, LIMIT_MAX.into(), "")
}

/// One quota, one key, one cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charge<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) quota: &'a Quota,
    pub(crate) cost: u32,
    pub(crate) enforcement: Enforcement,
    pub(crate) emergency: Emergency,
    pub(crate) level: Level,
    pub(crate) overrides: Option<OverrideScope<'a>>,
    pub(crate) flat: bool,
    pub(crate) any_window: bool,
    pub(crate) index: u16,
}

impl<'a> Charge<'a> {
    /// A charge of one unit.
    #[must_use]
    pub const fn new(key: Key<'a>, quota: &'a Quota) -> Self {
        Self {
            key,
            quota,
            cost: 1,
            enforcement: Enforcement::Enforce,
            emergency: Emergency::Off,
            level: Level::Default,
            overrides: None,
            flat: false,
            any_window: false,
            index: 0,
        }
    }

    /// Charges `cost` units. A cost of 0 changes nothing and denies nothing;
    /// it tells what one unit would meet.
    ///
    /// # Errors
    /// If the cost is above [`LIMIT_MAX`]; but [`COST_BEYOND`] is denied like any cost that a
    /// quota has no room for.
    pub fn cost(self, cost: u64) -> Result<Self, InvalidInput> {
        let cost = u32::try_from(cost)
            .ok()
            .filter(|cost| *cost <= COST_BEYOND)
            .ok_or_else(|| beyond_bounds(cost))?;
        Ok(Self { cost, ..self })
    }

    /// Enforced or shadow.
    #[must_use]
    pub const fn enforcement(self, enforcement: Enforcement) -> Self {
        Self { enforcement, ..self }
    }

    /// Lifted or blocked by an operator.
    #[must_use]
    pub const fn emergency(self, emergency: Emergency) -> Self {
        Self { emergency, ..self }
    }

    /// Who set the quota the charge carries.
    #[must_use]
    pub const fn level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Lets overrides for this project and organisation replace the quota.
    #[must_use]
    pub const fn overridable(self, scope: OverrideScope<'a>) -> Self {
        Self { overrides: Some(scope), ..self }
    }

    /// Keeps the cost as it is when a reservation is settled with another
    /// amount: one request stays one request, however many tokens it took.
    #[must_use]
    pub const fn flat(self) -> Self {
        Self { flat: true, ..self }
    }

    /// Counts in one counter, however long the window is: for the gate of a penalty, which is shut
    /// for as long as each sentence says.
    #[must_use]
    pub const fn any_window(self) -> Self {
        Self { any_window: true, ..self }
    }

    /// Which item of a call it is, for surfaces that show the caller's own name for it:
    /// [`Verdict::index`](crate::Verdict::index) repeats it. Nothing is found by it.
    #[must_use]
    pub const fn at_index(self, index: u16) -> Self {
        Self { index, ..self }
    }

    /// What it counts against.
    #[must_use]
    pub const fn key(&self) -> Key<'a> {
        self.key
    }

    /// The quota before any override.
    #[must_use]
    pub const fn quota(&self) -> &'a Quota {
        self.quota
    }

    /// Whether it could deny the check.
    #[must_use]
    pub(crate) fn can_deny(&self) -> bool {
        self.enforcement == Enforcement::Enforce && self.cost > 0
    }

    /// Who set the quota, before any override.
    #[must_use]
    pub const fn quota_level(&self) -> Level {
        self.level
    }

    /// Which item of a call it is.
    #[must_use]
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// Units it asks for.
    #[must_use]
    pub const fn units(&self) -> u32 {
        self.cost
    }

    /// Whether it is enforced or only watches.
    #[must_use]
    pub const fn enforced(&self) -> Enforcement {
        self.enforcement
    }

    /// What an operator's switch says.
    #[must_use]
    pub const fn switched(&self) -> Emergency {
        self.emergency
    }

    /// Whether settling leaves its cost as it is.
    #[must_use]
    pub const fn is_flat(&self) -> bool {
        self.flat
    }

    /// Whether it counts in one counter, however long the window is.
    #[must_use]
    pub const fn is_in_any_window(&self) -> bool {
        self.any_window
    }

    /// The [number of the window](Quota::window_number) that is part of its counter's identity under
    /// `quota`, the one in force; 0 if the counter has all windows. A log or a list of holders has the window of
    /// the rule or plan: an override's is judged on the same entries.
    #[must_use]
    #[inline]
    pub fn window_number(&self, quota: &Quota) -> u64 {
        match quota.algorithm() {
            Algorithm::SlidingLog | Algorithm::Concurrency => self.quota.window_number(),
            _ if self.any_window || self.overrides.is_some() && self.shared_scope().is_some() => 0,
            _ => quota.window_number(),
        }
    }

    /// Whether its counter is kept apart from those of windows up to an hour, by the [long](Quota::is_long) window of
    /// rule or plan. It is part of the counter's identity, because a store knows where to look before it knows whether
    /// an override has another window.
    #[must_use]
    #[inline]
    pub fn is_long(&self) -> bool {
        if !self.quota.is_long() || self.any_window || self.quota.algorithm().keeps_all() {
            return false;
        }
        self.overrides.is_none() || self.shared_scope().is_none()
    }

    /// Whether overrides may replace its quota.
    #[must_use]
    #[inline]
    pub const fn is_overridable(&self) -> bool {
        self.overrides.is_some()
    }

    /// Where an override may stand, if it may.
    #[must_use]
    pub const fn override_scope(&self) -> Option<OverrideScope<'a>> {
        self.overrides
    }
}

/// The charges of one request, each key once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charges<'a>(SmallVec<[Charge<'a>; CHARGES_INLINE]>);

impl<'a> Charges<'a> {
    /// No charges yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a charge. The same key under the same quota twice is one charge of
    /// both costs.
    ///
    /// # Errors
    /// If there are [`CHARGES_MAX`] already, or [`LIST_CHARGES_MAX`] on logs and places, costs add up
    /// beyond the largest cost, the key stands under another quota, or another charge counts on the
    /// same [shared](Charge::shared_scope) counter.
    #[inline]
    pub fn push(&mut self, charge: Charge<'a>) -> Result<(), InvalidInput> {
        let same = |known: &Charge<'a>| {
            known.key == charge.key && known.quota.algorithm() == charge.quota.algorithm()
        };
        if let Some(at) = self.0.iter().position(same) {
            return self.0[at].absorb(&charge);
        }
        if charge.overrides.is_some() || is_listed(&charge) || self.0.len() == CHARGES_MAX {
            self.refuse_one_too_many(&charge)?;
        }
        self.0.push(charge);
        Ok(())
    }

    /// Refuses what is one too many: a charge, one that keeps a list, or one on a shared counter.
    #[cold]
    fn refuse_one_too_many(&self, charge: &Charge<'a>) -> Result<(), InvalidInput> {
        if charge.overrides.is_some() {
            self.refuse_second_share(charge)?;
        }
        if self.0.len() == CHARGES_MAX {
            let got = format!("more than {CHARGES_MAX} charges");
            return Err(InvalidInput::range(Field::Check, got, 1, CHARGES_MAX as u64, "charges"));
        }
        if is_listed(charge) && self.0.iter().filter(|known| is_listed(known)).count() == LIST_CHARGES_MAX {
            let got = format!("more than {LIST_CHARGES_MAX} charges by sliding_log and concurrency");
            return Err(InvalidInput::range(Field::Check, got, 0, LIST_CHARGES_MAX as u64, "of them"));
        }
        Ok(())
    }

    /// Refuses a second rule on a counter that there is once, whoever counts on it.
    fn refuse_second_share(&self, charge: &Charge<'a>) -> Result<(), InvalidInput> {
        let meets = |known: &&Charge<'a>| {
            known.overrides == charge.overrides
                && known.shared_scope().is_some_and(|scope| charge.shared_scope() == Some(scope))
        };
        let Some(known) = self.0.iter().find(meets) else { return Ok(()) };
        let got = format!("{} and {} on one counter", known.key.label(), charge.key.label());
        let expected = "one fixed window for a project on an endpoint, as Application Kit has it: give the \
                        other another endpoint or algorithm";
        Err(InvalidInput::new(Field::Check, got, expected))
    }

    /// All of them as one check.
    ///
    /// # Errors
    /// If there are none.
    #[inline]
    pub fn check(&self) -> Result<Check<'_>, InvalidInput> {
        if self.0.is_empty() {
            return Err(no_charge());
        }
        Ok(Check { charges: &self.0, penalties: &[], peek: false, by_rules: false })
    }
}

/// Whether a charge is kept in a list that grows.
fn is_listed(charge: &Charge<'_>) -> bool {
    charge.quota.algorithm().keeps_all()
}

#[cold]
fn no_charge() -> InvalidInput {
    InvalidInput::range(Field::Check, "no charge", 1, CHARGES_MAX as u64, "charges")
}

impl<'a> Charge<'a> {
    #[cold]
    fn absorb(&mut self, other: &Charge<'a>) -> Result<(), InvalidInput> {
        if *self != (Charge { cost: self.cost, index: self.index, ..*other }) {
            let got = format!("{} on one key as {} and as {}", self.key.label(), self.quota, other.quota);
            return Err(InvalidInput::new(
                Field::Check,
                got,
                "quotas with different names, or the same quota enforced the same way",
            ));
        }
        let sum = u64::from(self.cost) + u64::from(other.cost);
        if sum > LIMIT_MAX.into() {
            return Err(beyond_bounds(sum));
        }
        *self = self.cost(sum)?;
        Ok(())
    }
}

/// What a store is asked: all of these charges or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check<'a> {
    charges: &'a [Charge<'a>],
    penalties: &'a [Penalty<'a>],
    peek: bool,
    by_rules: bool,
}

impl<'a> Check<'a> {
    /// A check of a single charge; [`Charges::check`] makes one of several.
    #[must_use]
    pub const fn one(charge: &'a Charge<'a>) -> Self {
        Self { charges: std::slice::from_ref(charge), penalties: &[], peek: false, by_rules: false }
    }

    /// The same check, whose quotas are what rules say and not who asks: under an id it is
    /// still the same when they have changed.
    #[must_use]
    pub const fn by_rules(self) -> Self {
        Self { by_rules: true, ..self }
    }

    /// The same check, only looked at: nothing is charged, nothing written.
    #[must_use]
    pub const fn peek(self) -> Self {
        Self { peek: true, ..self }
    }

    /// The same check, judged together with the penalties of its rules.
    ///
    /// # Errors
    /// If there are more than [`PENALTIES_MAX`](crate::PENALTIES_MAX), two of one rule and
    /// subject, or one whose counters are not what [`Penalty`] says.
    pub fn with_penalties(self, penalties: &'a [Penalty<'a>]) -> Result<Self, InvalidInput> {
        Penalty::validate_all(penalties, self.charges)?;
        Ok(Self { penalties, ..self })
    }

    /// The same check of some of its charges and penalties alone, which are judged together; `penalties` count
    /// these charges.
    #[must_use]
    pub const fn part<'p>(&self, charges: &'p [Charge<'p>], penalties: &'p [Penalty<'p>]) -> Check<'p> {
        Check { charges, penalties, peek: self.peek, by_rules: self.by_rules }
    }

    /// The penalties it is judged with.
    #[must_use]
    #[inline]
    pub const fn penalties(&self) -> &'a [Penalty<'a>] {
        self.penalties
    }

    /// The charges, each key once, at least one.
    #[must_use]
    pub const fn charges(&self) -> &'a [Charge<'a>] {
        self.charges
    }

    /// A digest of which units of which counters (service, rule, quota and subject)
    /// are asked for: what an idempotency id is held against, to notice one that is
    /// used twice by mistake. The same in every process and version.
    ///
    /// How much the counters hold is part of it unless rules say so ([`Check::by_rules`]).
    /// Penalties are not: a rule may gain or lose one while an id is kept.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.charges.iter().fold(DIGEST_START, |digest, charge| {
            // Not the name that people see: rules of two services have the same.
            let (scope, quota, cost) = (charge.key.scope_id(), charge.quota, charge.cost);
            let terms = match self.by_rules {
                true => format!("{scope:x}\n{cost}\n"),
                false => format!("{scope:x}\n{quota}\n{cost}\n"),
            };
            digest_more(digest_more(digest, terms.as_bytes()), charge.key.subject())
        })
    }

    /// Whether the check must not leave a trace.
    #[must_use]
    pub fn is_peek(&self) -> bool {
        self.peek || self.charges.iter().all(|charge| charge.cost == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    #[test]
    fn quotas_are_part_of_a_digest_unless_rules_made_them() {
        let key = Key::new(Name::new("api").unwrap(), "a").unwrap();
        let (five, six): (Quota, Quota) = ("5/s".parse().unwrap(), "6/s".parse().unwrap());
        let (one, other) = (Charge::new(key, &five), Charge::new(key, &six));
        let (one, other, more) = (Check::one(&one), Check::one(&other), one.cost(2).unwrap());
        assert_ne!(one.digest(), other.digest());
        assert_eq!(one.by_rules().digest(), other.by_rules().digest());
        assert_ne!(one.by_rules().digest(), Check::one(&more).by_rules().digest(), "another cost");
        let key = Key::new(Name::new("api").unwrap(), "b").unwrap();
        assert_ne!(one.by_rules().digest(), Check::one(&Charge::new(key, &five)).by_rules().digest());
    }

    /// Services that share a store have rules of the same name.
    #[test]
    fn everything_that_names_a_counter_is_part_of_a_digest() {
        let quota: Quota = "5/s".parse().unwrap();
        let rule = Name::within("search", "per-user").unwrap();
        let names = [
            rule,
            Name::within("images", "per-user").unwrap(),
            Name::new("per-user").unwrap(),
            Name::joined(rule, "rpm").unwrap(),
            Name::joined(rule, "rpd").unwrap(),
            Name::within("search", "per-user.rpm").unwrap(),
        ];
        let digest = |name: &Name| {
            let charge = Charge::new(Key::new(*name, "ann").unwrap(), &quota);
            Check::one(&charge).by_rules().digest()
        };
        let digests: std::collections::BTreeSet<u64> = names.iter().map(digest).collect();
        assert_eq!(digests.len(), names.len());
    }

    #[test]
    fn a_check_is_bounded_and_has_each_key_once() {
        let scope = Name::new("api").unwrap();
        let key = Key::new(scope, "a").unwrap();
        let quota: Quota = "10/s".parse().unwrap();
        let charge = Charge::new(key, &quota);

        let other = "11/s".parse().unwrap();
        let subjects: Vec<String> = (0..CHARGES_MAX).map(|n| n.to_string()).collect();
        let mut charges = Charges::new();
        assert!(charges.check().unwrap_err().to_string().contains("1 to 64 charges"));
        charges.push(charge).unwrap();
        charges.push(charge.cost(2).unwrap()).unwrap();
        assert_eq!(charges.check().unwrap().charges(), [charge.cost(3).unwrap()]);

        let error = charges.push(Charge::new(key, &other)).unwrap_err().to_string();
        assert!(error.contains("quotas with different names"), "{error}");

        let mut more = subjects.iter().map(|s| Charge::new(Key::new(scope, s).unwrap(), &quota));
        let error = more.find_map(|charge| charges.push(charge).err()).unwrap().to_string();
        assert!(error.contains("got more than 64 charges"), "{error}");

        let log: Quota = "10/s sliding_log".parse().unwrap();
        let mut logs = Charges::new();
        let mut more = subjects.iter().map(|s| Charge::new(Key::new(scope, s).unwrap(), &log));
        let error = more.find_map(|charge| logs.push(charge).err()).unwrap().to_string();
        assert!(error.contains("more than 24 charges by sliding_log and concurrency"), "{error}");
        assert_eq!(logs.check().unwrap().charges().len(), LIST_CHARGES_MAX);
        logs.push(charge).unwrap();

        let big = charge.cost(LIMIT_MAX.into()).unwrap();
        assert!(charges.push(big).unwrap_err().to_string().starts_with("cost: got 1000000003"));
        assert!(charge.cost(u64::MAX).is_err());
        let beyond = charge.cost(COST_BEYOND.into()).unwrap();
        assert!(beyond.cost(u64::from(COST_BEYOND) + 1).is_err());
        let most =
            Quota::new(crate::Algorithm::FixedWindow, LIMIT_MAX.into(), std::time::Duration::from_secs(1));
        assert!(beyond.cost > most.unwrap().cost_max(), "no quota has room for it");
    }
}
