//! The limits of one service.

use pyo3::prelude::*;
use ratekeeper::Settled;
use ratekeeper::policy::Matched;

use super::Policies;
use super::asked::Asked;
use super::limiter::built;
use super::request::Request;
use crate::arguments::{duration, float, units, whole, whole_or_none};
use crate::awaiting::{awaited, awaited_at_length, block};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::runtime::{PerProcess, Reach};
use crate::store::Store;
use crate::way::{Way, refund_units, settled_word};

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

    pub(super) fn decide(&self, py: Python<'_>, asked: &Asked) -> PyResult<Decision> {
        block(py, self.reach, Way::Check.by_policy(self.matched(py, asked)?), about)
    }

    pub(super) fn adecide<'py>(&self, py: Python<'py>, asked: &Asked) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach, Way::Check.by_policy(self.matched(py, asked)?), about)
    }

    fn matched(&self, py: Python<'_>, asked: &Asked) -> PyResult<Matched> {
        let live = self.live(py)?;
        asked.show(py, self.policies.get(), |ask| live.matched(ask))
    }

    /// What a decision was about.
    fn charged(decision: &Bound<'_, Decision>) -> PyResult<(Matched, ratekeeper::Decision)> {
        match &decision.get().about {
            About::Service(matched) => {
                Ok((Matched::clone(matched), ratekeeper::Decision::clone(&decision.get().inner)))
            }
            _ => {
                let message = "decision: got one of something else; expected one of a service";
                Err(Failure::Input(message.to_owned()).into())
            }
        }
    }

    fn refunded(
        &self,
        decision: &Bound<'_, Decision>,
        units: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let (matched, decision) = Self::charged(decision)?;
        let units = refund_units(units)?;
        Ok(async move { Ok(matched.refund(&decision, units).await?) })
    }

    fn released(
        &self,
        decision: &Bound<'_, Decision>,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let (matched, decision) = Self::charged(decision)?;
        Ok(async move { Ok(matched.release(&decision).await?) })
    }

    fn settled(
        &self,
        py: Python<'_>,
        id: String,
        actual: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<Settled, Failure>> + Send + use<>> {
        let live = self.live(py)?;
        let actual = actual.map(|actual| units("actual", actual)).transpose()?;
        Ok(async move {
            Ok(match actual {
                Some(actual) => live.settle(&id, actual).await?,
                None => live.cancel(&id).await?,
            })
        })
    }
}

fn about((inner, matched): (ratekeeper::Decision, Matched)) -> Decision {
    Decision { inner: Box::new(inner), about: About::Service(Box::new(matched)) }
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

    /// The decision if it takes no I/O, else None, and nothing has happened.
    #[pyo3(signature = (request = None, *, key = None, cost = 1, mode = None))]
    fn try_check(
        &self,
        py: Python<'_>,
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
        #[pyo3(from_py_with = whole)] cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Option<Decision>> {
        match self.reach {
            Reach::Memory => self.decide(py, &Asked::new(request, key, cost, mode)?).map(Some),
            Reach::Far => Ok(None),
        }
    }

    /// Waits until it is allowed, at most `patience` seconds; if that would not suffice, the denial comes at once.
    #[pyo3(signature = (request = None, patience = 60.0, *, key = None, cost = 1, mode = None))]
    fn until_allowed(
        &self,
        py: Python<'_>,
        request: Option<Bound<'_, Request>>,
        #[pyo3(from_py_with = float)] patience: f64,
        key: Option<String>,
        #[pyo3(from_py_with = whole)] cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Decision> {
        let (asked, way) =
            (Asked::new(request, key, cost, mode)?, Way::Wait(duration("patience", patience)?));
        // Also in memory: it may have to sleep.
        block(py, Reach::Far, way.by_policy(self.matched(py, &asked)?), about)
    }

    /// `until_allowed`, to be awaited.
    #[pyo3(signature = (request = None, patience = 60.0, *, key = None, cost = 1, mode = None))]
    fn auntil_allowed<'py>(
        &self,
        py: Python<'py>,
        request: Option<Bound<'_, Request>>,
        #[pyo3(from_py_with = float)] patience: f64,
        key: Option<String>,
        #[pyo3(from_py_with = whole)] cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (asked, way) =
            (Asked::new(request, key, cost, mode)?, Way::Wait(duration("patience", patience)?));
        awaited_at_length(py, way.by_policy(self.matched(py, &asked)?), about)
    }
}

both_forms! { ServiceLimiter:
    /// Judges a request by all rules that apply, and charges it. If whoever awaits it is cancelled, the
    /// request may have been charged all the same.
    fn check / acheck (request = None, *, key = None, cost = 1, mode = None)
    (self, py, request: Option<Bound<'_, Request>>, key: Option<String>,
        #[pyo3(from_py_with = whole)] cost: i64, mode: Option<&str>) -> Decision {
        let asked = Asked::new(request, key, cost, mode)?;
        (self.reach, Way::Check.by_policy(self.matched(py, &asked)?), about)
    }

    /// What a request would meet; nothing changes.
    fn peek / apeek (request = None, *, key = None, cost = 1, mode = None)
    (self, py, request: Option<Bound<'_, Request>>, key: Option<String>,
        #[pyo3(from_py_with = whole)] cost: i64, mode: Option<&str>) -> Decision {
        let asked = Asked::new(request, key, cost, mode)?;
        (self.reach, Way::Peek.by_policy(self.matched(py, &asked)?), about)
    }

    /// Charges an estimate under `id`, to be settled or cancelled within `hold` seconds; charged once.
    fn reserve / areserve (request, estimate, id, hold, *, key = None, mode = None)
    (self, py, request: Option<Bound<'_, Request>>, #[pyo3(from_py_with = whole)] estimate: i64, id: String,
        #[pyo3(from_py_with = float)] hold: f64, key: Option<String>, mode: Option<&str>) -> Decision {
        let (asked, way) = (Asked::new(request, key, estimate, mode)?, Way::Reserve(id, duration("hold", hold)?));
        (self.reach, way.by_policy(self.matched(py, &asked)?), about)
    }

    /// Makes the charge of a reservation the actual amount.
    ///
    /// "done", or "already" if it was settled before, "lapsed" if its time was over, "unknown" if there is none.
    fn settle / asettle (id, actual)
    (self, py, id: String, #[pyo3(from_py_with = whole)] actual: i64) -> &'static str {
        (self.reach, self.settled(py, id, Some(actual))?, settled_word)
    }

    /// Gives the charge of a reservation back; says the same as `settle`.
    fn cancel / acancel (id) (self, py, id: String) -> &'static str {
        (self.reach, self.settled(py, id, None)?, settled_word)
    }

    /// Gives up to `units` (None: all) of each charge of a decision back. An outage is no error.
    fn refund / arefund (decision, units = None)
    (self, py, decision: &Bound<'_, Decision>,
        #[pyo3(from_py_with = whole_or_none)] units: Option<i64>) -> () {
        (self.reach, self.refunded(decision, units)?, |()| ())
    }

    /// Gives the places back that a request held (`Decision.holds`): call it when the response is sent.
    fn release / arelease (decision) (self, py, decision: &Bound<'_, Decision>) -> () {
        (self.reach, self.released(decision)?, |()| ())
    }

    /// Forgets the counters of a request; says how many there were.
    fn reset / areset (request = None, *, key = None)
    (self, py, request: Option<Bound<'_, Request>>, key: Option<String>) -> usize {
        let matched = self.matched(py, &Asked::new(request, key, 1, None)?)?;
        (self.reach, async move { Ok(matched.reset().await?) }, |count| count)
    }
}
