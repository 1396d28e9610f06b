//! Rules in code, and a store.

mod asked;
mod calls;
mod rule;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit};

pub(crate) use self::asked::Asked;
use self::rule::KeyOf;
pub(crate) use self::rule::Rule;
use crate::arguments::{type_name, whole};
use crate::awaiting::{awaited, block, ready};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::logging;
use crate::runtime::{PerProcess, Reach};
use crate::store::Store;
use crate::way::Way;

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
        engine.check_cost_into(&asked, asked.cost(), &mut inner).map_err(Failure::from)?;
        logging::tell(py);
        Ok(Decision { inner, about: About::Request(asked) })
    }

    fn decide(&self, py: Python<'_>, asked: Asked) -> PyResult<Decision> {
        if let Live::Always(engine) = &self.live {
            return self.decide_now(py, engine, asked);
        }
        block(py, self.reach, Way::Check.by_rules(self.engine(py)?, asked), about_request)
    }

    fn adecide<'py>(&self, py: Python<'py>, asked: Asked) -> PyResult<Bound<'py, PyAny>> {
        if let Live::Always(engine) = &self.live {
            return ready(py, self.decide_now(py, engine, asked)?.into_py_any(py)?);
        }
        awaited(py, self.reach, Way::Check.by_rules(self.engine(py)?, asked), about_request)
    }
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
}
