//! Other limits for projects and organisations.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use pyo3::prelude::*;
use ratekeeper::OverrideScope;

use super::Store;
use crate::arguments::{Id, at_least_a_second, at_least_one, float_or_none, seconds, seconds_of, whole};
use crate::error::Failure;

/// Another limit for a project or an organisation.
#[pyclass(module = "ratekeeper", frozen, eq)]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override(ratekeeper::Override);

#[pymethods]
impl Override {
    /// Units in a window.
    #[getter]
    fn max_requests(&self) -> u64 {
        self.0.limit
    }

    /// The window in whole seconds, rounded up; None: the quota's own.
    #[getter]
    fn expiry(&self) -> Option<u64> {
        self.0.window.map(|window| window.as_secs() + u64::from(window.subsec_nanos() > 0))
    }

    /// The window in seconds; None: the quota's own.
    #[getter]
    fn window(&self) -> Option<f64> {
        self.0.window.map(seconds_of)
    }

    /// When it ends, seconds since 1970.
    #[getter]
    fn expires_at(&self) -> Option<f64> {
        self.0.expires_at.map(|end| seconds(end.as_micros()))
    }

    /// Why it is there, if somebody has said it.
    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Who set it, if somebody has said it.
    #[getter]
    fn author(&self) -> &str {
        &self.0.author
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0.limit, self.0.window, &self.0.reason, &self.0.author).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        let expiry = self.expiry().map_or_else(|| "None".to_owned(), |expiry| expiry.to_string());
        format!("<Override: max_requests={}, expiry={expiry}>", self.0.limit)
    }
}

/// Where an override stands.
struct Place {
    endpoint: String,
    organisation: String,
    project: Option<String>,
}

impl Place {
    fn new(endpoint: String, organisation: Id, project: Option<Id>) -> Self {
        Self { endpoint, organisation: organisation.0, project: project.map(|id| id.0) }
    }

    fn scope(&self) -> Result<OverrideScope<'_>, Failure> {
        Ok(match &self.project {
            Some(project) => OverrideScope::project(&self.endpoint, &self.organisation, project)?,
            None => OverrideScope::organisation(&self.endpoint, &self.organisation)?,
        })
    }
}

/// What an override says, in the words of Application Kit for what is wrong.
struct Said {
    limit: u64,
    window: Option<Duration>,
    life: Option<Duration>,
    reason: String,
    author: String,
}

impl Said {
    fn new(max_requests: i64, expiry: Option<f64>, ttl: Option<f64>, notes: (&str, &str)) -> PyResult<Self> {
        Ok(Self {
            limit: at_least_one("max_requests", max_requests)?,
            window: expiry.map(|expiry| at_least_a_second("expiry", expiry)).transpose()?,
            life: ttl.map(|ttl| at_least_a_second("override_ttl", ttl)).transpose()?,
            reason: notes.0.to_owned(),
            author: notes.1.to_owned(),
        })
    }
}

type Listed = Vec<(String, ratekeeper::Override)>;

fn listed(found: Listed) -> Vec<(String, Override)> {
    found.into_iter().map(|(endpoint, found)| (endpoint, Override(found))).collect()
}

impl Store {
    fn put(
        &self,
        place: Place,
        new: Said,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let store = self.live()?;
        Ok(async move {
            let Said { limit, window, life, reason, author } = new;
            let expires_at = life.map(|life| store.now().after(life));
            let to = ratekeeper::Override { limit, window, expires_at, reason, author };
            Ok(store.overrides().set(place.scope()?, to).await?)
        })
    }

    fn found(
        &self,
        place: Place,
    ) -> PyResult<impl Future<Output = Result<Option<ratekeeper::Override>, Failure>> + Send + use<>> {
        let store = self.live()?;
        Ok(async move { Ok(store.overrides().get(place.scope()?).await?) })
    }

    fn deleted(&self, place: Place) -> PyResult<impl Future<Output = Result<bool, Failure>> + Send + use<>> {
        let store = self.live()?;
        Ok(async move { Ok(store.overrides().delete(place.scope()?).await?) })
    }

    fn all_of(
        &self,
        organisation: Id,
        project: Option<Id>,
    ) -> PyResult<impl Future<Output = Result<Listed, Failure>> + Send + use<>> {
        let store = self.live()?;
        Ok(async move {
            let project = project.as_ref().map(|id| id.0.as_str());
            Ok(store.overrides().list(&organisation.0, project).await?)
        })
    }

    fn cleared(
        &self,
        organisation: Id,
        project: Option<Id>,
    ) -> PyResult<impl Future<Output = Result<usize, Failure>> + Send + use<>> {
        let store = self.live()?;
        Ok(async move {
            let project = project.as_ref().map(|id| id.0.as_str());
            Ok(store.overrides().clear(&organisation.0, project).await?)
        })
    }
}

both_forms! { Store:
    /// Sets or replaces one. `expiry` is the window (None: the quota's own), `ttl` its own life.
    ///
    /// Values below 1 raise ValueError: "max_requests must be at least 1",
    /// "expiry must be at least 1 second", "override_ttl must be at least 1 second".
    fn set_override / aset_override (endpoint, organisation, project = None, *, max_requests, expiry = None,
        ttl = None, reason = "", author = "")
    (self, py, endpoint: String, organisation: Id, project: Option<Id>,
        #[pyo3(from_py_with = whole)] max_requests: i64,
        #[pyo3(from_py_with = float_or_none)] expiry: Option<f64>,
        #[pyo3(from_py_with = float_or_none)] ttl: Option<f64>, reason: &str, author: &str) -> () {
        let new = Said::new(max_requests, expiry, ttl, (reason, author))?;
        (self.reach(), self.put(Place::new(endpoint, organisation, project), new)?, |()| ())
    }

    /// The override of a project, or without one of the organisation itself; None if there is none.
    fn get_override / aget_override (endpoint, organisation, project = None)
    (self, py, endpoint: String, organisation: Id, project: Option<Id>) -> Option<Override> {
        let found = self.found(Place::new(endpoint, organisation, project))?;
        (self.reach(), found, |found: Option<ratekeeper::Override>| found.map(Override))
    }

    /// Says whether there was one.
    fn delete_override / adelete_override (endpoint, organisation, project = None)
    (self, py, endpoint: String, organisation: Id, project: Option<Id>) -> bool {
        let deleted = self.deleted(Place::new(endpoint, organisation, project))?;
        (self.reach(), deleted, |was_there| was_there)
    }

    /// Endpoints with their overrides, sorted by endpoint.
    fn list_overrides / alist_overrides (organisation, project = None)
    (self, py, organisation: Id, project: Option<Id>) -> Vec<(String, Override)> {
        (self.reach(), self.all_of(organisation, project)?, listed)
    }

    /// Deletes what `list_overrides` lists; says how many.
    fn clear_overrides / aclear_overrides (organisation, project = None)
    (self, py, organisation: Id, project: Option<Id>) -> usize {
        (self.reach(), self.cleared(organisation, project)?, |count| count)
    }
}
