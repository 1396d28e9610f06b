//! A decision as it was told, read again for what it charged.

use ratekeeper::{LIMIT_MAX, Name, Origin, Quota, Receipt, VerdictParts};

use super::call::{ToldDecision, ToldLimit};
use super::charges::cost_out_of_range;
use super::problem::Problem;
use super::value::{Few, Text};

/// The latest instant that a receipt can name: stores count no further.
const RECEIPT_MAX: u64 = 1 << 53;

/// Where a limit of a decision stands.
pub(super) fn told_limit(index: usize) -> String {
    format!("decision.limits[{index}]")
}

impl ToldDecision<'_> {
    /// Refuses what no decision tells, also where nothing would be given back.
    pub(super) fn check_limits(&self) -> Result<(), Problem> {
        for (index, limit) in self.limits.0.iter().enumerate() {
            charged(limit).map(drop).map_err(|problem| problem.within(&told_limit(index)))?;
        }
        Ok(())
    }

    /// Who counted what it charged; `None` if it charged nothing, so that nothing can be
    /// given back.
    pub(super) fn counted_by(&self) -> Result<Option<Origin>, Problem> {
        let Few(limits) = &self.limits;
        let origin = match self.origin.as_ref().map(Text::as_str) {
            None | Some("store" | "repeat") => Origin::Store,
            Some("outage") => Origin::Outage,
            Some("unlimited") => Origin::Unlimited,
            Some(_) => {
                return Err(Problem::wrong("decision.origin", "store, repeat, outage or unlimited"));
            }
        };
        let is_charged = match origin {
            Origin::Store | Origin::Repeat => limits.is_empty() || limits.iter().any(ToldLimit::is_charged),
            Origin::Outage | Origin::Unlimited => limits.iter().any(ToldLimit::is_charged),
        };
        Ok(Some(origin).filter(|_| self.allowed != Some(false) && is_charged))
    }
}

impl ToldLimit<'_> {
    /// Only what was charged has a receipt.
    pub(super) fn is_charged(&self) -> bool {
        self.receipt.is_some() && self.cost > 0
    }
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
        return Err(cost_out_of_range());
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
