//! A request as policies see it, and how it is asked about.

use pyo3::prelude::*;
use ratekeeper::Mode;
use ratekeeper::policy::Ask;

use super::Policies;
use super::keys::looking_at;
use super::request::Request;
use crate::arguments::{cost_of, mode as mode_of};
use crate::error::Failure;

/// What is asked of a service.
#[derive(Debug)]
pub(crate) struct Asked {
    request: Option<Py<Request>>,
    key: Option<String>,
    cost: u64,
    mode: Option<Mode>,
}

impl Asked {
    pub(super) fn new(
        request: Option<Bound<'_, Request>>,
        key: Option<String>,
        cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Self> {
        if request.is_none() && key.is_none() {
            let message = "request: got none, and no key; expected one of them";
            return Err(Failure::Input(message.to_owned()).into());
        }
        let mode = mode.map(mode_of).transpose()?;
        Ok(Self { request: request.map(Bound::unbind), key, cost: cost_of("cost", cost)?, mode })
    }

    /// Shows it to the library.
    pub(super) fn show<T>(
        &self,
        py: Python<'_>,
        policies: &Policies,
        look: impl FnOnce(&Ask<'_>) -> T,
    ) -> PyResult<T> {
        let request = self.request.as_ref().map(|request| request.bind(py));
        let ask = match (request, &self.key) {
            (Some(request), None) => Ask::request(&request.get().facts),
            (Some(request), Some(key)) => Ask::request(&request.get().facts).with_key(key),
            (None, key) => Ask::key(key.as_deref().unwrap_or_default()),
        };
        let ask = match self.mode {
            Some(mode) => ask.mode(mode),
            None => ask.service_mode(policies.mode_now(py)?),
        };
        looking_at(request.map(Request::seen_by_functions), || look(&ask.cost(self.cost)))
    }
}
