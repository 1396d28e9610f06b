//! The exceptions of the package, and what becomes of Rust's errors.

use std::fmt::Display;

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use ratekeeper::{BuildError, InvalidInput, StoreErrorKind};

static RATEKEEPER_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static STORE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static POLICY_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Adds the exceptions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("RatekeeperError", ratekeeper_error(py)?)?;
    module.add("StoreError", store_error(py)?)?;
    module.add("PolicyError", policy_error(py)?)
}

fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    (name, doc): (&str, &str),
    bases: impl FnOnce() -> PyResult<Bound<'py, PyTuple>>,
) -> PyResult<Bound<'py, PyType>> {
    let make = || {
        let body = PyDict::new(py);
        body.set_item("__module__", "ratekeeper")?;
        body.set_item("__doc__", doc)?;
        let class = py.get_type::<PyType>().call1((name, bases()?, body))?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    };
    Ok(cell.get_or_try_init(py, make)?.bind(py).clone())
}

fn ratekeeper_error(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let doc = "What this package raises, wrong arguments aside: those are a ValueError.";
    let bases = || PyTuple::new(py, [py.get_type::<PyException>()]);
    class(py, &RATEKEEPER_ERROR, ("RatekeeperError", doc), bases)
}

fn store_error(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let doc = "A store could not answer. `Limiter.check` never raises it: rules decide then.";
    let bases = || PyTuple::new(py, [ratekeeper_error(py)?]);
    class(py, &STORE_ERROR, ("StoreError", doc), bases)
}

fn policy_error(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let doc = "Policies that cannot be used or had. The text names file, line and field of every mistake.";
    let bases = || PyTuple::new(py, [ratekeeper_error(py)?, py.get_type::<PyValueError>()]);
    class(py, &POLICY_ERROR, ("PolicyError", doc), bases)
}

/// What went wrong in Rust, until there is an interpreter to raise it in.
#[derive(Debug)]
pub(crate) enum Failure {
    Input(String),
    Store(StoreErrorKind, bool, String),
    Policy(String),
    /// A fault of our own: the answer was lost.
    Lost,
}

impl Failure {
    pub(crate) fn policy(error: impl Display) -> Self {
        Self::Policy(error.to_string())
    }
}

impl From<InvalidInput> for Failure {
    fn from(error: InvalidInput) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::Input(format!("{error}: {}", error.source))
    }
}

impl From<ratekeeper::StoreError> for Failure {
    fn from(error: ratekeeper::StoreError) -> Self {
        let (kind, transient, message) = (error.kind(), error.is_transient(), error.to_string());
        error.into_input().map_or(Self::Store(kind, transient, message), Self::from)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| raised(py, failure).unwrap_or_else(|error| error))
    }
}

fn raised(py: Python<'_>, failure: Failure) -> PyResult<PyErr> {
    match failure {
        Failure::Input(message) => Ok(PyValueError::new_err(message)),
        Failure::Policy(message) => Ok(PyErr::from_type(policy_error(py)?, message)),
        Failure::Lost => {
            let message = "the answer was lost; please report this";
            Ok(PyErr::from_type(ratekeeper_error(py)?, message))
        }
        Failure::Store(kind, transient, message) => {
            let error = PyErr::from_type(store_error(py)?, message);
            error.value(py).setattr("kind", word(kind))?;
            error.value(py).setattr("is_transient", transient)?;
            Ok(error)
        }
    }
}

const fn word(kind: StoreErrorKind) -> &'static str {
    match kind {
        StoreErrorKind::Capacity => "capacity",
        StoreErrorKind::Timeout => "timeout",
        StoreErrorKind::Overloaded => "overloaded",
        StoreErrorKind::ReadOnly => "read_only",
        StoreErrorKind::Unreadable => "unreadable",
        StoreErrorKind::Permission => "permission",
        StoreErrorKind::Protocol => "protocol",
        // An input is a ValueError, and later kinds are outages too.
        _ => "unavailable",
    }
}
