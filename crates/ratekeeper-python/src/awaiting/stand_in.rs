//! What stands in for a loop of `asyncio`, where another library runs: trio's tasks, or gevent's greenlets.
//!
//! `ratekeeper._trio` and `ratekeeper._gevent` have as much of a loop as a mailbox needs. Neither library is
//! imported by us: who runs in one has imported it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Whether a module has been imported.
fn is_imported(py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    let modules = || Ok::<_, PyErr>(py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.unbind());
    MODULES.get_or_try_init(py, modules)?.bind(py).contains(name)
}

/// What `running()` of a module of ours says, if the library that it is about has been imported.
fn running<'py>(
    py: Python<'py>,
    library: &Bound<'py, PyString>,
    module: &str,
    found: &'static PyOnceLock<Py<PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !is_imported(py, library)? {
        return Ok(None);
    }
    let running = found.import(py, module, "running")?.call0()?;
    Ok((!running.is_none()).then_some(running))
}

/// The loop that stands in for trio's, if this is one of its tasks.
pub(super) fn of_trio(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    running(py, intern!(py, "trio"), "ratekeeper._trio", &FOUND)
}

/// The loop that stands in for the hub of this thread, if a greenlet runs here that can wait for it.
pub(super) fn of_gevent(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    running(py, intern!(py, "gevent"), "ratekeeper._gevent", &FOUND)
}
