//! Charges without a policy: whoever calls says key, quota and cost.
//!
//! Their counters are in a space of their own. Names stand behind `/limit/`, and no
//! service of a policy can be called so, because none may have a slash in its name.
//! Keys get a full stop behind them, so that none reads like
//! `endpoint:organisation:project`, which stores may share with Application Kit.

use std::sync::Arc;

use ratekeeper::{
    Algorithm, Charge, Charges, Decision, DecisionParts, Emergency, Enforcement, Field, InvalidInput, Key,
    LIMIT_MAX, Name, OverrideScope, Quota, Verdict,
};
use smallvec::SmallVec;

use super::call::{ChargeCall, KEY_BYTES_MAX, OverridesCall, RawCharges, ToldDecision};
use super::names::{Named, Names};
use super::problem::Problem;
use super::refund::{charged, told_limit};
use super::value::{Few, Text};

/// What stands behind all keys: nothing that ends a number.
const BEHIND_KEYS: char = '.';
/// Charges that are prepared without allocating.
const INLINE: usize = 4;

/// What becomes of charges when no store can be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OnOutage {
    #[default]
    Allow,
    Deny,
}

/// The charges of a call, checked.
#[derive(Debug)]
pub(super) struct Asked<'c> {
    charges: SmallVec<[Prepared<'c>; INLINE]>,
    pub(super) on_outage: OnOutage,
}

#[derive(Debug)]
struct Prepared<'c> {
    named: Arc<Named>,
    subject: String,
    quota: Quota,
    cost: u64,
    enforcement: Enforcement,
    emergency: Emergency,
    flat: bool,
    overrides: Option<OverrideScope<'c>>,
}

impl<'c> Asked<'c> {
    pub(super) fn new(call: &'c RawCharges<'c>, names: &Names) -> Result<Self, Problem> {
        let Some(Few(calls)) = &call.charges else { return Err(Problem::missing("charges")) };
        if calls.is_empty() {
            return Err(Problem::wrong("charges", "at least one charge"));
        }
        let mut charges: SmallVec<[Prepared<'c>; INLINE]> = SmallVec::with_capacity(calls.len());
        for (index, charge) in calls.iter().enumerate() {
            let prepared = Prepared::unnamed(charge, names);
            charges.push(prepared.map_err(|problem| problem.within(&place(index)))?);
        }
        let watches = charges.iter().all(|prepared| prepared.enforcement == Enforcement::Shadow);
        let on_outage = match call.on_outage.as_ref().map(Text::as_str) {
            None | Some("allow") => OnOutage::Allow,
            // What only watches denies nobody.
            Some("deny") if watches => OnOutage::Allow,
            Some("deny") => OnOutage::Deny,
            Some(_) => return Err(Problem::wrong("on_outage", "allow or deny")),
        };
        // Last, because names are never forgotten: what is refused uses up none.
        for (index, (prepared, charge)) in charges.iter_mut().zip(calls).enumerate() {
            if let Some(name) = &charge.name {
                let found = names.find(name.as_str());
                prepared.named = found.map_err(|problem| problem.within(&place(index)))?;
            }
        }
        Ok(Self { charges, on_outage })
    }

    /// All of them, to be checked together.
    pub(super) fn charges(&self) -> Result<Charges<'_>, Problem> {
        let mut charges = Charges::new();
        for (index, prepared) in self.charges.iter().enumerate() {
            let charge = prepared.charge().and_then(|charge| charges.push(charge));
            charge.map_err(|error| match error.field {
                // What is wrong between several of them.
                Field::Check => Problem::input(&error),
                _ => Problem::input(&error).within(&place(index)),
            })?;
        }
        Ok(charges)
    }

    /// Refuses what an estimate cannot be.
    pub(super) fn estimated(&self) -> Result<(), Problem> {
        let nothing = self.charges.iter().position(|prepared| prepared.cost == 0);
        nothing.map_or(Ok(()), |index| {
            let problem = Problem::wrong("cost", "an estimate of at least 1: nothing cannot be settled");
            Err(problem.within(&place(index)))
        })
    }

    /// Notes what became of each; the keys that were denied go to `denied`.
    pub(super) fn note(
        &self,
        names: &Names,
        charges: &Charges<'_>,
        decision: &Decision,
        mut denied: impl FnMut(Name, &str),
    ) {
        let Ok(check) = charges.check() else { return };
        // The same key twice is one charge and one verdict.
        for (index, charge) in check.charges().iter().enumerate() {
            // Without the store, there is none.
            let verdict = decision.verdicts().get(index);
            let counter = charge.key();
            let same = |prepared: &&Prepared<'_>| {
                prepared.named.name == counter.scope() && prepared.subject.as_bytes() == counter.subject()
            };
            let Some(prepared) = self.charges.iter().find(same) else { continue };
            names.outcomes(&prepared.named).note(decision, verdict);
            if !decision.is_allowed() && verdict.is_some_and(Verdict::is_denied) {
                denied(prepared.named.name, prepared.key());
            }
        }
    }

    /// The decision that was told, as far as a refund of these charges needs it.
    pub(super) fn told(&self, charges: &Charges<'_>, told: &ToldDecision<'_>) -> Result<Decision, Problem> {
        let check = charges.check().map_err(|error| Problem::input(&error))?;
        let (charges, limits) = (check.charges(), &told.limits.0);
        let names = charges.iter().map(|charge| charge.key().scope().label());
        if !names.eq(limits.iter().map(|limit| limit.name.as_str())) {
            return Err(Problem::wrong("decision.limits", "what the decision on these charges told of each"));
        }
        let mut verdicts = Vec::with_capacity(charges.len());
        for ((charge, limit), index) in charges.iter().zip(limits).zip(0..) {
            let charged = charged(limit).map_err(|problem| problem.within(&told_limit(index)))?;
            verdicts.push(charged.under(charge.key().scope()));
        }
        Ok(DecisionParts { verdicts, ..DecisionParts::default() }.into())
    }

    /// The counters they stand in.
    pub(super) fn counters(&self) -> Result<Vec<(Key<'_>, Algorithm)>, Problem> {
        let counters =
            self.charges.iter().map(|prepared| Ok((prepared.counter()?, prepared.quota.algorithm())));
        counters.collect::<Result<_, InvalidInput>>().map_err(|error| Problem::input(&error))
    }
}

fn place(index: usize) -> String {
    format!("charges[{index}]")
}

impl<'c> Prepared<'c> {
    /// A charge that is right but for its name, which is looked at last.
    fn unnamed(call: &'c ChargeCall<'c>, names: &Names) -> Result<Self, Problem> {
        let key = call.key.as_str();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Problem::wrong("key", format!("1 to {KEY_BYTES_MAX} bytes; hash what is longer")));
        }
        let mut subject = String::with_capacity(key.len() + 1);
        subject.push_str(key);
        subject.push(BEHIND_KEYS);
        let emergency = match call.emergency.as_ref().map(Text::as_str) {
            None => Emergency::Off,
            Some("lift") => Emergency::Lift,
            Some("block") => Emergency::Block,
            Some(_) => return Err(Problem::wrong("emergency", "lift or block")),
        };
        let cost = call.cost.unwrap_or(1);
        if cost > LIMIT_MAX.into() {
            return Err(cost_out_of_range());
        }
        Ok(Self {
            named: Arc::clone(&names.unnamed),
            subject,
            quota: quota(call.quota.as_str(), call.algorithm.as_ref().map(Text::as_str))?,
            cost,
            enforcement: if call.shadow == Some(true) { Enforcement::Shadow } else { Enforcement::Enforce },
            emergency,
            flat: call.flat == Some(true),
            overrides: call.overrides.as_ref().map(scope).transpose()?,
        })
    }

    fn counter(&self) -> Result<Key<'_>, InvalidInput> {
        Key::new(self.named.name, &self.subject)
    }

    fn key(&self) -> &str {
        self.subject.strip_suffix(BEHIND_KEYS).unwrap_or(&self.subject)
    }

    fn charge(&self) -> Result<Charge<'_>, InvalidInput> {
        let charge = Charge::new(self.counter()?, &self.quota).cost(self.cost)?;
        let charge = charge.enforcement(self.enforcement).emergency(self.emergency);
        let charge = if self.flat { charge.flat() } else { charge };
        Ok(match self.overrides {
            Some(scope) => charge.overridable(scope),
            None => charge,
        })
    }
}

/// A quota, with its algorithm in the text or beside it.
fn quota(text: &str, algorithm: Option<&str>) -> Result<Quota, Problem> {
    let parsed = |text: &str| text.parse::<Quota>().map_err(|error| Problem::wrong_input("quota", &error));
    let Some(algorithm) = algorithm else { return parsed(text) };
    let named = |word: &str| Algorithm::ALL.into_iter().find(|known| known.as_str() == word);
    let Some(beside) = named(algorithm) else {
        let names = Algorithm::ALL.map(Algorithm::as_str).join(", ");
        return Err(Problem::wrong("algorithm", format!("one of {names}")));
    };
    match text.split_ascii_whitespace().find_map(named) {
        Some(within) if within == beside => parsed(text),
        Some(within) => Err(Problem::wrong("algorithm", format!("{within}, as the quota says"))),
        None => parsed(&[text, " ", algorithm].concat()),
    }
}

fn scope<'c>(call: &'c OverridesCall<'c>) -> Result<OverrideScope<'c>, Problem> {
    let (endpoint, organisation) = (call.endpoint.as_str(), call.organisation.as_str());
    let scope = match &call.project {
        Some(project) => OverrideScope::project(endpoint, organisation, project.as_str()),
        None => OverrideScope::organisation(endpoint, organisation),
    };
    scope.map_err(|error| Problem::wrong_input("overrides", &error))
}

pub(super) fn cost_out_of_range() -> Problem {
    Problem::wrong("cost", format!("a whole number from 0 to {LIMIT_MAX}"))
}

impl Problem {
    /// What the library says of a field that this call has under its own name.
    pub(super) fn wrong_input(field: &str, error: &InvalidInput) -> Self {
        Problem::wrong(field, format!("{}; got {}", error.expected, error.got))
    }
}
