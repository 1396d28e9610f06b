//! What a limit has charged for a request, for handlers that find out later what it costs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratekeeper::bounds::LIMIT_MAX;
use ratekeeper::{Decision, Demand, Enforcement, Hold, InvalidInput, Verdict};
use ratekeeper_http::HttpOptions;

use crate::denial::DenialBodies;
use crate::handler::{Refused, Why};
use crate::told::Told;

/// Charges of one request that can be given back one by one. Of those before, nothing is given back any more.
const CHARGES_KEPT_MAX: usize = 64;

/// What a limit has charged for a request: the layer around a handler, as an extractor, or what `Apply` has returned.
/// A handler that extracts it twice has the same charges twice.
///
/// A handler that finds out what a request really costs gives back or charges the difference. The fields of the
/// response tell the numbers that hold then.
///
/// What is held (a place in a quota for concurrency, which `Apply` took) is given back when this is dropped, so keep it as
/// long as the work takes.
#[derive(Debug)]
pub struct Admission {
    /// None if the request is not limited.
    demand: Option<Arc<Demand<'static>>>,
    decision: Box<Decision>,
    charged: Arc<Charged>,
    told: Told,
    place: usize,
    words: Words,
    _hold: Option<Hold>,
}

/// How a denial is told.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub(crate) options: HttpOptions,
    pub(crate) bodies: DenialBodies,
    /// Whether no layer or middleware tells the client.
    pub(crate) is_outermost: bool,
}

/// What was charged for a request by one limit, and was not given back.
#[derive(Debug)]
pub(crate) struct Charged {
    /// Each with the units of it that were not given back here.
    charges: Mutex<Vec<(Arc<Decision>, u32)>>,
}

impl Charged {
    /// By the decision that let the request pass.
    pub(crate) fn by(decision: &Decision) -> Self {
        // Places are given back when the request is over, never before.
        let first = decision.clone().without(Verdict::is_at_latest);
        let units = first.verdicts().iter().filter(|verdict| verdict.receipt().is_some()).map(Verdict::cost);
        let units = units.max().unwrap_or(0);
        Self { charges: Mutex::new(vec![(Arc::new(first), units)]) }
    }

    fn add(&self, decision: Decision, units: u32) {
        let mut charges = self.lock();
        if charges.len() >= CHARGES_KEPT_MAX {
            charges.remove(0);
        }
        charges.push((Arc::new(decision), units));
    }

    fn units(&self) -> u64 {
        self.lock().iter().map(|(decision, room)| u64::from(left(decision, *room))).sum()
    }

    /// Charges with what is left of each, the latest first.
    fn latest_first(&self) -> Vec<(Arc<Decision>, u32)> {
        let charges = self.lock();
        charges.iter().rev().map(|(decision, room)| (Arc::clone(decision), left(decision, *room))).collect()
    }

    fn take(&self, decision: &Arc<Decision>, units: u32) {
        let mut charges = self.lock();
        if let Some((_, room)) = charges.iter_mut().find(|(known, _)| Arc::ptr_eq(known, decision)) {
            *room = room.saturating_sub(units);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Arc<Decision>, u32)>> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is left of a charge: a clone of its decision may have been given back by itself.
fn left(decision: &Decision, room: u32) -> u32 {
    room.min(decision.not_given_back())
}

impl Admission {
    pub(crate) fn new(
        demand: Option<Arc<Demand<'static>>>,
        (decision, charged): (Box<Decision>, Arc<Charged>),
        hold: Option<Hold>,
        (told, place): (Told, usize),
        words: Words,
    ) -> Self {
        Self { demand, decision, charged, told, place, words, _hold: hold }
    }

    /// The decision, as it was made.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Units that the request is charged by now.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.charged.units()
    }

    /// Gives up to `units` of what was charged back to each limit, latest charges first; says how many. What has come
    /// back with time since, as in a token bucket that is full again, is not given back once more.
    ///
    /// # Errors
    /// If the request has changed since, so that other keys count for it: an identity that was put in after the
    /// layer, for example. Returned from a handler, it is a 500.
    pub async fn refund(&self, units: u32) -> Result<u32, Refused> {
        let Some(demand) = &self.demand else { return Ok(0) };
        let mut left = units;
        for (decision, room) in self.charged.latest_first() {
            let back = left.min(room);
            if back > 0 {
                demand.refund(&decision, back).await.map_err(|error| self.wrong(error))?;
                self.charged.take(&decision, back);
                left -= back;
            }
        }
        let given = units - left;
        if given > 0
            && let Ok(now) = demand.standing().await
        {
            self.told.catch_up(self.place, &now, i32::try_from(given).unwrap_or(i32::MAX).saturating_neg());
        }
        Ok(given)
    }

    /// Charges `units` more to the limits of this request that take the cost they are given; those that say themselves
    /// what a request costs have counted it. More than 10^9 count as 10^9.
    ///
    /// # Errors
    /// The denial, ready to be returned from a handler: then nothing of it is charged. Also if all of the limits say
    /// themselves what a request costs.
    pub async fn charge(&self, units: u64) -> Result<(), Refused> {
        let Some(demand) = &self.demand else { return Ok(()) };
        let units = u32::try_from(units.min(LIMIT_MAX.into())).unwrap_or(LIMIT_MAX);
        let demand = demand.further(units.into()).map_err(|error| self.wrong(error))?;
        let decision = demand.check().await.map_err(|error| self.wrong(error))?;
        if !decision.is_allowed() {
            self.told.catch_up(self.place, &decision, 0);
            return Err(self.refused(Why::Denied(Box::new(decision))));
        }
        self.told.catch_up(self.place, &decision, i32::try_from(units).unwrap_or(i32::MAX));
        // A request is under way once, however much it costs.
        demand.release(&decision).await.map_err(|error| self.wrong(error))?;
        self.charged.add(decision.without(Verdict::is_at_latest), units);
        Ok(())
    }

    /// Makes the charge of this request `actual` units: gives the difference back, or charges it as far as there is room,
    /// because the work is done. Says how many units are charged now.
    ///
    /// # Errors
    /// As [`Admission::refund`] and [`Admission::charge`], except that a limit without room is none.
    pub async fn settle(&self, actual: u64) -> Result<u64, Refused> {
        let charged = self.charged();
        if let Some(over) = charged.checked_sub(actual) {
            self.refund(u32::try_from(over).unwrap_or(u32::MAX)).await?;
            return Ok(self.charged());
        }
        let missing = actual - charged;
        match self.charge(missing).await {
            Ok(()) => {}
            Err(refused) => {
                let Some(decision) = refused.decision() else { return Err(refused) };
                let enforced = decision
                    .verdicts()
                    .iter()
                    .filter(|verdict| verdict.enforcement() == Enforcement::Enforce);
                let room = enforced.map(Verdict::remaining).min().unwrap_or(0);
                // Others may have taken it meanwhile: then it is theirs.
                let rest = self.charge(missing.min(room.into())).await;
                rest.or_else(|refused| refused.decision().map(drop).ok_or(refused))?;
            }
        }
        Ok(self.charged())
    }

    fn wrong(&self, error: InvalidInput) -> Refused {
        self.refused(Why::Failed(Box::new(error)))
    }

    fn refused(&self, why: Why) -> Refused {
        Refused::new(why, &self.words, &self.told)
    }
}
