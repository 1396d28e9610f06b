//! Charges without a policy: the caller says key, quota and cost.
//!
//! Their counters are in a space of their own. Names stand behind `/limit/`, and no
//! service of a policy can be called so, because none may have a slash in its name.
//! Keys get a full stop behind them, so that none reads like
//! `endpoint:organisation:project`, which stores may share with Application Kit.

use std::borrow::Cow;

use ratekeeper::bounds::LIMIT_MAX;
use ratekeeper::{
    Algorithm, Decision, Demand, Emergency, Enforcement, InvalidInput, OnOutage, Quota, RawCharge, RawName,
    Verdict,
};
use smallvec::SmallVec;

use super::Api;
use super::call::{ChargeCall, KEY_BYTES_MAX, OverridesCall, RawCharges};
use super::names::{LIMIT_NAME_BYTES_MAX, NAME_DEFAULT, SPACE, numbered};
use super::problem::Problem;
use super::value::{Few, Text, Whole};

/// What stands behind all keys: nothing that ends a number.
pub const BEHIND_KEYS: char = '.';
/// Charges that are prepared without allocating. They are large, and most calls have one.
const INLINE: usize = 1;
/// Names of charges that are collected without allocating.
const INLINE_NAMES: usize = 4;

/// The charges of a call, checked.
#[derive(Debug)]
pub(super) struct Prepared<'c> {
    charges: SmallVec<[RawCharge<'c>; INLINE]>,
    on_outage: OnOutage,
}

/// The names of the charges of a call, in their order.
pub(super) type Labelled<'c> = SmallVec<[&'c str; INLINE_NAMES]>;

impl RawCharges<'_> {
    /// What an answer calls the charges. Those without a name are told apart.
    pub(super) fn labels(&self) -> Labelled<'_> {
        let charges = self.charges.iter().flat_map(|Few(charges)| charges);
        let mut is_first = true;
        let labels = charges.enumerate().map(|(index, charge)| match &charge.name {
            None if !std::mem::take(&mut is_first) => numbered(index),
            _ => charge.label(),
        });
        labels.collect()
    }
}

impl ChargeCall<'_> {
    fn label(&self) -> &str {
        self.name.as_ref().map_or(NAME_DEFAULT, Text::as_str)
    }
}

impl<'c> Prepared<'c> {
    pub(super) fn new(raw: &'c RawCharges<'c>) -> Result<Self, Problem> {
        let Some(Few(calls)) = &raw.charges else { return Err(Problem::missing("charges")) };
        if calls.is_empty() {
            return Err(Problem::wrong("charges", "at least one charge"));
        }
        let mut charges: SmallVec<[RawCharge<'c>; INLINE]> = SmallVec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            charges.push(charge(call).map_err(|problem| problem.within(&place(index)))?);
        }
        let on_outage = match raw.on_outage.as_ref().map(Text::as_str) {
            None => OnOutage::Allow,
            Some(word) => {
                let found = OnOutage::NAMES.into_iter().find(|(name, _)| *name == word);
                found.ok_or_else(|| Problem::wrong("on_outage", "allow, local or deny"))?.1
            }
        };
        Ok(Self { charges, on_outage })
    }

    /// What they ask for.
    pub(super) fn whole<'s>(&'s self, api: &'s Api) -> Demand<'s> {
        api.limiter().engine().raw(&self.charges, self.on_outage)
    }

    /// Refuses what an estimate cannot be.
    pub(super) fn estimated(&self) -> Result<(), Problem> {
        let nothing = self.charges.iter().position(|charge| charge.units() == 0);
        nothing.map_or(Ok(()), |index| {
            let problem = Problem::wrong("cost", "an estimate of at least 1: nothing cannot be settled");
            Err(problem.within(&place(index)))
        })
    }

    /// Notes what became of each.
    pub(super) fn note(&self, api: &Api, decision: &Decision) {
        if decision.verdicts().is_empty() {
            // Without the store, there are none.
            self.charges.iter().for_each(|charge| api.names().note(charge.name(), decision, None));
        }
        for verdict in decision.verdicts() {
            let Some(charge) = self.charges.get(verdict.index()) else { continue };
            api.names().note(charge.name(), decision, Some(verdict));
            let key = charge.key().strip_suffix(BEHIND_KEYS).unwrap_or(charge.key());
            api.note_headroom(decision, verdict, || Some(([SPACE, "/", charge.name()].concat().into(), key)));
            if !decision.is_allowed() && Verdict::is_denied(verdict) {
                api.hot.denied(&[SPACE, "/", charge.name()].concat(), key);
            }
        }
    }
}

fn place(index: usize) -> String {
    format!("charges[{index}]")
}

fn charge<'c>(call: &'c ChargeCall<'c>) -> Result<RawCharge<'c>, Problem> {
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
    let wrong_name =
        || Problem::wrong("name", format!("1 to {LIMIT_NAME_BYTES_MAX} printable ASCII characters"));
    if call.label().len() > LIMIT_NAME_BYTES_MAX {
        return Err(wrong_name());
    }
    let name = RawName::within(SPACE, call.label()).map_err(|_| wrong_name())?;
    let quota = quota(call.quota.as_str(), call.algorithm.as_ref().map(Text::as_str))?;
    let charge = RawCharge::new(name, subject, quota);
    let charge = charge.cost(call.cost.map_or(1, |Whole(cost)| cost)).map_err(|_| cost_out_of_range())?;
    let charge = match call.shadow {
        Some(true) => charge.enforcement(Enforcement::Shadow),
        _ => charge,
    };
    let charge = if call.flat == Some(true) { charge.flat() } else { charge };
    let charge = charge.emergency(emergency);
    match &call.overrides {
        Some(overrides) => overridable(charge, overrides),
        None => Ok(charge),
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

fn overridable<'c>(charge: RawCharge<'c>, call: &'c OverridesCall<'c>) -> Result<RawCharge<'c>, Problem> {
    let project = call.project.as_ref().map(|project| Cow::Borrowed(project.as_str()));
    let charge = charge.overridable(call.endpoint.as_str(), call.organisation.as_str(), project);
    charge.map_err(|error| Problem::wrong_input("overrides", &error))
}

fn cost_out_of_range() -> Problem {
    Problem::wrong("cost", format!("a whole number from 0 to {LIMIT_MAX}"))
}

impl Problem {
    /// What the library says of a field that this call has under its own name.
    pub(super) fn wrong_input(field: &str, error: &InvalidInput) -> Self {
        Problem::wrong(field, format!("{}; got {}", error.expected, error.got))
    }
}
