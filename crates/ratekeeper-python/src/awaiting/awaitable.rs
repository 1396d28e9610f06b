//! What is awaited.

use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};
use pyo3::{PyTraverseError, PyVisit, intern};

/// An answer that is there already, to be awaited.
#[pyclass(module = "ratekeeper", frozen)]
pub(crate) struct Ready(Py<PyAny>);

#[pymethods]
impl Ready {
    fn __await__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The answer, and not whether there is one: nobody passes because an `await` was forgotten.
    fn __bool__(&self) -> PyResult<bool> {
        Err(not_awaited())
    }

    /// Awaited again, it is the same answer, as from the future of one that took I/O.
    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        // A tuple would be taken for the arguments of the exception.
        Err(PyStopIteration::new_err((self.0.clone_ref(py),)))
    }
}

/// An answer that is under way, to be awaited: the future of the loop, but for one thing.
///
/// `asyncio` takes it for a future, because it has what one has.
#[pyclass(module = "ratekeeper", frozen)]
struct Pending(Py<PyAny>);

#[pymethods]
impl Pending {
    // What is yielded to the loop is the future itself.
    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.0.bind(py).try_iter()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.0.bind(py).try_iter()
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(not_awaited())
    }

    #[getter]
    fn _asyncio_future_blocking<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.bind(py).getattr(intern!(py, "_asyncio_future_blocking"))
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.0.bind(py).getattr(name)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.bind(py).repr()?.to_string())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

/// The awaitable of an answer that is under way.
pub(super) fn pending<'py>(future: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = future.py();
    Ok(Bound::new(py, Pending(future.unbind()))?.into_any())
}

fn not_awaited() -> PyErr {
    PyTypeError::new_err("the answer has to be awaited before it can be asked: `if await ...`")
}

/// The awaitable of an answer that is there.
pub(crate) fn ready(py: Python<'_>, value: Py<PyAny>) -> PyResult<Bound<'_, PyAny>> {
    Ok(Bound::new(py, Ready(value))?.into_any())
}
