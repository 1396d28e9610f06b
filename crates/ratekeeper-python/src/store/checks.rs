//! Checks of charges that callers put together themselves.

use std::sync::Arc;

use pyo3::prelude::*;
use ratekeeper::{Demand, Engine};

use super::Store;
use crate::arguments::{cost_of, duration, float, once_of, whole_or_none};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::quota::{Charge, RawCharges};
use crate::runtime::Reach;
use crate::verbs::{Asking, Front, Once, decide_now, reset};

/// Charges, and what they cost if not what they say.
type Asked = (RawCharges, Option<u64>);

impl Front for Store {
    type Asked = Asked;

    fn reach(&self) -> Reach {
        self.reach()
    }

    fn engine(&self, _py: Python<'_>) -> PyResult<Arc<Engine>> {
        self.deciding()
    }

    fn ask(&self, _py: Python<'_>, (charges, cost): Asked) -> PyResult<Asking> {
        let demand = charges.demand(&self.deciding()?, cost).into_owned();
        Ok(Asking::new(demand, Some(About::Charges(charges))))
    }

    fn check_now(&self, _py: Python<'_>, (charges, cost): Asked, once: Once) -> PyResult<Decision> {
        let inner = decide_now(charges.demand(&self.deciding()?, cost), once, true)?;
        Ok(Decision { inner, about: About::Charges(charges) })
    }

    fn charged(&self, _py: Python<'_>, decision: &Decision) -> PyResult<Demand<'static>> {
        let About::Charges(charges) = &decision.about else {
            let message = "decision: got one of a limiter; expected one of `Store.check`";
            return Err(Failure::Input(message.to_owned()).into());
        };
        Ok(charges.demand(&self.deciding()?, None).into_owned())
    }
}

verbs! { Store (charges) (cost = None)
    (self, py, charges: &Bound<'_, PyAny>, #[pyo3(from_py_with = whole_or_none)] cost: Option<i64>) {
        (RawCharges::of(charges)?, cost.map(|cost| cost_of("cost", cost)).transpose()?)
    }
}

both_forms! { Store:
    /// `check` under an id.
    fn once / aonce (charges, id, keep = 600.0)
    (self, py, charges: &Bound<'_, PyAny>, id: String, #[pyo3(from_py_with = float)] keep: f64) -> Decision {
        self.ask(py, (RawCharges::of(charges)?, None))?.under(once_of(Some(id), keep)?)?.check()
    }

    /// Charges an estimate that is settled or cancelled within `hold` seconds, or lapses and stays.
    fn reserve / areserve (charges, id, hold)
    (self, py, charges: &Bound<'_, PyAny>, id: String, #[pyo3(from_py_with = float)] hold: f64) -> Decision {
        self.ask(py, (RawCharges::of(charges)?, None))?.reserve(id, duration("hold", hold)?)
    }

    /// Forgets a counter; says whether there was one.
    fn reset / areset (charge) (self, py, charge: &Bound<'_, Charge>) -> bool {
        let demand = RawCharges::one(charge).demand(&self.deciding()?, None).into_owned();
        async move { Ok(reset(demand).await? > 0) }
    }
}
