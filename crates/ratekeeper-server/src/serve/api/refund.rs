//! A decision as it was told, read again for what it charged.

use ratekeeper::bounds::LIMIT_MAX;
use ratekeeper::{Decision, DecisionParts, Demand, Name, Origin, Receipt, VerdictParts};

use super::call::{ToldDecision, ToldLimit};
use super::charges::cost_out_of_range;
use super::problem::Problem;
use super::value::{Few, Text};

/// The latest instant that a receipt can name: stores count no further.
const RECEIPT_MAX: u64 = 1 << 53;

/// What a decision charged.
pub(super) struct Refund {
    decision: Decision,
    is_charged: bool,
}

impl Refund {
    /// Reads a decision that was told, on limits whose names `is_known` knows. What cannot be is refused, also
    /// where nothing would be given back.
    pub(super) fn read(told: &ToldDecision<'_>, is_known: impl Fn(&str) -> bool) -> Result<Self, Problem> {
        let origin = told.counted_by()?;
        let Few(limits) = &told.limits;
        let mut verdicts = Vec::with_capacity(limits.len());
        for (index, limit) in limits.iter().enumerate() {
            let verdict =
                charged(limit).map_err(|problem| problem.within(&format!("decision.limits[{index}]")));
            verdicts.push(verdict?);
        }
        // A decision of a store has limits; without any, it is not the whole decision.
        let is_cut = limits.is_empty() && origin == Origin::Store;
        let is_charged = told.allowed != Some(false) && (is_cut || limits.iter().any(ToldLimit::is_charged));
        let is_of_this = limits.iter().any(|limit| is_known(limit.name.as_str()));
        if is_charged && (!is_of_this || has_twice(&verdicts)) {
            let expected = "what the decision on this request said of its limits";
            return Err(Problem::wrong("decision.limits", expected));
        }
        let decision = DecisionParts { origin, verdicts, ..DecisionParts::default() };
        Ok(Self { decision: decision.into(), is_charged })
    }

    /// Gives it back; says whether there was anything. Charges and verdicts are paired by counter.
    pub(super) async fn give_back(&self, demand: &Demand<'_>, units: u32) -> Result<bool, Problem> {
        if !self.is_charged || units == 0 || !demand.is_limited() {
            return Ok(false);
        }
        demand.refund_told(self.decision.clone(), units).await.map_err(Problem::store)
    }
}

impl ToldDecision<'_> {
    /// Who counted what it charged.
    fn counted_by(&self) -> Result<Origin, Problem> {
        match self.origin.as_ref().map(Text::as_str) {
            None | Some("store" | "repeat") => Ok(Origin::Store),
            Some("outage") => Ok(Origin::Outage),
            Some("unlimited") => Ok(Origin::Unlimited),
            Some(_) => Err(Problem::wrong("decision.origin", "store, repeat, outage or unlimited")),
        }
    }
}

impl ToldLimit<'_> {
    /// Only what was charged has a receipt.
    fn is_charged(&self) -> bool {
        self.receipt.is_some() && self.cost > 0
    }
}

/// Whether one charge stands there twice.
fn has_twice(verdicts: &[VerdictParts]) -> bool {
    let same = |one: &VerdictParts, other: &VerdictParts| {
        one.receipt.is_some() && (one.counter, one.receipt) == (other.counter, other.receipt)
    };
    verdicts.iter().enumerate().any(|(index, one)| verdicts[..index].iter().any(|other| same(one, other)))
}

/// What was told of one quota, read again. Its name is of no use here: the counter says which it was.
fn charged(limit: &ToldLimit<'_>) -> Result<VerdictParts, Problem> {
    let quota = limit.quota.as_str().parse().map_err(|error| Problem::wrong_input("quota", &error))?;
    if limit.cost > LIMIT_MAX {
        return Err(cost_out_of_range());
    }
    let parts = VerdictParts { cost: limit.cost, ..VerdictParts::new(Name::RAW, quota) };
    let Some(text) = limit.receipt.as_ref().map(Text::as_str) else { return Ok(parts) };
    let (receipt, counter) =
        read(text).ok_or_else(|| Problem::wrong("receipt", "a receipt as a decision has it"))?;
    Ok(VerdictParts { receipt: Some(receipt), counter, ..parts })
}

/// Reads `at.detail.counter`, the counter in hexadecimal.
fn read(text: &str) -> Option<(Receipt, u64)> {
    let mut parts = text.split('.');
    let at = parts.next()?.parse().ok().filter(|at| *at <= RECEIPT_MAX)?;
    let detail = parts.next()?.parse().ok()?;
    let counter = parts.next().filter(|counter| counter.len() == 16)?;
    let counter = u64::from_str_radix(counter, 16).ok().filter(|_| parts.next().is_none())?;
    Some((Receipt { at, detail }, counter))
}
