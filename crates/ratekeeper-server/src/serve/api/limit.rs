//! Calls about charges without a policy.

use std::time::Duration;

use ratekeeper::Demand;

use super::call::{LimitCall, RawCharges, ToldDecision};
use super::charges::Prepared;
use super::names::is_unnamed;
use super::problem::Problem;
use super::refund::{Refund, Refunded};
use super::told::Decided;
use super::value::Few;
use super::{Api, input};
use crate::serve::admin::Caller;

/// The same demand, under the id that the call says.
fn under<'a>(demand: Demand<'a>, once: Option<(&'a str, Duration)>) -> Result<Demand<'a>, Problem> {
    match once {
        Some((id, keep)) => demand.once(id, keep).map_err(input),
        None => Ok(demand),
    }
}

impl Api {
    /// Judges charges and charges them. Nothing here waits on a store that needs no I/O.
    pub(super) async fn limit_call(&self, call: &LimitCall<'_>) -> Result<Decided, Problem> {
        if !self.waits() {
            let mut decided = Decided::default();
            return self.limit_now(call, &mut decided).map(|()| decided);
        }
        let (once, prepared) = (call.once.said()?, Prepared::new(&call.raw)?);
        let demand = under(prepared.whole(self), once)?;
        let decision = demand.check().await.map_err(input)?;
        prepared.note(self, &decision);
        let decided = Decided::new(decision, &demand);
        self.receipts.renew(self.limiter.store()).await;
        Ok(decided)
    }

    /// The same on a store that needs no I/O, in the caller's place, because a decision is large.
    pub(super) fn limit_now(&self, call: &LimitCall<'_>, decided: &mut Decided) -> Result<(), Problem> {
        let (once, prepared) = (call.once.said()?, Prepared::new(&call.raw)?);
        let mut demand = prepared.whole(self);
        if once.is_some() {
            demand = under(demand, once)?;
        }
        demand.now().check_into(&mut decided.decision).map_err(input)?;
        prepared.note(self, &decided.decision);
        decided.number(&demand);
        Ok(())
    }

    /// What charges would meet; under an id that is known, what is remembered.
    pub(super) async fn peek_charges(
        &self,
        raw: &RawCharges<'_>,
        once: Option<(&str, Duration)>,
    ) -> Result<Decided, Problem> {
        let prepared = Prepared::new(raw)?;
        let demand = under(prepared.whole(self), once)?;
        Ok(Decided::new(demand.peek().await.map_err(input)?, &demand))
    }

    pub(super) async fn reserve_charges(
        &self,
        raw: &RawCharges<'_>,
        id: &str,
        hold: Duration,
    ) -> Result<Decided, Problem> {
        let prepared = Prepared::new(raw)?;
        prepared.estimated()?;
        let demand = prepared.whole(self);
        let decision = demand.reserve(id, hold).await.map_err(input)?;
        prepared.note(self, &decision);
        Ok(Decided::new(decision, &demand).without_receipts())
    }

    /// Gives back what was charged.
    pub(super) async fn refund_charges<'c>(
        &self,
        raw: &RawCharges<'_>,
        told: &'c ToldDecision<'_>,
        units: u32,
    ) -> Result<Refunded<'c>, Problem> {
        let (prepared, names) = (Prepared::new(raw)?, raw.labels());
        let demand = prepared.whole(self);
        let refund = Refund::read(told, self.judge(&demand).await, |name| {
            names.contains(&name) || is_unnamed(name) && names.iter().any(|own| is_unnamed(own))
        })?;
        refund.give_back(&demand, units).await
    }

    pub(super) async fn reset_charges(
        &self,
        caller: &Caller,
        raw: &RawCharges<'_>,
    ) -> Result<usize, Problem> {
        let (prepared, names) = (Prepared::new(raw)?, raw.labels());
        let keys = raw.charges.iter().flat_map(|Few(charges)| charges).map(|charge| charge.key.as_str());
        let about = names.iter().copied().zip(keys).collect();
        self.reset_audited(caller, about, &prepared.whole(self)).await
    }
}
