//! What can be asked of a limiter.

use pyo3::prelude::*;

use super::Limiter;
use super::asked::{Owner, Terms};
use crate::arguments::{Id, duration, float, whole};
use crate::decision::Decision;
use crate::http::Tally;
use crate::verbs::{Front, reset};

verbs! { Limiter (request = None)
    (cost = 1, organisation = None, project = None, endpoint = None, mode = None)
    (self, py, request: Option<&Bound<'_, PyAny>>, #[pyo3(from_py_with = whole)] cost: i64,
        organisation: Option<Id>, project: Option<Id>, endpoint: Option<String>, mode: Option<&str>) {
        let terms = Terms { cost, owner: Owner::new(organisation, project, endpoint)?, mode };
        self.asked(request, terms)?
    }
}

both_forms! { Limiter:
    /// Charges an estimate under `id`, to be settled or cancelled within `hold` seconds; charged once.
    fn reserve / areserve (request, estimate, id, hold, *, organisation = None, project = None,
        endpoint = None, mode = None)
    (self, py, request: &Bound<'_, PyAny>, #[pyo3(from_py_with = whole)] estimate: i64, id: String,
        #[pyo3(from_py_with = float)] hold: f64, organisation: Option<Id>, project: Option<Id>,
        endpoint: Option<String>, mode: Option<&str>) -> Decision {
        let terms = Terms { cost: estimate, owner: Owner::new(organisation, project, endpoint)?, mode };
        self.ask(py, self.asked(Some(request), terms)?)?.reserve(id, duration("hold", hold)?)
    }

    /// Forgets the counters of a request; says how many there were.
    fn reset / areset (request = None, *, organisation = None, project = None, endpoint = None)
    (self, py, request: Option<&Bound<'_, PyAny>>, organisation: Option<Id>, project: Option<Id>,
        endpoint: Option<String>) -> usize {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode: None };
        let asked = self.asked(request, terms)?;
        reset(self.live(py)?.demand_in_any_mode(&asked).into_owned())
    }
}

checks! { Limiter:
    /// A project on an endpoint, under the key `endpoint:organisation:project`, with its overrides.
    ///
    /// Fixed windows are counted where Application Kit counts them:
    /// `ratelimit:{endpoint}:{organisation}:{project}`.
    fn check_project / acheck_project (endpoint, organisation, project, *, cost = 1, mode = None)
    (self, py, endpoint: String, organisation: Id, project: Id, #[pyo3(from_py_with = whole)] cost: i64,
        mode: Option<&str>) {
        self.asked_of_project(endpoint, organisation, project, cost, mode)?
    }
}

#[pymethods]
impl Limiter {
    /// `check_project` for who only needs to know what does not simply pass.
    ///
    /// None if it does (allowed, over no quota, nothing to release); `tally` has it then.
    #[pyo3(signature = (tally, endpoint, organisation, project, mode = None))]
    fn admit_project(
        &self,
        py: Python<'_>,
        tally: &Bound<'_, Tally>,
        endpoint: String,
        organisation: Id,
        project: Id,
        mode: Option<&str>,
    ) -> PyResult<Option<Decision>> {
        let asked = self.asked_of_project(endpoint, organisation, project, 1, mode)?;
        let decision = self.checked(py, asked, None)?;
        if !decision.simply_passes() {
            return Ok(Some(decision));
        }
        tally.get().lock().add(&decision.inner);
        Ok(None)
    }
}
