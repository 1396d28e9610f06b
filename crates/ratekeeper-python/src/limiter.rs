//! Rules in code, and a store.

mod asked;
mod calls;
mod rule;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};
use ratekeeper::Demand;

pub(crate) use self::asked::Asked;
use self::rule::KeyOf;
pub(crate) use self::rule::Rule;
use crate::arguments::{type_name, whole};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::runtime::{PerProcess, Reach};
use crate::store::Store;
use crate::verbs::{Asking, Front, Once, decide_now, written};

/// The limiter as the library has it.
type Live = Arc<ratekeeper::Limiter<Asked>>;

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
    live: Kept,
}

/// What decides. In memory it outlives forks.
enum Kept {
    Always(Live),
    PerProcess(PerProcess<Live>),
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
    fn live(&self, py: Python<'_>) -> PyResult<Live> {
        match &self.live {
            Kept::Always(limiter) => Ok(Arc::clone(limiter)),
            Kept::PerProcess(limiter) => {
                limiter.get_or(|| build(py, self.store.get(), &self.rules, self.instances))
            }
        }
    }
}

impl Front for Limiter {
    type Asked = Asked;

    fn reach(&self) -> Reach {
        self.reach
    }

    fn engine(&self, py: Python<'_>) -> PyResult<Arc<ratekeeper::Engine>> {
        Ok(Arc::clone(self.live(py)?.engine()))
    }

    fn ask(&self, py: Python<'_>, asked: Asked) -> PyResult<Asking> {
        let demand = asked.demand(&*self.live(py)?).into_owned();
        Ok(Asking::new(demand, Some(About::Request(asked))))
    }

    fn check_now(&self, py: Python<'_>, asked: Asked, once: Once) -> PyResult<Decision> {
        let here;
        let limiter = match &self.live {
            Kept::Always(limiter) => limiter,
            Kept::PerProcess(_) => {
                here = self.live(py)?;
                &here
            }
        };
        let inner = match once {
            None => written(|decision| Ok(asked.check_into(limiter, decision)?))?,
            Some(_) => decide_now(asked.demand(limiter), once, false)?,
        };
        Ok(Decision { inner, about: About::Request(asked) })
    }

    fn charged(&self, py: Python<'_>, decision: &Decision) -> PyResult<Demand<'static>> {
        match &decision.about {
            About::Request(asked) if asked.limiter == self.id => {
                Ok(self.live(py)?.demand_in_any_mode(asked).into_owned())
            }
            _ => {
                let message = "decision: got one of another limiter; expected one of this limiter";
                Err(Failure::Input(message.to_owned()).into())
            }
        }
    }
}

fn build(py: Python<'_>, store: &Store, rules: &[Py<Rule>], instances: u32) -> PyResult<Live> {
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
        let limiter = build(py, store.get(), &rules, instances)?;
        let reach = store.get().reach();
        let live = match reach {
            Reach::Memory => Kept::Always(limiter),
            Reach::Far | Reach::Long => Kept::PerProcess(PerProcess::new(limiter)),
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
        Ok(self.live(py)?.outages().into())
    }
}
