//! The limits of one service.

use std::sync::Arc;

use pyo3::prelude::*;
use ratekeeper::{Demand, Engine};

use super::Policies;
use super::asked::Asked;
use super::limiter::built;
use super::request::Request;
use crate::arguments::{duration, float, whole};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::runtime::{PerProcess, Reach};
use crate::store::Store;
use crate::verbs::{Asking, Front, reset};

/// What must be known of a request before it can be judged.
#[pyclass(module = "ratekeeper", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Needs {
    /// The JSON in the body.
    body: bool,
    /// The template of the route.
    route: bool,
    /// The address of the client.
    client: bool,
    /// Who is calling: claims.
    identity: bool,
}

impl From<ratekeeper::policy::Needs> for Needs {
    fn from(needs: ratekeeper::policy::Needs) -> Self {
        Self { body: needs.body, route: needs.route, client: needs.client, identity: needs.identity }
    }
}

#[pymethods]
impl Needs {
    fn __repr__(&self) -> String {
        let all = [
            ("body", self.body),
            ("route", self.route),
            ("client", self.client),
            ("identity", self.identity),
        ];
        let needed: Vec<&str> =
            all.iter().filter(|(_, is_needed)| *is_needed).map(|(name, _)| *name).collect();
        format!("<Needs: {}>", if needed.is_empty() { "nothing".to_owned() } else { needed.join(", ") })
    }
}

/// The limits of one service. Every call sees one policy, whole.
///
/// `request`: None where only the key is known. `key`: for rules with `caller_key`.
/// `cost`: for rules that do not say themselves what a request costs.
///
/// `mode`: what this call does, whatever mode the policies have: "monitor" counts by every rule
/// and never denies, "on" leaves those alone that only watch. None: the mode of the policies, which
/// is RATE_LIMIT_MODE, read with every call, unless they were given one.
#[pyclass(module = "ratekeeper", frozen)]
pub(crate) struct ServiceLimiter {
    pub(super) name: String,
    pub(super) store: Py<Store>,
    pub(super) policies: Py<Policies>,
    pub(super) reach: Reach,
    pub(super) live: PerProcess<ratekeeper::policy::ServiceLimiter>,
}

impl ServiceLimiter {
    fn live(&self, py: Python<'_>) -> PyResult<ratekeeper::policy::ServiceLimiter> {
        let policies = self.policies.bind(py).get();
        policies.follow()?;
        if self.reach == Reach::Memory {
            return self.live.even_if_inherited();
        }
        self.live.get_or(|| {
            Ok(built(self.store.bind(py).get(), policies)?.service(&self.name).map_err(Failure::from)?)
        })
    }

    fn demand(&self, py: Python<'_>, asked: &Asked) -> PyResult<Demand<'static>> {
        let live = self.live(py)?;
        asked.show(py, self.policies.get(), |ask| live.demand(ask))
    }
}

impl Front for ServiceLimiter {
    type Asked = Asked;

    fn reach(&self) -> Reach {
        self.reach
    }

    fn engine(&self, py: Python<'_>) -> PyResult<Arc<Engine>> {
        Ok(Arc::clone(self.live(py)?.engine()))
    }

    fn ask(&self, py: Python<'_>, asked: Asked) -> PyResult<Asking> {
        Ok(Asking::new(self.demand(py, &asked)?, None))
    }

    fn charged(&self, _py: Python<'_>, decision: &Decision) -> PyResult<Demand<'static>> {
        match &decision.about {
            About::Demand(demand) => Ok(Demand::clone(demand)),
            _ => {
                let message = "decision: got one of something else; expected one of a service";
                Err(Failure::Input(message.to_owned()).into())
            }
        }
    }
}

#[pymethods]
impl ServiceLimiter {
    fn __repr__(&self) -> String {
        format!("<ServiceLimiter in {}: {}>", self.store.get().kind(), self.name)
    }

    /// The name of the service.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// What must be known of requests, by the policy in force.
    #[getter]
    fn needs(&self, py: Python<'_>) -> PyResult<Needs> {
        Ok(self.live(py)?.needs().into())
    }

    /// The same for one request: what its rules need, and no more.
    fn needs_of(&self, request: &Bound<'_, Request>) -> PyResult<Needs> {
        Ok(self.live(request.py())?.needs_of(&request.get().facts).into())
    }
}

verbs! { ServiceLimiter (request = None) (key = None, cost = 1, mode = None)
    (self, py, request: Option<Bound<'_, Request>>, key: Option<String>,
        #[pyo3(from_py_with = whole)] cost: i64, mode: Option<&str>) {
        Asked::new(request, key, cost, mode)?
    }
}

both_forms! { ServiceLimiter:
    /// Charges an estimate under `id`, to be settled or cancelled within `hold` seconds; charged once.
    fn reserve / areserve (request, estimate, id, hold, *, key = None, mode = None)
    (self, py, request: Option<Bound<'_, Request>>, #[pyo3(from_py_with = whole)] estimate: i64, id: String,
        #[pyo3(from_py_with = float)] hold: f64, key: Option<String>, mode: Option<&str>) -> Decision {
        self.ask(py, Asked::new(request, key, estimate, mode)?)?.reserve(id, duration("hold", hold)?)
    }

    /// Gives the places back that a request held (`Decision.holds`): call it when the response is sent.
    fn release / arelease (decision) (self, py, decision: &Bound<'_, Decision>) -> () {
        let (demand, (decision, _)) = (self.charged(py, decision.get())?, decision.get().kept());
        async move { Ok(demand.release(&decision).await?) }
    }

    /// Forgets the counters of a request; says how many there were.
    fn reset / areset (request = None, *, key = None)
    (self, py, request: Option<Bound<'_, Request>>, key: Option<String>) -> usize {
        reset(self.demand(py, &Asked::new(request, key, 1, None)?)?)
    }
}
