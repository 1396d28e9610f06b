//! Other limits for projects and organisations.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use ratekeeper::OverrideScope;

use super::Store;
use crate::arguments::{Id, at_least, at_least_a_second, float_or_none, seconds, seconds_of, whole};
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

both_forms! { Store:
    /// Sets or replaces one. `expiry` is the window (None: the quota's own), `ttl` its own life.
    ///
    /// `max_requests` of 0 lets nothing pass. Values below that, or below a second, raise ValueError:
    /// "max_requests must be at least 0", "expiry must be at least 1 second",
    /// "override_ttl must be at least 1 second".
    fn set_override / aset_override (endpoint, organisation, project = None, *, max_requests, expiry = None,
        ttl = None, reason = "", author = "")
    (self, py, endpoint: String, organisation: Id, project: Option<Id>,
        #[pyo3(from_py_with = whole)] max_requests: i64,
        #[pyo3(from_py_with = float_or_none)] expiry: Option<f64>,
        #[pyo3(from_py_with = float_or_none)] ttl: Option<f64>, reason: &str, author: &str) -> () {
        let (store, place) = (self.live()?, Place::new(endpoint, organisation, project));
        let mut to = ratekeeper::Override {
            limit: at_least(0, "max_requests", max_requests)?,
            window: expiry.map(|expiry| at_least_a_second("expiry", expiry)).transpose()?,
            expires_at: None,
            reason: reason.to_owned(),
            author: author.to_owned(),
        };
        let life = ttl.map(|ttl| at_least_a_second("override_ttl", ttl)).transpose()?;
        async move {
            to.expires_at = life.map(|life| store.now().after(life));
            Ok(store.overrides().set(place.scope()?, to).await?)
        }
    }

    /// The override of a project, or without one of the organisation itself; None if there is none.
    fn get_override / aget_override (endpoint, organisation, project = None)
    (self, py, endpoint: String, organisation: Id, project: Option<Id>) -> Option<Override> {
        let (store, place) = (self.live()?, Place::new(endpoint, organisation, project));
        async move { Ok(store.overrides().get(place.scope()?).await?.map(Override)) }
    }

    /// Says whether there was one.
    fn delete_override / adelete_override (endpoint, organisation, project = None)
    (self, py, endpoint: String, organisation: Id, project: Option<Id>) -> bool {
        let (store, place) = (self.live()?, Place::new(endpoint, organisation, project));
        async move { Ok(store.overrides().delete(place.scope()?).await?) }
    }

    /// Endpoints with their overrides, sorted by endpoint.
    fn list_overrides / alist_overrides (organisation, project = None)
    (self, py, organisation: Id, project: Option<Id>) -> Vec<(String, Override)> {
        let store = self.live()?;
        async move {
            let found = store.overrides().list(&organisation.0, project.as_ref().map(|id| &*id.0)).await?;
            Ok(found.into_iter().map(|(endpoint, found)| (endpoint, Override(found))).collect())
        }
    }

    /// Deletes what `list_overrides` lists; says how many.
    fn clear_overrides / aclear_overrides (organisation, project = None)
    (self, py, organisation: Id, project: Option<Id>) -> usize {
        let store = self.live()?;
        async move { Ok(store.overrides().clear(&organisation.0, project.as_ref().map(|id| &*id.0)).await?) }
    }
}
