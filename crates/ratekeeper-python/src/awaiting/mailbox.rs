//! How answers reach the event loops that wait for them.
//!
//! Every loop has a [`Mailbox`]: tasks put answers into it without the interpreter's lock and, if it was
//! empty, wake the loop through a socket that it watches. The loop then takes all answers at once.
//! So a thousand checks that finish together cost one wake-up.
//!
//! Only the loop holds what belongs to it ([`Reader`]): a loop that is closed takes
//! its sockets and its futures along, whatever is still under way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::error::Failure;
use crate::logging;

/// What a task leaves for its loop: made into an object there.
pub(super) type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

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
pub(super) struct Promise {
    mailbox: Arc<Mailbox>,
    id: u64,
    is_kept: bool,
}

impl Promise {
    pub(super) fn keep(mut self, answer: Answer) {
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
pub(super) struct Reader {
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
    pub(super) fn of<'py>(py: Python<'py>, event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
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

    pub(super) fn promise(&self, awaited: Py<PyAny>) -> Promise {
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
