//! Charges without a policy: whoever calls says key, quota and cost.
//!
//! Their counters are in a space of their own. Names stand behind `/limit/`, and no
//! service of a policy can be called so, because none may have a slash in its name.
//! Keys get a full stop behind them, so that none reads like
//! `endpoint:organisation:project`, which stores may share with Application Kit.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use ratekeeper::{
    Algorithm, Charge, Charges, Decision, DecisionParts, Emergency, Enforcement, InvalidInput, Key,
    LIMIT_MAX, Name, OverrideScope, Quota, Receipt, VerdictParts,
};
use smallvec::SmallVec;

use super::call::{Call, ChargeCall, Few, KEY_BYTES_MAX, OverridesCall, Text, ToldDecision, ToldLimit};
use super::problem::Problem;
use crate::serve::metrics::Outcomes;

/// Names that charges may use in the life of a server. Names are for people and
/// headers, like those of rules; what there are many of are keys.
pub const LIMIT_NAMES_MAX: usize = 1_000;
/// The name of charges that have none.
const NAME_DEFAULT: &str = "limit";
/// What stands before all names: nothing that a policy could say.
const SPACE: &str = "/limit";
/// What stands behind all keys: nothing that ends a number.
const BEHIND_KEYS: char = '.';
/// The latest instant that a receipt can name: stores count no further.
const RECEIPT_MAX: u64 = 1 << 53;
/// Charges that are prepared without allocating.
const INLINE: usize = 4;

/// The names in use, each with its counts.
#[derive(Debug)]
pub(crate) struct Names {
    unnamed: Arc<Named>,
    others: RwLock<HashMap<Box<str>, Arc<Named>>>,
}

/// A name, and what was decided under it.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: Name,
    pub(crate) outcomes: Outcomes,
}

impl Names {
    pub(super) fn new() -> Result<Self, InvalidInput> {
        Ok(Self { unnamed: named(NAME_DEFAULT)?, others: RwLock::default() })
    }

    fn find(&self, name: Option<&str>) -> Result<Arc<Named>, Problem> {
        let Some(text) = name.filter(|name| *name != NAME_DEFAULT) else {
            return Ok(Arc::clone(&self.unnamed));
        };
        if let Some(known) = self.others.read().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(Arc::clone(known));
        }
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        if others.len() >= LIMIT_NAMES_MAX && !others.contains_key(text) {
            let expected =
                format!("one of the {LIMIT_NAMES_MAX} names in use; what differs by user belongs in the key");
            return Err(Problem::wrong("name", expected));
        }
        let new = named(text).map_err(|error| Problem::input(&error))?;
        Ok(Arc::clone(others.entry(text.into()).or_insert(new)))
    }

    /// All names, for metrics.
    pub(crate) fn all(&self) -> Vec<Arc<Named>> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.unnamed).chain(others.values()).cloned().collect()
    }
}

fn named(name: &str) -> Result<Arc<Named>, InvalidInput> {
    Ok(Arc::new(Named { name: Name::within(SPACE, name)?, outcomes: Outcomes::default() }))
}

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
    pub(super) fn new(call: &'c Call<'c>, names: &Names) -> Result<Self, Problem> {
        let Some(Few(calls)) = &call.charges else { return Err(Problem::missing("charges")) };
        let mut charges = SmallVec::with_capacity(calls.len());
        for (index, charge) in calls.iter().enumerate() {
            let prepared = Prepared::new(charge, names);
            charges.push(prepared.map_err(|problem| problem.within(&format!("charges[{index}]")))?);
        }
        let on_outage = match call.on_outage.as_ref().map(Text::as_str) {
            None | Some("allow") => OnOutage::Allow,
            Some("deny") => OnOutage::Deny,
            Some(_) => return Err(Problem::wrong("on_outage", "allow or deny")),
        };
        Ok(Self { charges, on_outage })
    }

    /// All of them, to be checked together.
    pub(super) fn charges(&self) -> Result<Charges<'_>, Problem> {
        let mut charges = Charges::new();
        for prepared in &self.charges {
            let charge = prepared.charge().and_then(|charge| charges.push(charge));
            charge.map_err(|error| Problem::input(&error))?;
        }
        if self.charges.is_empty() {
            return Err(Problem::wrong("charges", "at least one charge"));
        }
        Ok(charges)
    }

    /// Notes what became of each; the keys that were denied go to `denied`.
    pub(super) fn note(
        &self,
        charges: &Charges<'_>,
        decision: &Decision,
        mut denied: impl FnMut(Name, &str),
    ) {
        let Ok(check) = charges.check() else { return };
        // The same key twice is one charge and one verdict.
        for (charge, verdict) in check.charges().iter().zip(decision.verdicts()) {
            let counter = charge.key();
            let same = |prepared: &&Prepared<'_>| {
                prepared.named.name == counter.scope() && prepared.subject.as_bytes() == counter.subject()
            };
            let Some(prepared) = self.charges.iter().find(same) else { continue };
            prepared.named.outcomes.note(decision, Some(verdict));
            if !decision.is_allowed() && verdict.is_denied() {
                denied(prepared.named.name, prepared.key());
            }
        }
    }

    /// The decision that was told, as far as a refund of these charges needs it.
    pub(super) fn told(&self, charges: &Charges<'_>, told: &ToldDecision<'_>) -> Result<Decision, Problem> {
        let check = charges.check().map_err(|error| Problem::input(&error))?;
        let mut verdicts = Vec::with_capacity(check.charges().len());
        for (index, charge) in check.charges().iter().enumerate() {
            let name = charge.key().scope();
            let parts = match told.limits.0.get(index).filter(|limit| limit.name.as_str() == name.label()) {
                Some(limit) => charged(limit)
                    .map(|charged| charged.under(name))
                    .map_err(|problem| problem.within(&format!("decision.limits[{index}]")))?,
                None => VerdictParts::new(name, *charge.quota()),
            };
            verdicts.push(parts);
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

impl<'c> Prepared<'c> {
    fn new(call: &'c ChargeCall<'c>, names: &Names) -> Result<Self, Problem> {
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
        Ok(Self {
            named: names.find(call.name.as_ref().map(Text::as_str))?,
            subject,
            quota: quota(call.quota.as_str(), call.algorithm.as_ref().map(Text::as_str))?,
            cost: call.cost.unwrap_or(1),
            enforcement: if call.shadow { Enforcement::Shadow } else { Enforcement::Enforce },
            emergency,
            flat: call.flat,
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

/// What was charged to one quota.
pub(super) struct Charged {
    quota: Quota,
    cost: u32,
    receipt: Option<Receipt>,
}

impl Charged {
    pub(super) fn under(&self, name: Name) -> VerdictParts {
        VerdictParts { cost: self.cost, receipt: self.receipt, ..VerdictParts::new(name, self.quota) }
    }
}

/// What was told of one quota, read again.
pub(super) fn charged(limit: &ToldLimit<'_>) -> Result<Charged, Problem> {
    let quota = limit.quota.as_str().parse().map_err(|error| Problem::wrong_input("quota", &error))?;
    if limit.cost > LIMIT_MAX {
        return Err(Problem::wrong("cost", format!("a whole number from 0 to {LIMIT_MAX}")));
    }
    let receipt = limit.receipt.as_ref().map(|receipt| {
        let parsed = receipt.as_str().split_once('.').and_then(|(at, detail)| {
            let at = at.parse().ok().filter(|at| *at <= RECEIPT_MAX)?;
            Some(Receipt { at, detail: detail.parse().ok()? })
        });
        parsed.ok_or_else(|| Problem::wrong("receipt", "a receipt as a decision has it"))
    });
    Ok(Charged { quota, cost: limit.cost, receipt: receipt.transpose()? })
}

impl Problem {
    /// What the library says of a field that this call has under its own name.
    fn wrong_input(field: &str, error: &InvalidInput) -> Self {
        Problem::wrong(field, format!("{}; got {}", error.expected, error.got))
    }
}
