//! Policies and a store, for any number of services.

use pyo3::prelude::*;
use ratekeeper::OnOutage;

use super::Policies;
use super::asked::Asked;
use super::service::ServiceLimiter;
use crate::arguments::{float, once_of, whole};
use crate::decision::Decision;
use crate::error::Failure;
use crate::limiter::Outages;
use crate::runtime::{PerProcess, Reach};
use crate::store::Store;
use crate::verbs::Asking;

/// Policies and a store.
#[pyclass(module = "ratekeeper", frozen)]
pub(crate) struct PolicyLimiter {
    store: Py<Store>,
    policies: Py<Policies>,
    reach: Reach,
    live: PerProcess<ratekeeper::policy::PolicyLimiter>,
}

impl PolicyLimiter {
    fn reach(&self) -> Reach {
        self.reach
    }

    fn live(&self, py: Python<'_>) -> PyResult<ratekeeper::policy::PolicyLimiter> {
        let policies = self.policies.bind(py).get();
        policies.follow()?;
        if self.reach == Reach::Memory {
            return self.live.even_if_inherited();
        }
        self.live.get_or(|| built(self.store.bind(py).get(), policies))
    }

    /// What a key asks for of a service. One without a policy is not limited: names of services that come from
    /// anywhere take no place.
    fn ask(&self, py: Python<'_>, service: &str, asked: &Asked) -> PyResult<Asking> {
        let live = self.live(py)?;
        let demand = match live.known_service(service) {
            Some(service) => asked.show(py, self.policies.get(), |ask| service.demand(ask))?,
            None => {
                live.policies().expect(service).map_err(Failure::from)?;
                live.engine().raw(&[], OnOutage::default()).into_owned()
            }
        };
        Ok(Asking::new(demand, None))
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
}

both_forms! { PolicyLimiter:
    /// For a key that the program made itself: the entry for it in `custom`, else the general limit.
    /// A service without a policy is not limited. `mode` is as in `ServiceLimiter`.
    fn check / acheck (service, key, *, cost = 1, mode = None, id = None, keep = 600.0)
    (self, py, service: &str, key: String, #[pyo3(from_py_with = whole)] cost: i64, mode: Option<&str>,
        id: Option<String>, #[pyo3(from_py_with = float)] keep: f64) -> Decision {
        self.ask(py, service, &Asked::new(None, Some(key), cost, mode)?)?.under(once_of(id, keep)?)?.check()
    }
}
