//! Answers for event loops.
//!
//! What needs no I/O is answered by [`awaitable::Ready`], which an `await` takes without a turn
//! of the loop. For the rest every loop has a [`mailbox`].

mod awaitable;
mod mailbox;
mod stand_in;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{IntoPyObjectExt, intern};
use tokio::task::AbortHandle;

use self::awaitable::pending;
pub(crate) use self::awaitable::ready;
use self::mailbox::Reader;
use crate::error::Failure;
use crate::logging;
use crate::runtime::{self, Reach, gated};

/// Runs `future` outside of the interpreter; `finish` makes an object of what it comes to.
/// If whoever awaits it gives up, it runs on: to be told would cost every call.
fn spawn<'py, F, D>(
    event_loop: &Bound<'py, PyAny>,
    future: F,
    finish: D,
) -> PyResult<(Bound<'py, PyAny>, AbortHandle)>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    D: FnOnce(Python<'_>, F::Output) -> PyResult<Py<PyAny>> + Send + 'static,
{
    let (py, runtime) = (event_loop.py(), runtime::shared()?);
    let reader = Reader::of(py, event_loop)?;
    let awaited = event_loop.call_method0(intern!(py, "create_future"))?;
    let promise = reader.get().promise(awaited.clone().unbind());
    let task = runtime.spawn(async move {
        let output = gated(future).await;
        promise.keep(Box::new(move |py| finish(py, output)));
    });
    Ok((awaited, task.abort_handle()))
}

/// What a future calls when it is over: ends a task that nobody waits for any more.
#[pyclass(module = "ratekeeper", frozen)]
struct Abort(AbortHandle);

#[pymethods]
impl Abort {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        self.0.abort();
    }
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // Before `asyncio`, in whose loop trio may run as a guest.
    if let Some(found) = stand_in::of_trio(py)? {
        return Ok(found);
    }
    GET.import(py, "asyncio", "get_running_loop")?.call0().map_err(|error| {
        let message = "no running event loop: got none of asyncio or trio in this thread; \
            expected one, or the plain form of the call, such as check for acheck";
        let told = PyRuntimeError::new_err(message);
        told.set_cause(py, Some(error));
        told
    })
}

/// Waits as a greenlet does: others run meanwhile. If it is killed, what would take long ends.
fn switched<F>(hub: &Bound<'_, PyAny>, reach: Reach, future: F) -> PyResult<Option<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let py = hub.py();
    let slot = Arc::new(Mutex::new(None));
    let filled = Arc::clone(&slot);
    let answered = async move {
        let output = future.await;
        *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
    };
    let (answer, task) = spawn(hub, answered, |py, ()| Ok(py.None()))?;
    let waited = hub.call_method1(intern!(py, "wait"), (answer,));
    if waited.is_err() && reach == Reach::Long {
        task.abort();
    }
    waited?;
    Ok(slot.lock().unwrap_or_else(PoisonError::into_inner).take())
}

/// The plain form of a call.
pub(crate) fn block<T, F>(py: Python<'_>, reach: Reach, future: F) -> PyResult<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let output = match reach {
        Reach::Memory => runtime::at_once(future).unwrap_or(Err(Failure::Lost)),
        Reach::Far | Reach::Long => match stand_in::of_gevent(py)? {
            None => runtime::wait(py, future)?,
            Some(hub) => switched(&hub, reach, future)?.unwrap_or(Err(Failure::Lost)),
        },
    };
    logging::tell(py);
    Ok(output?)
}

/// The form of a call that is awaited.
pub(crate) fn awaited<'py, T, F>(py: Python<'py>, reach: Reach, future: F) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'p> IntoPyObject<'p> + Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let object = |py: Python<'_>, output: Result<T, Failure>| output?.into_py_any(py);
    if reach == Reach::Memory {
        let output = runtime::at_once(future).unwrap_or(Err(Failure::Lost));
        logging::tell(py);
        return ready(py, object(py, output)?);
    }
    let (awaited, task) = spawn(&running_loop(py)?, future, object)?;
    if reach == Reach::Long {
        awaited.call_method1(intern!(py, "add_done_callback"), (Abort(task),))?;
    }
    pending(awaited)
}
