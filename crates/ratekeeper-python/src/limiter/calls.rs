//! What can be asked of a limiter.

use pyo3::prelude::*;
use ratekeeper::Settled;

use super::asked::{Owner, Terms};
use super::{Limiter, Live, about_request};
use crate::arguments::{Id, duration, float, units, whole, whole_or_none};
use crate::awaiting::{awaited_at_length, block};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::http::Tally;
use crate::runtime::Reach;
use crate::way::{Way, refund_units, settled_word};

#[pymethods]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
impl Limiter {
    /// Judges a request and charges it. Cost 0 only tells; one above every limit is denied.
    #[pyo3(signature = (request = None, *, cost = 1, organisation = None, project = None, endpoint = None,
        mode = None))]
    fn check(
        &self,
        py: Python<'_>,
        request: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = whole)] cost: i64,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Decision> {
        let terms = Terms { cost, owner: Owner::new(organisation, project, endpoint)?, mode };
        self.decide(py, self.asked(request, terms)?)
    }

    /// If whoever awaits is cancelled, the request may have been charged all the same.
    ///
    /// It is no coroutine: `asyncio.ensure_future`, `gather`, `wait_for` and `shield` take it; `create_task`,
    /// `asyncio.run` and anyio's `start_soon` want an `async def` that awaits it. Whoever forgets the
    /// `await` gets a TypeError from `if`.
    #[pyo3(signature = (request = None, *, cost = 1, organisation = None, project = None, endpoint = None,
        mode = None))]
    fn acheck<'py>(
        &self,
        py: Python<'py>,
        request: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = whole)] cost: i64,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let terms = Terms { cost, owner: Owner::new(organisation, project, endpoint)?, mode };
        self.adecide(py, self.asked(request, terms)?)
    }

    /// The decision if it takes no I/O, else None, and nothing has happened.
    #[pyo3(signature = (request = None, *, cost = 1, organisation = None, project = None, endpoint = None,
        mode = None))]
    fn try_check(
        &self,
        py: Python<'_>,
        request: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = whole)] cost: i64,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Option<Decision>> {
        let Live::Always(engine) = &self.live else { return Ok(None) };
        let terms = Terms { cost, owner: Owner::new(organisation, project, endpoint)?, mode };
        self.decide_now(py, engine, self.asked(request, terms)?).map(Some)
    }

    /// A project on an endpoint, under the key `endpoint:organisation:project`, with its overrides.
    ///
    /// Fixed windows are counted where Application Kit counts them:
    /// `ratelimit:{endpoint}:{organisation}:{project}`.
    #[pyo3(signature = (endpoint, organisation, project, *, cost = 1, mode = None))]
    fn check_project(
        &self,
        py: Python<'_>,
        endpoint: String,
        organisation: Id,
        project: Id,
        #[pyo3(from_py_with = whole)] cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Decision> {
        self.decide(py, self.asked_of_project(endpoint, organisation, project, cost, mode)?)
    }

    /// `check_project`, to be awaited.
    #[pyo3(signature = (endpoint, organisation, project, *, cost = 1, mode = None))]
    fn acheck_project<'py>(
        &self,
        py: Python<'py>,
        endpoint: String,
        organisation: Id,
        project: Id,
        #[pyo3(from_py_with = whole)] cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.adecide(py, self.asked_of_project(endpoint, organisation, project, cost, mode)?)
    }

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
        let decision = self.check_project(py, endpoint, organisation, project, 1, mode)?;
        if !decision.simply_passes() {
            return Ok(Some(decision));
        }
        tally.get().lock().add(&decision.inner);
        Ok(None)
    }

    /// Waits until it is allowed, at most `patience` seconds, and as long as a leaky bucket asks.
    /// If that would not suffice, the denial comes at once. Ctrl-C ends the wait, and so does
    /// cancelling whoever awaits it.
    #[pyo3(signature = (request = None, patience = 60.0, *, organisation = None, project = None,
        endpoint = None, mode = None))]
    fn until_allowed(
        &self,
        py: Python<'_>,
        request: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = float)] patience: f64,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Decision> {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode };
        let (asked, way) = (self.asked(request, terms)?, Way::Wait(duration("patience", patience)?));
        // Also in memory: it may have to sleep.
        block(py, Reach::Far, way.by_rules(self.engine(py)?, asked), about_request)
    }

    /// `until_allowed`, to be awaited.
    #[pyo3(signature = (request = None, patience = 60.0, *, organisation = None, project = None,
        endpoint = None, mode = None))]
    fn auntil_allowed<'py>(
        &self,
        py: Python<'py>,
        request: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = float)] patience: f64,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode };
        let (asked, way) = (self.asked(request, terms)?, Way::Wait(duration("patience", patience)?));
        awaited_at_length(py, way.by_rules(self.engine(py)?, asked), about_request)
    }
}

both_forms! { Limiter:
    /// What a request would meet; nothing changes.
    fn peek / apeek (request = None, *, organisation = None, project = None, endpoint = None, mode = None)
    (self, py, request: Option<&Bound<'_, PyAny>>, organisation: Option<Id>, project: Option<Id>,
        endpoint: Option<String>, mode: Option<&str>) -> Decision {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode };
        (self.reach, Way::Peek.by_rules(self.engine(py)?, self.asked(request, terms)?), about_request)
    }

    /// Charges an estimate under `id`, to be settled or cancelled within `hold` seconds; charged once.
    fn reserve / areserve (request, estimate, id, hold, *, organisation = None, project = None,
        endpoint = None, mode = None)
    (self, py, request: &Bound<'_, PyAny>, #[pyo3(from_py_with = whole)] estimate: i64, id: String,
        #[pyo3(from_py_with = float)] hold: f64, organisation: Option<Id>, project: Option<Id>,
        endpoint: Option<String>, mode: Option<&str>) -> Decision {
        let terms = Terms { cost: estimate, owner: Owner::new(organisation, project, endpoint)?, mode };
        let (asked, way) = (self.asked(Some(request), terms)?, Way::Reserve(id, duration("hold", hold)?));
        (self.reach, way.by_rules(self.engine(py)?, asked), about_request)
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

    /// Gives up to `units` (None: all) of each charge of a decision of this limiter back, places
    /// of concurrency too. An outage is no error: what cannot be given back comes back with time.
    fn refund / arefund (decision, units = None)
    (self, py, decision: &Bound<'_, Decision>,
        #[pyo3(from_py_with = whole_or_none)] units: Option<i64>) -> () {
        (self.reach, self.refunded(py, decision, units)?, |()| ())
    }

    /// Forgets the counters of a request; says how many there were.
    fn reset / areset (request = None, *, organisation = None, project = None, endpoint = None)
    (self, py, request: Option<&Bound<'_, PyAny>>, organisation: Option<Id>, project: Option<Id>,
        endpoint: Option<String>) -> usize {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode: None };
        let (engine, asked) = (self.engine(py)?, self.asked(request, terms)?);
        (self.reach, async move { Ok(engine.reset(&asked).await?) }, |count| count)
    }
}

impl Limiter {
    fn refunded(
        &self,
        py: Python<'_>,
        decision: &Bound<'_, Decision>,
        units: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let asked = match &decision.get().about {
            About::Request(asked) if asked.limiter == self.id => asked.clone(),
            _ => {
                let message = "decision: got one of another limiter; expected one of this limiter";
                return Err(Failure::Input(message.to_owned()).into());
            }
        };
        let (engine, decision) = (self.engine(py)?, ratekeeper::Decision::clone(&decision.get().inner));
        let units = refund_units(units)?;
        Ok(async move { Ok(engine.refund(&asked, &decision, units).await?) })
    }

    fn settled(
        &self,
        py: Python<'_>,
        id: String,
        actual: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<Settled, Failure>> + Send + use<>> {
        let engine = self.engine(py)?;
        let actual = actual.map(|actual| units("actual", actual)).transpose()?;
        Ok(async move {
            Ok(match actual {
                Some(actual) => engine.settle(&id, actual).await?,
                None => engine.cancel(&id).await?,
            })
        })
    }
}
