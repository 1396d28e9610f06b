//! Policies and a store, for any number of services.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use super::Policies;
use super::asked::Asked;
use super::service::ServiceLimiter;
use crate::arguments::whole;
use crate::awaiting::ready;
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::limiter::Outages;
use crate::runtime::{PerProcess, Reach};
use crate::store::Store;

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

pub(super) fn built(store: &Store, policies: &Policies) -> PyResult<ratekeeper::policy::PolicyLimiter> {
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

    fn __repr__(&self, py: Python<'_>) -> String {
        let store = self.store.bind(py).get().kind();
        format!("<PolicyLimiter in {store}: {:?}>", self.policies.get().inner)
    }

    /// Where it counts.
    #[getter]
    fn store(&self, py: Python<'_>) -> Py<Store> {
        self.store.clone_ref(py)
    }

    /// The policies in force.
    #[getter]
    fn policies(&self, py: Python<'_>) -> Py<Policies> {
        self.policies.clone_ref(py)
    }

    /// How many requests were decided without the store, in this process.
    #[getter]
    fn outages(&self, py: Python<'_>) -> PyResult<Outages> {
        Ok(self.live(py)?.outages().into())
    }

    /// The limits of one service, also of one that has no policy yet.
    fn service(&self, py: Python<'_>, name: &str) -> PyResult<ServiceLimiter> {
        self.of_service(py, &self.live(py)?, name)
    }

    /// For a key that the program made itself: the entry for it in `custom`, else the general limit.
    /// A service without a policy is not limited. `mode` is as in `ServiceLimiter`.
    #[pyo3(signature = (service, key, *, cost = 1, mode = None))]
    fn check(
        &self,
        py: Python<'_>,
        service: &str,
        key: String,
        #[pyo3(from_py_with = whole)] cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Decision> {
        let asked = Asked::new(None, Some(key), cost, mode)?;
        match self.known(py, service)? {
            Some(service) => service.decide(py, &asked),
            None => self.unlimited(py),
        }
    }

    /// `check`, to be awaited.
    #[pyo3(signature = (service, key, *, cost = 1, mode = None))]
    fn acheck<'py>(
        &self,
        py: Python<'py>,
        service: &str,
        key: String,
        #[pyo3(from_py_with = whole)] cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked::new(None, Some(key), cost, mode)?;
        match self.known(py, service)? {
            Some(service) => service.adecide(py, &asked),
            None => ready(py, self.unlimited(py)?.into_py_any(py)?),
        }
    }
}

impl PolicyLimiter {
    fn unlimited(&self, py: Python<'_>) -> PyResult<Decision> {
        let at = self.store.bind(py).get().live()?.now();
        let (outcome, origin) = (ratekeeper::Outcome::Allow, ratekeeper::Origin::Unlimited);
        let inner = ratekeeper::Decision::without_store(outcome, origin, at);
        Ok(Decision { inner: Box::new(inner), about: About::Nothing })
    }
}
