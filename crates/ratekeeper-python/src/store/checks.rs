//! Checks of charges that callers put together themselves.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use ratekeeper::{LIMIT_MAX, Reservation, Settled};

use super::Store;
use crate::arguments::{duration, float, whole, whole_or_none};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::quota::{Asked, Charge, charges, charges_of, terms_of};
use crate::way::{refund_units, settled_word};

both_forms! { Store:
    /// All or nothing: every charge is admitted, or none is charged.
    fn check / acheck (charges) (self, py, charges: &Bound<'_, PyAny>) -> Decision {
        (self.reach(), self.decided(charges, Way::Check)?, about_charges)
    }

    /// The same, but nothing is charged or written.
    fn peek / apeek (charges) (self, py, charges: &Bound<'_, PyAny>) -> Decision {
        (self.reach(), self.decided(charges, Way::Peek)?, about_charges)
    }

    /// Charged once however often it is sent under the same id within `keep` seconds.
    fn once / aonce (charges, id, keep = 600.0)
    (self, py, charges: &Bound<'_, PyAny>, id: String, #[pyo3(from_py_with = float)] keep: f64) -> Decision {
        let way = Way::Once(id, duration("keep", keep)?);
        (self.reach(), self.decided(charges, way)?, about_charges)
    }

    /// Charges an estimate that is settled or cancelled within `hold` seconds, or lapses and stays.
    fn reserve / areserve (charges, id, hold)
    (self, py, charges: &Bound<'_, PyAny>, id: String, #[pyo3(from_py_with = float)] hold: f64) -> Decision {
        let way = Way::Reserve(id, duration("hold", hold)?);
        (self.reach(), self.decided(charges, way)?, about_charges)
    }

    /// Makes a reservation's charge the actual amount.
    fn settle / asettle (id, actual)
    (self, py, id: String, #[pyo3(from_py_with = whole)] actual: i64) -> &'static str {
        (self.reach(), self.settled(id, Some(actual))?, settled_word)
    }

    /// Gives the charge of a reservation back; says the same as `settle`.
    fn cancel / acancel (id) (self, py, id: String) -> &'static str {
        (self.reach(), self.settled(id, None)?, settled_word)
    }

    /// Gives up to `units` (None: all) of each charge of a decision of this store back.
    fn refund / arefund (decision, units = None)
    (self, py, decision: &Bound<'_, Decision>,
        #[pyo3(from_py_with = whole_or_none)] units: Option<i64>) -> () {
        (self.reach(), self.refunded(decision, units)?, |()| ())
    }

    /// Forgets a counter; says whether there was one.
    fn reset / areset (charge) (self, py, charge: &Bound<'_, Charge>) -> bool {
        (self.reach(), self.forgotten(charge)?, |was_there| was_there)
    }
}

/// What is done with charges.
enum Way {
    Check,
    Peek,
    Once(String, Duration),
    Reserve(String, Duration),
}

impl Store {
    fn decided(
        &self,
        asked: &Bound<'_, PyAny>,
        way: Way,
    ) -> PyResult<impl Future<Output = Result<(ratekeeper::Decision, Asked), Failure>> + Send + use<>> {
        let (store, asked) = (self.live()?, charges_of(asked)?);
        Ok(async move {
            let decision = {
                let charges = charges(&asked)?;
                let check = charges.check()?;
                match &way {
                    Way::Check => store.check(&check).await?,
                    Way::Peek => store.check(&check.peek()).await?,
                    Way::Once(id, keep) => store.reserve(&check, &Reservation::once(id, *keep)?).await?,
                    Way::Reserve(id, hold) => store.reserve(&check, &Reservation::hold(id, *hold)?).await?,
                }
            };
            Ok((decision, asked))
        })
    }

    fn settled(
        &self,
        id: String,
        actual: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<Settled, Failure>> + Send + use<>> {
        let (store, actual) = (self.live()?, actual.map(bounded_amount).transpose()?);
        Ok(async move { Ok(store.settle(id.as_bytes(), actual).await?) })
    }

    fn refunded(
        &self,
        decision: &Bound<'_, Decision>,
        units: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let About::Charges(asked) = &decision.get().about else {
            let message = "decision: got one of a limiter; expected one of `Store.check`";
            return Err(Failure::Input(message.to_owned()).into());
        };
        let (store, asked, decision) =
            (self.live()?, Arc::clone(asked), ratekeeper::Decision::clone(&decision.get().inner));
        let units = refund_units(units)?;
        Ok(async move {
            let charges = charges(&asked)?;
            Ok(store.refund(&charges.check()?, &decision, units).await?)
        })
    }

    fn forgotten(
        &self,
        charge: &Bound<'_, Charge>,
    ) -> PyResult<impl Future<Output = Result<bool, Failure>> + Send + use<>> {
        let (store, terms) = (self.live()?, terms_of(charge));
        Ok(async move {
            let charge = terms.charge()?;
            Ok(store.reset(charge.key(), charge.quota().algorithm()).await?)
        })
    }
}

fn about_charges((inner, asked): (ratekeeper::Decision, Asked)) -> Decision {
    Decision { inner: Box::new(inner), about: About::Charges(asked) }
}

fn bounded_amount(actual: i64) -> PyResult<u32> {
    let bounded = u32::try_from(actual).ok().filter(|actual| *actual <= LIMIT_MAX);
    Ok(bounded.ok_or_else(|| {
        Failure::Input(format!("actual: got {actual}; expected a whole number from 0 to {LIMIT_MAX}"))
    })?)
}
