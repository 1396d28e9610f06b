//! A decision as it was told, read again for what it charged.

use ratekeeper::bounds::RECEIPT_MAX;
use ratekeeper::{Decision, DecisionParts, Demand, Level, Name, Origin, Timestamp, VerdictParts};
use serde_json::{Value, json};

use super::call::{ToldDecision, ToldLimit};
use super::problem::Problem;
use super::receipt::{self, About, Override, Receipts};
use super::value::{Few, Text, Whole};

/// What a decision charged.
pub(super) struct Refund<'c> {
    decision: Decision,
    is_charged: bool,
    /// The limits of which nothing can be given back, and why.
    refused: Vec<(&'c str, &'static str)>,
}

/// What was given back.
pub(super) struct Refunded<'c> {
    units: u64,
    refused: Vec<(&'c str, &'static str)>,
}

/// Who can tell a receipt from one that is made up or too old.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge<'j, 'd> {
    pub(super) receipts: &'j Receipts,
    /// What is given back to.
    pub(super) demand: &'j Demand<'d>,
    pub(super) now: Timestamp,
}

impl<'c> Refund<'c> {
    /// Reads a decision that was told, on limits whose names `is_known` knows. What cannot be is refused, also
    /// where nothing would be given back.
    pub(super) fn read(
        told: &'c ToldDecision<'_>,
        judge: Judge<'_, '_>,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Self, Problem> {
        let origin = told.counted_by()?;
        let Few(limits) = &told.limits;
        let (mut verdicts, mut refused) = (Vec::with_capacity(limits.len()), Vec::new());
        let mut at = Timestamp::default();
        for (index, limit) in limits.iter().enumerate() {
            let charged = judge.charged(limit, origin);
            match charged.map_err(|problem| problem.within(&format!("decision.limits[{index}]")))? {
                Ok((verdict, decided_at)) => {
                    verdicts.push(verdict);
                    at = at.max(decided_at);
                }
                Err(why) => refused.push((limit.name.as_str(), why)),
            }
        }
        // A decision of a store has limits; without any, it is not the whole decision.
        let is_cut = limits.is_empty() && origin == Origin::Store;
        let is_charged = told.allowed != Some(false) && (is_cut || limits.iter().any(ToldLimit::is_charged));
        let is_of_this = limits.iter().any(|limit| is_known(limit.name.as_str()));
        if is_charged && (!is_of_this || has_twice(&verdicts)) {
            let expected = "what the decision on this request said of its limits";
            return Err(Problem::wrong("decision.limits", expected));
        }
        let decision = DecisionParts { origin, at, verdicts, ..DecisionParts::default() };
        Ok(Self { decision: decision.into(), is_charged, refused })
    }

    /// Gives it back. Charges and verdicts are paired by counter.
    pub(super) async fn give_back(self, demand: &Demand<'_>, units: u32) -> Result<Refunded<'c>, Problem> {
        let Self { decision, is_charged, refused } = self;
        if !is_charged || units == 0 || !demand.is_limited() {
            return Ok(Refunded { units: 0, refused });
        }
        let units = demand.refund_told(decision, units).await.map_err(Problem::store)?;
        Ok(Refunded { units, refused })
    }
}

impl Refunded<'_> {
    pub(super) fn json(&self) -> Value {
        let mut answer = json!({ "refunded": self.units > 0, "units": self.units });
        if !self.refused.is_empty() {
            let refused = self.refused.iter().map(|(name, why)| json!({ "name": name, "why": why }));
            answer["refused"] = refused.collect();
        }
        answer
    }
}

impl Judge<'_, '_> {
    /// What was told of one quota, read again, and when it was decided; or why nothing of it can be given
    /// back. Its name is of no use here: the counter says which it was.
    fn charged(
        self,
        limit: &ToldLimit<'_>,
        origin: Origin,
    ) -> Result<Result<(VerdictParts, Timestamp), &'static str>, Problem> {
        let quota = limit.quota.as_str().parse().map_err(|error| Problem::wrong_input("quota", &error))?;
        let cost = limit.cost.units("cost")?;
        let parts = VerdictParts { cost, ..VerdictParts::new(Name::RAW, quota) };
        let Some(text) = limit.receipt.as_ref().map(Text::as_str) else {
            return Ok(Ok((parts, Timestamp::default())));
        };
        let read = receipt::read(text);
        let read = read.ok_or_else(|| Problem::wrong("receipt", "a receipt as a decision has it"))?;
        let signed = read.signed;
        // One that is of another request is found by nobody, and so gives nothing back.
        let counters = self.demand.counters_of(signed.counter);
        let mut level = Level::Default;
        if let Some(known) = counters.first() {
            let (quota, counter, is_own) = (limit.quota.as_str().as_bytes(), &known.name, known.is_own);
            // The signature says whether it was made under an override, whose window says nothing of the counter's side.
            let signed = [Level::Default, Level::Project].into_iter().find(|level| {
                let under = Override::of(*level, known);
                self.receipts.has_signed(&read, About { origin, quota, cost, counter, is_own, under })
            });
            match signed {
                Some(signed) if counters.len() == 1 => level = signed,
                _ => return Ok(Err("unsigned")),
            }
        }
        let (receipt, counter, nonce) = (Some(signed.receipt), signed.counter, signed.nonce);
        let parts = VerdictParts { receipt, counter, nonce, level, ..parts };
        let counted_until = ratekeeper::Verdict::from(parts).counted_until();
        if signed.at.after(RECEIPT_MAX) <= self.now || counted_until <= self.now.as_micros() {
            return Ok(Err("expired"));
        }
        Ok(Ok((parts, signed.at)))
    }
}

impl ToldDecision<'_> {
    /// Who counted what it charged.
    fn counted_by(&self) -> Result<Origin, Problem> {
        match self.origin.as_ref().map(Text::as_str) {
            None | Some("store" | "repeat") => Ok(Origin::Store),
            Some("outage") => Ok(Origin::Outage),
            Some("unlimited") => Ok(Origin::Unlimited),
            Some("budget") => Ok(Origin::Budget),
            Some(_) => Err(Problem::wrong("decision.origin", "store, repeat, outage, unlimited or budget")),
        }
    }
}

impl ToldLimit<'_> {
    /// Only what was charged has a receipt.
    fn is_charged(&self) -> bool {
        self.receipt.is_some() && self.cost > Whole(0)
    }
}

/// Whether one charge stands there twice.
fn has_twice(verdicts: &[VerdictParts]) -> bool {
    let same = |one: &VerdictParts, other: &VerdictParts| {
        one.receipt.is_some() && (one.counter, one.receipt) == (other.counter, other.receipt)
    };
    verdicts.iter().enumerate().any(|(index, one)| verdicts[..index].iter().any(|other| same(one, other)))
}
