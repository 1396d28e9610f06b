//! The limits of services, from their policies.

use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use ratekeeper::Settled;
use ratekeeper::policy::{Ask, Matched};

use super::Policies;
use super::keys::looking_at;
use super::request::Request;
use crate::arguments::{duration, units};
use crate::awaiting::{awaited, awaited_at_length, block, ready};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::limiter::Outages;
use crate::runtime::{PerProcess, Reach};
use crate::store::{Store, refund_units, settled_word};

/// Policies and a store.
#[pyclass(module = "ratekeeper", frozen)]
pub(crate) struct PolicyLimiter {
    store: Py<Store>,
    policies: Py<Policies>,
    reach: Reach,
    live: PerProcess<ratekeeper::policy::PolicyLimiter>,
}

impl PolicyLimiter {
    fn live(&self, py: Python<'_>) -> PyResult<ratekeeper::policy::PolicyLimiter> {
        let policies = self.policies.bind(py).get();
        policies.follow()?;
        if self.reach == Reach::Memory {
            return self.live.even_if_inherited();
        }
        self.live.get_or(|| built(self.store.bind(py).get(), policies))
    }

    /// A service, if it has a policy: names that come from anywhere take no place.
    fn known(&self, py: Python<'_>, name: &str) -> PyResult<Option<ServiceLimiter>> {
        let limiter = self.live(py)?;
        match limiter.policies().policy(name) {
            Some(_) => self.of_service(py, &limiter, name).map(Some),
            None => Ok(None),
        }
    }

    fn of_service(
        &self,
        py: Python<'_>,
        limiter: &ratekeeper::policy::PolicyLimiter,
        name: &str,
    ) -> PyResult<ServiceLimiter> {
        let live = limiter.service(name).map_err(Failure::from)?;
        Ok(ServiceLimiter {
            name: name.to_owned(),
            store: self.store.clone_ref(py),
            policies: self.policies.clone_ref(py),
            reach: self.reach,
            live: PerProcess::new(live),
        })
    }
}

fn built(store: &Store, policies: &Policies) -> PyResult<ratekeeper::policy::PolicyLimiter> {
    Ok(ratekeeper::policy::PolicyLimiter::on(store.live()?, policies.inner.clone()))
}

#[pymethods]
impl PolicyLimiter {
    #[new]
    fn new(store: Option<Bound<'_, Store>>, policies: Bound<'_, Policies>) -> PyResult<Self> {
        let store = store.map_or_else(|| Bound::new(policies.py(), Store::in_memory()), Ok)?;
        let live = PerProcess::new(built(store.get(), policies.get())?);
        let reach = store.get().reach();
        Ok(Self { store: store.unbind(), policies: policies.unbind(), reach, live })
    }

    #[getter]
    fn store(&self, py: Python<'_>) -> Py<Store> {
        self.store.clone_ref(py)
    }

    #[getter]
    fn policies(&self, py: Python<'_>) -> Py<Policies> {
        self.policies.clone_ref(py)
    }

    #[getter]
    fn outages(&self, py: Python<'_>) -> PyResult<Outages> {
        Ok(self.live(py)?.outages().into())
    }

    fn service(&self, py: Python<'_>, name: &str) -> PyResult<ServiceLimiter> {
        self.of_service(py, &self.live(py)?, name)
    }

    /// For a key that the program made itself: the entry for it in `custom`, else the general limit.
    #[pyo3(signature = (service, key, *, cost = 1))]
    fn check(&self, py: Python<'_>, service: &str, key: String, cost: i64) -> PyResult<Decision> {
        let asked = Asked::new(None, Some(key), cost)?;
        match self.known(py, service)? {
            Some(service) => service.decide(py, asked),
            None => Ok(self.unlimited(py, asked)?),
        }
    }

    #[pyo3(signature = (service, key, *, cost = 1))]
    fn acheck<'py>(
        &self,
        py: Python<'py>,
        service: &str,
        key: String,
        cost: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked::new(None, Some(key), cost)?;
        match self.known(py, service)? {
            Some(service) => service.adecide(py, asked),
            None => ready(py, self.unlimited(py, asked)?.into_py_any(py)?),
        }
    }
}

impl PolicyLimiter {
    fn unlimited(&self, py: Python<'_>, asked: Asked) -> PyResult<Decision> {
        let at = self.store.bind(py).get().live()?.now();
        let (outcome, origin) = (ratekeeper::Outcome::Allow, ratekeeper::Origin::Unlimited);
        let inner = ratekeeper::Decision::without_store(outcome, origin, at);
        Ok(Decision { inner, about: About::Service(asked) })
    }
}

/// What is asked of a service.
#[derive(Debug)]
pub(crate) struct Asked {
    request: Option<Py<Request>>,
    key: Option<String>,
    cost: u64,
}

impl Asked {
    fn new(request: Option<Bound<'_, Request>>, key: Option<String>, cost: i64) -> PyResult<Self> {
        if request.is_none() && key.is_none() {
            let message = "request: got none, and no key; expected one of them";
            return Err(Failure::Input(message.to_owned()).into());
        }
        Ok(Self { request: request.map(Bound::unbind), key, cost: units("cost", cost)? })
    }

    /// Shows it to the library.
    fn show<T>(&self, py: Python<'_>, look: impl FnOnce(&Ask<'_>) -> T) -> PyResult<T> {
        let request = self.request.as_ref().map(|request| request.bind(py));
        let ask = match (request, &self.key) {
            (Some(request), None) => Ask::request(&request.get().facts),
            (Some(request), Some(key)) => Ask::request(&request.get().facts).with_key(key),
            (None, key) => Ask::key(key.as_deref().unwrap_or_default()),
        };
        looking_at(request.map(Request::seen_by_functions), || look(&ask.cost(self.cost)))
    }
}

/// What must be known of a request before it can be judged.
#[pyclass(module = "ratekeeper", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Needs {
    body: bool,
    route: bool,
    client: bool,
    identity: bool,
}

impl From<ratekeeper::policy::Needs> for Needs {
    fn from(needs: ratekeeper::policy::Needs) -> Self {
        Self { body: needs.body, route: needs.route, client: needs.client, identity: needs.identity }
    }
}

/// The limits of one service. Every call sees one policy, whole.
#[pyclass(module = "ratekeeper", frozen)]
pub(crate) struct ServiceLimiter {
    name: String,
    store: Py<Store>,
    policies: Py<Policies>,
    reach: Reach,
    live: PerProcess<ratekeeper::policy::ServiceLimiter>,
}

/// What is done with a request.
enum Way {
    Check,
    Peek,
    Reserve(String, Duration),
    Wait(Duration),
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

    fn decide_now(&self, py: Python<'_>, asked: Asked) -> PyResult<Decision> {
        let live = self.live(py)?;
        let inner = asked.show(py, |ask| live.check_now(ask))?.map_err(Failure::from)?;
        Ok(Decision { inner, about: About::Service(asked) })
    }

    fn decide(&self, py: Python<'_>, asked: Asked) -> PyResult<Decision> {
        if self.reach == Reach::Memory {
            return self.decide_now(py, asked);
        }
        let decided = decided(self.matched(py, &asked)?, Way::Check);
        block(py, self.reach, decided, about(asked))
    }

    fn adecide<'py>(&self, py: Python<'py>, asked: Asked) -> PyResult<Bound<'py, PyAny>> {
        if self.reach == Reach::Memory {
            return ready(py, self.decide_now(py, asked)?.into_py_any(py)?);
        }
        let decided = decided(self.matched(py, &asked)?, Way::Check);
        awaited(py, self.reach, decided, about(asked))
    }

    fn matched(&self, py: Python<'_>, asked: &Asked) -> PyResult<Matched> {
        let live = self.live(py)?;
        asked.show(py, |ask| live.matched(ask))
    }

    /// The request of a decision, looked at again.
    fn matched_again(&self, decision: &Bound<'_, Decision>) -> PyResult<(Matched, ratekeeper::Decision)> {
        let About::Service(asked) = &decision.get().about else {
            let message = "decision: got one of something else; expected one of this service";
            return Err(Failure::Input(message.to_owned()).into());
        };
        Ok((self.matched(decision.py(), asked)?, decision.get().inner.clone()))
    }

    fn refunded(
        &self,
        decision: &Bound<'_, Decision>,
        units: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let (matched, decision) = self.matched_again(decision)?;
        let units = refund_units(units)?;
        Ok(async move { Ok(matched.refund(&decision, units).await?) })
    }

    fn released(
        &self,
        decision: &Bound<'_, Decision>,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let (matched, decision) = self.matched_again(decision)?;
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

async fn decided(matched: Matched, way: Way) -> Result<ratekeeper::Decision, Failure> {
    Ok(match way {
        Way::Check => matched.check().await?,
        Way::Peek => matched.peek().await?,
        Way::Reserve(id, hold) => matched.reserve(&id, hold).await?,
        Way::Wait(patience) => matched.until_allowed(patience).await?,
    })
}

fn about(asked: Asked) -> impl FnOnce(ratekeeper::Decision) -> Decision + Send + 'static {
    move |inner| Decision { inner, about: About::Service(asked) }
}

#[pymethods]
impl ServiceLimiter {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn needs(&self, py: Python<'_>) -> PyResult<Needs> {
        Ok(self.live(py)?.needs().into())
    }

    fn needs_of(&self, request: &Bound<'_, Request>) -> PyResult<Needs> {
        Ok(self.live(request.py())?.needs_of(&request.get().facts).into())
    }

    #[pyo3(signature = (request = None, *, key = None, cost = 1))]
    fn check(
        &self,
        py: Python<'_>,
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
        cost: i64,
    ) -> PyResult<Decision> {
        self.decide(py, Asked::new(request, key, cost)?)
    }

    #[pyo3(signature = (request = None, *, key = None, cost = 1))]
    fn acheck<'py>(
        &self,
        py: Python<'py>,
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
        cost: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.adecide(py, Asked::new(request, key, cost)?)
    }

    #[pyo3(signature = (request = None, *, key = None, cost = 1))]
    fn try_check(
        &self,
        py: Python<'_>,
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
        cost: i64,
    ) -> PyResult<Option<Decision>> {
        match self.reach {
            Reach::Memory => self.decide_now(py, Asked::new(request, key, cost)?).map(Some),
            Reach::Far => Ok(None),
        }
    }

    #[pyo3(signature = (request = None, *, key = None, cost = 1))]
    fn peek(
        &self,
        py: Python<'_>,
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
        cost: i64,
    ) -> PyResult<Decision> {
        let asked = Asked::new(request, key, cost)?;
        block(py, self.reach, decided(self.matched(py, &asked)?, Way::Peek), about(asked))
    }

    #[pyo3(signature = (request = None, *, key = None, cost = 1))]
    fn apeek<'py>(
        &self,
        py: Python<'py>,
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
        cost: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked::new(request, key, cost)?;
        awaited(py, self.reach, decided(self.matched(py, &asked)?, Way::Peek), about(asked))
    }

    #[pyo3(signature = (request, estimate, id, hold, *, key = None))]
    fn reserve(
        &self,
        py: Python<'_>,
        request: Option<Bound<'_, Request>>,
        estimate: i64,
        id: String,
        hold: f64,
        key: Option<String>,
    ) -> PyResult<Decision> {
        let (asked, way) = (Asked::new(request, key, estimate)?, Way::Reserve(id, duration("hold", hold)?));
        block(py, self.reach, decided(self.matched(py, &asked)?, way), about(asked))
    }

    #[pyo3(signature = (request, estimate, id, hold, *, key = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn areserve<'py>(
        &self,
        py: Python<'py>,
        request: Option<Bound<'_, Request>>,
        estimate: i64,
        id: String,
        hold: f64,
        key: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (asked, way) = (Asked::new(request, key, estimate)?, Way::Reserve(id, duration("hold", hold)?));
        awaited(py, self.reach, decided(self.matched(py, &asked)?, way), about(asked))
    }

    fn settle(&self, py: Python<'_>, id: String, actual: i64) -> PyResult<&'static str> {
        block(py, self.reach, self.settled(py, id, Some(actual))?, settled_word)
    }

    fn asettle<'py>(&self, py: Python<'py>, id: String, actual: i64) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach, self.settled(py, id, Some(actual))?, settled_word)
    }

    fn cancel(&self, py: Python<'_>, id: String) -> PyResult<&'static str> {
        block(py, self.reach, self.settled(py, id, None)?, settled_word)
    }

    fn acancel<'py>(&self, py: Python<'py>, id: String) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach, self.settled(py, id, None)?, settled_word)
    }

    #[pyo3(signature = (request = None, patience = 60.0, *, key = None, cost = 1))]
    fn until_allowed(
        &self,
        py: Python<'_>,
        request: Option<Bound<'_, Request>>,
        patience: f64,
        key: Option<String>,
        cost: i64,
    ) -> PyResult<Decision> {
        let (asked, way) = (Asked::new(request, key, cost)?, Way::Wait(duration("patience", patience)?));
        // Also in memory: it may have to sleep.
        block(py, Reach::Far, decided(self.matched(py, &asked)?, way), about(asked))
    }

    #[pyo3(signature = (request = None, patience = 60.0, *, key = None, cost = 1))]
    fn auntil_allowed<'py>(
        &self,
        py: Python<'py>,
        request: Option<Bound<'_, Request>>,
        patience: f64,
        key: Option<String>,
        cost: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (asked, way) = (Asked::new(request, key, cost)?, Way::Wait(duration("patience", patience)?));
        awaited_at_length(py, decided(self.matched(py, &asked)?, way), about(asked))
    }

    #[pyo3(signature = (decision, units = None))]
    fn refund(&self, py: Python<'_>, decision: &Bound<'_, Decision>, units: Option<i64>) -> PyResult<()> {
        block(py, self.reach, self.refunded(decision, units)?, |()| ())
    }

    #[pyo3(signature = (decision, units = None))]
    fn arefund<'py>(
        &self,
        py: Python<'py>,
        decision: &Bound<'_, Decision>,
        units: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach, self.refunded(decision, units)?, |()| ())
    }

    /// Gives the places back that a request held: call it when the response is sent.
    fn release(&self, py: Python<'_>, decision: &Bound<'_, Decision>) -> PyResult<()> {
        block(py, self.reach, self.released(decision)?, |()| ())
    }

    fn arelease<'py>(&self, py: Python<'py>, decision: &Bound<'_, Decision>) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach, self.released(decision)?, |()| ())
    }

    #[pyo3(signature = (request = None, *, key = None))]
    fn reset(
        &self,
        py: Python<'_>,
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
    ) -> PyResult<usize> {
        let matched = self.matched(py, &Asked::new(request, key, 1)?)?;
        block(py, self.reach, async move { Ok(matched.reset().await?) }, |count| count)
    }

    #[pyo3(signature = (request = None, *, key = None))]
    fn areset<'py>(
        &self,
        py: Python<'py>,
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let matched = self.matched(py, &Asked::new(request, key, 1)?)?;
        awaited(py, self.reach, async move { Ok(matched.reset().await?) }, |count| count)
    }
}
