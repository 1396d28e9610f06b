//! What becomes of this module at a fork.
//!
//! A fork copies memory but not threads. So whatever has threads or connections is marked
//! with the process that made it ([`Own`]); a child makes its own when it first needs one, and
//! leaves its parent's alone: to drop it would be to wait for threads that are not there.
//!
//! A lock that another thread holds at that moment would be held for ever in the child. Ours are
//! held under the interpreter's lock, which whoever forks has; or in a step of a future, and
//! forks wait for those ([`gated`]).

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Failure;
use crate::logging;

/// Counts forks, as seen from the children: what was made in another generation has
/// no threads any more.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static GATE: Gate = Gate { closed: AtomicUsize::new(0), inside: AtomicUsize::new(0) };

thread_local! {
    /// Whether this thread is within a step that a fork waits for.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Which process this is, in a line of forks.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Asks to be told of forks.
pub(super) fn register(py: Python<'_>) -> PyResult<()> {
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, py)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork_in_parent, py)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, py)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

#[pyfunction]
fn before_fork() {
    GATE.close();
}

#[pyfunction]
fn after_fork_in_parent() {
    GATE.open();
}

#[pyfunction]
fn after_fork_in_child() {
    // Whoever was inside is not in this process.
    GATE.inside.store(0, Ordering::Release);
    GENERATION.fetch_add(1, Ordering::AcqRel);
    logging::forget();
    // Other threads that were about to fork are not here either.
    GATE.closed.store(0, Ordering::SeqCst);
}

/// Keeps forks out while a thread without the interpreter's lock may hold one of ours:
/// in the child, nobody would ever give it back.
struct Gate {
    /// Forks that are under way: of one in each of two threads, the first must not open it for the other.
    closed: AtomicUsize,
    inside: AtomicUsize,
}

impl Gate {
    fn enter(&self) {
        loop {
            self.inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.leave();
            thread::yield_now();
        }
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn close(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
        // A step of a future takes microseconds, a reload of policies up to a second.
        while self.inside.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
    }

    fn open(&self) {
        self.closed.fetch_sub(1, Ordering::SeqCst);
    }
}

pin_project_lite::pin_project! {
    /// A future whose steps a fork waits for.
    pub(crate) struct Gated<F> {
        #[pin]
        future: F,
    }
}

/// The future, whose steps a fork waits for.
pub(crate) fn gated<F: Future>(future: F) -> Gated<F> {
    Gated { future }
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        fenced(|| self.project().future.poll(context))
    }
}

/// Runs a step that a fork waits for. Not under the interpreter's lock: whoever forks has it.
pub(crate) fn fenced<T>(step: impl FnOnce() -> T) -> T {
    /// Leaves also if the step panics: or no fork would ever come to an end.
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            IS_INSIDE.set(false);
            GATE.leave();
        }
    }
    // Within one of its own, a thread must not wait for a fork that waits for it.
    if IS_INSIDE.get() {
        return step();
    }
    GATE.enter();
    IS_INSIDE.set(true);
    let _inside = Inside;
    step()
}

/// What one process has made, and another must not touch: connections, threads, and
/// whatever knows of them.
#[derive(Debug)]
pub(crate) struct Own<T> {
    made_in: u64,
    value: Option<T>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { made_in: generation(), value: Some(value) }
    }

    /// The value, if this process has made it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.made_in == generation())
    }
}

impl<T> Drop for Own<T> {
    /// In a child, to drop it would be to wait for threads that are not there.
    fn drop(&mut self) {
        if self.made_in != generation() {
            std::mem::forget(self.value.take());
        }
    }
}

/// A value that each process makes for itself when it first needs it.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(Mutex<Own<T>>);

impl<T: Clone> PerProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(Own::new(value)))
    }

    /// The value, also in a child: for what knows of memory alone.
    pub(crate) fn even_if_inherited(&self) -> PyResult<T> {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(own.value.clone().ok_or(Failure::Lost)?)
    }

    pub(crate) fn get_or(&self, make: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        // Taken under the interpreter's lock only, so never held at a fork.
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = own.get() {
            return Ok(value.clone());
        }
        let value = make()?;
        *own = Own::new(value.clone());
        Ok(value)
    }
}
