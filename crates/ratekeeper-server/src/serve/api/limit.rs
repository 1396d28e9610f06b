//! Calls about charges without a policy.

use std::time::Duration;

use ratekeeper::{Decision, Origin, Outcome, Reservation, StoreError};

use super::call::{LimitCall, RawCharges, ToldDecision};
use super::charges::{Asked, OnOutage};
use super::problem::Problem;
use super::{Api, input};

impl Api {
    /// Judges charges and charges them, or says (`None`) that it takes a wait for the store.
    pub(super) fn limit_at_once(&self, call: &LimitCall<'_>) -> Result<Option<Decision>, Problem> {
        if call.once.said()?.is_some() {
            return Ok(None);
        }
        let asked = self.asked(&call.raw)?;
        let charges = asked.charges()?;
        let check = charges.check().map_err(input)?;
        let mut decision = Decision::default();
        match self.store.try_check(&check, &mut decision) {
            None => return Ok(None),
            Some(Ok(())) => {}
            Some(Err(error)) => decision = self.without_store(&asked, error)?,
        }
        asked.note(self.names(), &charges, &decision, |name, key| self.hot.denied(name, key));
        Ok(Some(decision))
    }

    /// The same, with the wait. Nothing here waits on a store that needs no I/O.
    pub(super) async fn limit_call(&self, call: &LimitCall<'_>) -> Result<Decision, Problem> {
        match self.limit_at_once(call)? {
            Some(decision) => Ok(decision),
            None => self.limit_waiting(call).await,
        }
    }

    /// The rest of a call that could not be answered at once.
    pub(super) async fn limit_waiting(&self, call: &LimitCall<'_>) -> Result<Decision, Problem> {
        let once = call.once.said()?.map(|(id, keep)| Reservation::once(id, keep).map_err(input));
        let once = once.transpose()?;
        let asked = self.asked(&call.raw)?;
        let charges = asked.charges()?;
        let check = charges.check().map_err(input)?;
        let answer = match &once {
            Some(once) => self.store.reserve(&check, once).await,
            None => self.store.check(&check).await,
        };
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => self.without_store(&asked, error)?,
        };
        asked.note(self.names(), &charges, &decision, |name, key| self.hot.denied(name, key));
        Ok(decision)
    }

    pub(super) async fn peek_charges(&self, raw: &RawCharges<'_>) -> Result<Decision, Problem> {
        let asked = self.asked(raw)?;
        let charges = asked.charges()?;
        let check = charges.check().map_err(input)?;
        let told = self.store.check(&check.peek()).await;
        // Nothing was let through, so nothing failed open.
        told.or_else(|error| self.outage(&asked, error))
    }

    pub(super) async fn reserve_charges(
        &self,
        raw: &RawCharges<'_>,
        id: &str,
        hold: Duration,
    ) -> Result<Decision, Problem> {
        let reservation = Reservation::hold(id, hold).map_err(input)?;
        let asked = self.asked(raw)?;
        asked.estimated()?;
        let charges = asked.charges()?;
        let check = charges.check().map_err(input)?;
        let decision = match self.store.reserve(&check, &reservation).await {
            Ok(decision) => decision,
            Err(error) => self.without_store(&asked, error)?,
        };
        asked.note(self.names(), &charges, &decision, |name, key| self.hot.denied(name, key));
        Ok(decision)
    }

    /// Gives back what was charged; says whether there was anything.
    pub(super) async fn refund_charges(
        &self,
        raw: &RawCharges<'_>,
        told: &ToldDecision<'_>,
        units: u32,
    ) -> Result<bool, Problem> {
        let asked = self.asked(raw)?;
        let charges = asked.charges()?;
        let check = charges.check().map_err(input)?;
        told.check_limits()?;
        if told.counted_by()?.is_none() || units == 0 {
            return Ok(false);
        }
        let decision = asked.told(&charges, told)?;
        self.store.refund(&check, &decision, units).await.map_err(Problem::store)?;
        Ok(true)
    }

    pub(super) async fn reset_charges(&self, raw: &RawCharges<'_>) -> Result<usize, Problem> {
        let asked = self.asked(raw)?;
        asked.charges()?;
        let mut forgotten = 0;
        for (key, algorithm) in asked.counters()? {
            forgotten += usize::from(self.store.reset(key, algorithm).await.map_err(Problem::store)?);
        }
        Ok(forgotten)
    }

    fn asked<'c>(&self, raw: &'c RawCharges<'c>) -> Result<Asked<'c>, Problem> {
        Asked::new(raw, self.names())
    }

    /// What charges say to a store that could not answer, counted.
    #[cold]
    fn without_store(&self, asked: &Asked<'_>, error: StoreError) -> Result<Decision, Problem> {
        let decision = self.outage(asked, error)?;
        self.metrics.outage(decision.outcome());
        Ok(decision)
    }

    #[cold]
    fn outage(&self, asked: &Asked<'_>, error: StoreError) -> Result<Decision, Problem> {
        if let Some(error) = error.into_input() {
            return Err(input(error));
        }
        let outcome = match asked.on_outage {
            OnOutage::Allow => Outcome::Allow,
            OnOutage::Deny => Outcome::Deny,
        };
        Ok(Decision::without_store(outcome, Origin::Outage, self.store.now()))
    }
}
