//! Rules in code, and a store.

mod asked;
mod rule;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit};
use ratekeeper::Settled;

pub(crate) use self::asked::Asked;
use self::asked::{Owner, Terms};
use self::rule::KeyOf;
pub(crate) use self::rule::Rule;
use crate::arguments::{Id, duration, float, type_name, units, whole, whole_or_none};
use crate::awaiting::{awaited, awaited_at_length, block, ready};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::http::Tally;
use crate::logging;
use crate::runtime::{PerProcess, Reach};
use crate::store::{Store, refund_units, settled_word};

/// The limiter as the library has it.
type Engine = Arc<ratekeeper::Limiter<Asked>>;

/// Rules in code and a store: all rules that apply are one all-or-nothing check.
///
/// `store`: None is a memory of its own. `instances`: how many processes share the limits,
/// for rules with `on_outage="local"`.
///
/// `request` is handed to the key functions of the rules. For rules without one it is
/// the key itself (str), or a mapping from names of rules to keys; a rule that is not
/// in it, or has None there, does not apply.
///
/// `organisation`, `project` and `endpoint` say whose overrides apply; `endpoint` is the
/// quota's name unless it is given (then `endpoint.rpm` for one quota of several).
/// `mode` makes this call do less than the rules say: "monitor", or "off".
#[pyclass(module = "ratekeeper", frozen)]
pub(crate) struct Limiter {
    /// Tells decisions of this limiter from those of others.
    id: u64,
    store: Py<Store>,
    rules: Vec<Py<Rule>>,
    instances: u32,
    reach: Reach,
    /// Whether a rule has a key function.
    has_functions: bool,
    live: Live,
}

/// What decides. In memory it outlives forks.
enum Live {
    Always(Engine),
    PerProcess(PerProcess<Engine>),
}

/// How many requests were decided without the store.
#[pyclass(module = "ratekeeper", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Outages {
    /// Requests that passed unchecked.
    allowed: u64,
    /// Requests that were denied unchecked.
    denied: u64,
    /// Requests that were judged in this process's own memory.
    local: u64,
}

#[pymethods]
impl Outages {
    fn __repr__(&self) -> String {
        format!("<Outages: {} allowed, {} denied, {} local>", self.allowed, self.denied, self.local)
    }
}

impl From<ratekeeper::Outages> for Outages {
    fn from(outages: ratekeeper::Outages) -> Self {
        let ratekeeper::Outages { allowed, denied, local } = outages;
        Self { allowed, denied, local }
    }
}

impl Limiter {
    fn engine(&self, py: Python<'_>) -> PyResult<Engine> {
        match &self.live {
            Live::Always(engine) => Ok(Arc::clone(engine)),
            Live::PerProcess(engine) => {
                engine.get_or(|| build(py, self.store.get(), &self.rules, self.instances))
            }
        }
    }

    /// Decides in memory.
    fn decide_now(
        &self,
        py: Python<'_>,
        engine: &ratekeeper::Limiter<Asked>,
        asked: Asked,
    ) -> PyResult<Decision> {
        let mut inner = Box::<ratekeeper::Decision>::default();
        engine.check_cost_into(&asked, asked.cost, &mut inner).map_err(Failure::from)?;
        logging::tell(py);
        Ok(Decision { inner, about: About::Request(asked) })
    }

    fn decide(&self, py: Python<'_>, asked: Asked) -> PyResult<Decision> {
        if let Live::Always(engine) = &self.live {
            return self.decide_now(py, engine, asked);
        }
        block(py, self.reach, decided(self.engine(py)?, asked, Way::Check), about_request)
    }

    fn adecide<'py>(&self, py: Python<'py>, asked: Asked) -> PyResult<Bound<'py, PyAny>> {
        if let Live::Always(engine) = &self.live {
            return ready(py, self.decide_now(py, engine, asked)?.into_py_any(py)?);
        }
        awaited(py, self.reach, decided(self.engine(py)?, asked, Way::Check), about_request)
    }

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

    fn forgotten(
        &self,
        py: Python<'_>,
        asked: Asked,
    ) -> PyResult<impl Future<Output = Result<usize, Failure>> + Send + use<>> {
        let engine = self.engine(py)?;
        Ok(async move { Ok(engine.reset(&asked).await?) })
    }
}

/// What is done with a request.
enum Way {
    Check,
    Peek,
    Reserve(String, Duration),
    Wait(Duration),
}

async fn decided(engine: Engine, asked: Asked, way: Way) -> Result<(ratekeeper::Decision, Asked), Failure> {
    let decision = match &way {
        Way::Check => engine.check_cost(&asked, asked.cost).await?,
        Way::Peek => engine.peek(&asked).await?,
        Way::Reserve(id, hold) => engine.reserve(&asked, asked.cost, id, *hold).await?,
        Way::Wait(patience) => engine.until_allowed(&asked, *patience).await?,
    };
    Ok((decision, asked))
}

fn about_request((inner, asked): (ratekeeper::Decision, Asked)) -> Decision {
    Decision { inner: Box::new(inner), about: About::Request(asked) }
}

fn build(py: Python<'_>, store: &Store, rules: &[Py<Rule>], instances: u32) -> PyResult<Engine> {
    let mut builder = ratekeeper::Limiter::builder_on(store.live()?)
        .instances(std::num::NonZeroU32::new(instances).unwrap_or(std::num::NonZeroU32::MIN));
    for (index, rule) in rules.iter().enumerate() {
        builder = builder.rule(rule.bind(py).get().compiled(index));
    }
    Ok(Arc::new(builder.build().map_err(Failure::from)?))
}

/// One rule, or several.
fn rules_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<Py<Rule>>> {
    if let Ok(rule) = value.cast::<Rule>() {
        return Ok(vec![rule.clone().unbind()]);
    }
    let wrong = |got: &Bound<'_, PyAny>| {
        PyTypeError::new_err(format!("rules: expected a Rule or several, got {}", type_name(got)))
    };
    let items = value.try_iter().map_err(|_| wrong(value))?;
    let items = items.map(|item| {
        let item = item?;
        Ok(item.cast::<Rule>().map_err(|_| wrong(&item))?.clone().unbind())
    });
    items.collect()
}

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(signature = (store, rules, *, instances = 1))]
    fn new(
        py: Python<'_>,
        store: Option<Bound<'_, Store>>,
        rules: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] instances: i64,
    ) -> PyResult<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let store = store.map_or_else(|| Bound::new(py, Store::in_memory()), Ok)?;
        let rules = rules_of(rules)?;
        let instances =
            u32::try_from(instances).ok().filter(|instances| *instances > 0).ok_or_else(|| {
                Failure::Input(format!("instances: got {instances}; expected a whole number of at least 1"))
            })?;
        let engine = build(py, store.get(), &rules, instances)?;
        let reach = store.get().reach();
        let live = match reach {
            Reach::Memory => Live::Always(engine),
            Reach::Far => Live::PerProcess(PerProcess::new(engine)),
        };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let has_functions = rules.iter().any(|rule| matches!(rule.get().key, KeyOf::Function(_)));
        Ok(Self { id, store: store.unbind(), rules, instances, reach, has_functions, live })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.store)?;
        self.rules.iter().try_for_each(|rule| visit.call(rule))
    }

    fn __repr__(&self) -> String {
        let rules: Vec<String> = self.rules.iter().map(|rule| rule.get().shown()).collect();
        format!("<Limiter in {}: {}>", self.store.get().kind(), rules.join("; "))
    }

    /// Where it counts.
    #[getter]
    fn store(&self, py: Python<'_>) -> Py<Store> {
        self.store.clone_ref(py)
    }

    /// Its rules, in their order.
    #[getter]
    fn rules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.rules.iter().map(|rule| rule.clone_ref(py)))
    }

    /// How many requests were decided without the store, in this process.
    #[getter]
    fn outages(&self, py: Python<'_>) -> PyResult<Outages> {
        Ok(self.engine(py)?.outages().into())
    }

    /// Judges a request and charges it. Cost 0 only tells; one above every limit is denied.
    #[pyo3(signature = (request = None, *, cost = 1, organisation = None, project = None, endpoint = None,
        mode = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
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
    /// It is no coroutine: `asyncio.ensure_future` makes a task of it, `create_task` does not.
    #[pyo3(signature = (request = None, *, cost = 1, organisation = None, project = None, endpoint = None,
        mode = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
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
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
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

    /// What a request would meet; nothing changes.
    #[pyo3(signature = (request = None, *, organisation = None, project = None, endpoint = None, mode = None))]
    fn peek(
        &self,
        py: Python<'_>,
        request: Option<&Bound<'_, PyAny>>,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Decision> {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode };
        let asked = self.asked(request, terms)?;
        block(py, self.reach, decided(self.engine(py)?, asked, Way::Peek), about_request)
    }

    /// `peek`, to be awaited.
    #[pyo3(signature = (request = None, *, organisation = None, project = None, endpoint = None, mode = None))]
    fn apeek<'py>(
        &self,
        py: Python<'py>,
        request: Option<&Bound<'_, PyAny>>,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode };
        let asked = self.asked(request, terms)?;
        awaited(py, self.reach, decided(self.engine(py)?, asked, Way::Peek), about_request)
    }

    /// Charges an estimate under `id`, to be settled or cancelled within `hold` seconds; charged once.
    #[pyo3(signature = (request, estimate, id, hold, *, organisation = None, project = None, endpoint = None,
        mode = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn reserve(
        &self,
        py: Python<'_>,
        request: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] estimate: i64,
        id: String,
        #[pyo3(from_py_with = float)] hold: f64,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Decision> {
        let terms = Terms { cost: estimate, owner: Owner::new(organisation, project, endpoint)?, mode };
        let (asked, way) = (self.asked(Some(request), terms)?, Way::Reserve(id, duration("hold", hold)?));
        block(py, self.reach, decided(self.engine(py)?, asked, way), about_request)
    }

    /// `reserve`, to be awaited.
    #[pyo3(signature = (request, estimate, id, hold, *, organisation = None, project = None, endpoint = None,
        mode = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn areserve<'py>(
        &self,
        py: Python<'py>,
        request: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] estimate: i64,
        id: String,
        #[pyo3(from_py_with = float)] hold: f64,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
        mode: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let terms = Terms { cost: estimate, owner: Owner::new(organisation, project, endpoint)?, mode };
        let (asked, way) = (self.asked(Some(request), terms)?, Way::Reserve(id, duration("hold", hold)?));
        awaited(py, self.reach, decided(self.engine(py)?, asked, way), about_request)
    }

    /// Makes the charge of a reservation the actual amount.
    ///
    /// "done", or "already" if it was settled before, "lapsed" if its time was over, "unknown" if there is none.
    fn settle(
        &self,
        py: Python<'_>,
        id: String,
        #[pyo3(from_py_with = whole)] actual: i64,
    ) -> PyResult<&'static str> {
        block(py, self.reach, self.settled(py, id, Some(actual))?, settled_word)
    }

    /// `settle`, to be awaited.
    fn asettle<'py>(
        &self,
        py: Python<'py>,
        id: String,
        #[pyo3(from_py_with = whole)] actual: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach, self.settled(py, id, Some(actual))?, settled_word)
    }

    /// Gives the charge of a reservation back; says the same as `settle`.
    fn cancel(&self, py: Python<'_>, id: String) -> PyResult<&'static str> {
        block(py, self.reach, self.settled(py, id, None)?, settled_word)
    }

    /// `cancel`, to be awaited.
    fn acancel<'py>(&self, py: Python<'py>, id: String) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach, self.settled(py, id, None)?, settled_word)
    }

    /// Waits until it is allowed, at most `patience` seconds, and as long as a leaky bucket asks.
    /// If that would not suffice, the denial comes at once. Ctrl-C ends the wait, and so does
    /// cancelling whoever awaits it.
    #[pyo3(signature = (request = None, patience = 60.0, *, organisation = None, project = None,
        endpoint = None, mode = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
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
        block(py, Reach::Far, decided(self.engine(py)?, asked, way), about_request)
    }

    /// `until_allowed`, to be awaited.
    #[pyo3(signature = (request = None, patience = 60.0, *, organisation = None, project = None,
        endpoint = None, mode = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
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
        awaited_at_length(py, decided(self.engine(py)?, asked, way), about_request)
    }

    /// Gives up to `units` (None: all) of each charge of a decision of this limiter back, places
    /// of concurrency too. An outage is no error: what cannot be given back comes back with time.
    #[pyo3(signature = (decision, units = None))]
    fn refund(
        &self,
        py: Python<'_>,
        decision: &Bound<'_, Decision>,
        #[pyo3(from_py_with = whole_or_none)] units: Option<i64>,
    ) -> PyResult<()> {
        block(py, self.reach, self.refunded(py, decision, units)?, |()| ())
    }

    /// `refund`, to be awaited.
    #[pyo3(signature = (decision, units = None))]
    fn arefund<'py>(
        &self,
        py: Python<'py>,
        decision: &Bound<'_, Decision>,
        #[pyo3(from_py_with = whole_or_none)] units: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach, self.refunded(py, decision, units)?, |()| ())
    }

    /// Forgets the counters of a request; says how many there were.
    #[pyo3(signature = (request = None, *, organisation = None, project = None, endpoint = None))]
    fn reset(
        &self,
        py: Python<'_>,
        request: Option<&Bound<'_, PyAny>>,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
    ) -> PyResult<usize> {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode: None };
        block(py, self.reach, self.forgotten(py, self.asked(request, terms)?)?, |count| count)
    }

    /// `reset`, to be awaited.
    #[pyo3(signature = (request = None, *, organisation = None, project = None, endpoint = None))]
    fn areset<'py>(
        &self,
        py: Python<'py>,
        request: Option<&Bound<'_, PyAny>>,
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let terms = Terms { cost: 1, owner: Owner::new(organisation, project, endpoint)?, mode: None };
        awaited(py, self.reach, self.forgotten(py, self.asked(request, terms)?)?, |count| count)
    }
}
