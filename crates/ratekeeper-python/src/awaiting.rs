//! Answers for event loops.
//!
//! What needs no I/O is answered by [`Ready`], which an `await` takes without a turn
//! of the loop. For the rest every loop has a [`Mailbox`]: tasks put answers into it
//! without the interpreter's lock and, if it was empty, wake the loop through a socket
//! that it watches. The loop then takes all answers at once. So a thousand checks
//! that finish together cost one wake-up.
//!
//! Only the loop holds what belongs to it ([`Reader`]): a loop that is closed takes
//! its sockets and its futures along, whatever is still under way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit, intern};
use tokio::task::AbortHandle;

use crate::error::Failure;
use crate::logging;
use crate::runtime::{self, Reach, gated};

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

fn not_awaited() -> PyErr {
    PyTypeError::new_err("the answer has to be awaited before it can be asked: `if await ...`")
}

/// The awaitable of an answer that is there.
pub(crate) fn ready(py: Python<'_>, value: Py<PyAny>) -> PyResult<Bound<'_, PyAny>> {
    Ok(Bound::new(py, Ready(value))?.into_any())
}

/// What a task leaves for its loop: made into an object there.
type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Runs `future` outside of the interpreter; `finish` makes an object of what it comes to.
/// If whoever awaits it gives up, it runs on: to be told would cost every call.
fn spawn<'py, F, D>(py: Python<'py>, future: F, finish: D) -> PyResult<(Bound<'py, PyAny>, AbortHandle)>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    D: FnOnce(Python<'_>, F::Output) -> PyResult<Py<PyAny>> + Send + 'static,
{
    let runtime = runtime::shared()?;
    let event_loop = running_loop(py)?;
    let reader = Reader::of(py, &event_loop)?;
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
    GET.import(py, "asyncio", "get_running_loop")?.call0()
}

/// The answers for one event loop. Nothing of Python is in it: tasks hold it.
struct Mailbox {
    letters: Mutex<Vec<(u64, Answer)>>,
    wake: UnixStream,
}

impl Mailbox {
    fn post(&self, id: u64, answer: Answer) {
        let mut letters = locked(&self.letters);
        letters.push((id, answer));
        if letters.len() == 1 {
            // If there is no room, the loop has been woken already; if nobody reads, the
            // loop is gone, and so is whoever waited.
            let _ = (&self.wake).write(&[1]);
        }
    }
}

/// An answer that is owed.
struct Promise {
    mailbox: Arc<Mailbox>,
    id: u64,
    is_kept: bool,
}

impl Promise {
    fn keep(mut self, answer: Answer) {
        self.is_kept = true;
        self.mailbox.post(self.id, answer);
    }
}

impl Drop for Promise {
    /// Nobody may wait for ever, whatever became of the task.
    fn drop(&mut self) {
        if !self.is_kept {
            self.mailbox.post(self.id, Box::new(|_| Err(Failure::Lost.into())));
        }
    }
}

/// What a loop calls when there are letters. The loop alone holds it, until it is closed.
#[pyclass(module = "ratekeeper", frozen, weakref)]
struct Reader {
    mailbox: Arc<Mailbox>,
    /// The futures of the loop that wait. Touched under the interpreter's lock only.
    waiting: Mutex<(u64, HashMap<u64, Py<PyAny>>)>,
    woken: UnixStream,
}

thread_local! {
    /// The loop that asked last in this thread, and its reader.
    static LATEST: RefCell<Option<(Py<PyWeakrefReference>, Py<PyWeakrefReference>)>> =
        const { RefCell::new(None) };
}

impl Reader {
    fn of<'py>(py: Python<'py>, event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let latest = LATEST.with_borrow(|latest| {
            let (known, reader) = latest.as_ref()?;
            let is_same = known.bind(py).upgrade()?.is(event_loop);
            is_same.then(|| reader.bind(py).upgrade()?.cast_into::<Self>().ok()).flatten()
        });
        if let Some(reader) = latest {
            return Ok(reader);
        }
        let reader = Self::find_or_open(py, event_loop)?;
        let weak =
            (PyWeakrefReference::new(event_loop)?.unbind(), PyWeakrefReference::new(&reader)?.unbind());
        LATEST.set(Some(weak));
        Ok(reader)
    }

    fn find_or_open<'py>(py: Python<'py>, event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        // Weak on both sides: a reader knows futures, and these know their loop.
        static READERS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let dictionary =
            || Ok::<_, PyErr>(py.import("weakref")?.getattr("WeakKeyDictionary")?.call0()?.unbind());
        let readers = READERS.get_or_try_init(py, dictionary)?.bind(py);
        let known = readers.call_method1(intern!(py, "get"), (event_loop,))?;
        let known = known.cast::<PyWeakrefReference>().ok().and_then(PyWeakrefMethods::upgrade);
        if let Some(Ok(reader)) = known.map(Bound::cast_into::<Self>) {
            return Ok(reader);
        }
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let socket = woken.as_raw_fd();
        let mailbox = Arc::new(Mailbox { letters: Mutex::default(), wake });
        let reader = Bound::new(py, Self { mailbox, waiting: Mutex::default(), woken })?;
        event_loop.call_method1(intern!(py, "add_reader"), (socket, &reader))?;
        readers.set_item(event_loop, PyWeakrefReference::new(&reader)?)?;
        Ok(reader)
    }

    fn promise(&self, awaited: Py<PyAny>) -> Promise {
        let mut waiting = locked(&self.waiting);
        let id = waiting.0;
        waiting.0 += 1;
        waiting.1.insert(id, awaited);
        Promise { mailbox: Arc::clone(&self.mailbox), id, is_kept: false }
    }
}

#[pymethods]
impl Reader {
    fn __call__(&self, py: Python<'_>) {
        // Before the letters are taken: whoever posts from now on wakes the loop again.
        let mut bytes = [0; 64];
        let _ = (&self.woken).read(&mut bytes);
        let letters = std::mem::take(&mut *locked(&self.mailbox.letters));
        for (id, answer) in letters {
            let awaited = locked(&self.waiting).1.remove(&id);
            let Some(awaited) = awaited.map(|awaited| awaited.into_bound(py)) else { continue };
            if let Err(error) = hand_over(&awaited, answer) {
                // The others still wait for theirs.
                error.write_unraisable(py, Some(&awaited));
            }
        }
        logging::tell(py);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.waiting.try_lock() {
            Ok(waiting) => waiting.1.values().try_for_each(|awaited| visit.call(awaited)),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let forgotten = std::mem::take(&mut locked(&self.waiting).1);
        drop(forgotten);
    }
}

fn hand_over(awaited: &Bound<'_, PyAny>, answer: Answer) -> PyResult<()> {
    let py = awaited.py();
    // Whoever was cancelled does not want it any more.
    if awaited.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match answer(py) {
        Ok(value) => awaited.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => awaited.call_method1(intern!(py, "set_exception"), (error,))?,
    };
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plain form of a call.
pub(crate) fn block<T, P, F>(
    py: Python<'_>,
    reach: Reach,
    future: F,
    finish: impl FnOnce(T) -> P,
) -> PyResult<P>
where
    T: Send,
    F: Future<Output = Result<T, Failure>> + Send,
{
    let output = match reach {
        Reach::Memory => runtime::at_once(future).unwrap_or(Err(Failure::Lost)),
        Reach::Far => runtime::wait(py, future)?,
    };
    logging::tell(py);
    Ok(finish(output?))
}

/// The form of a call that is awaited.
pub(crate) fn awaited<'py, T, P, F>(
    py: Python<'py>,
    reach: Reach,
    future: F,
    finish: impl FnOnce(T) -> P + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: Send + 'static,
    P: for<'p> IntoPyObject<'p>,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let object = move |py: Python<'_>, output: T| finish(output).into_py_any(py);
    match reach {
        Reach::Memory => {
            let output = runtime::at_once(future).unwrap_or(Err(Failure::Lost));
            logging::tell(py);
            ready(py, object(py, output?)?)
        }
        Reach::Far => Ok(spawn(py, future, move |py, output| object(py, output?))?.0),
    }
}

/// The same for a call that may take long: it ends if whoever awaits it gives up.
pub(crate) fn awaited_at_length<'py, T, P, F>(
    py: Python<'py>,
    future: F,
    finish: impl FnOnce(T) -> P + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: Send + 'static,
    P: for<'p> IntoPyObject<'p>,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let (awaited, task) = spawn(py, future, move |py, output| finish(output?).into_py_any(py))?;
    awaited.call_method1(intern!(py, "add_done_callback"), (Abort(task),))?;
    Ok(awaited)
}
