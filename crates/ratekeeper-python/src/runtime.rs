//! The runtime behind calls that take I/O, and what becomes of it at a fork and at exit.
//!
//! Whoever blocks drives the runtime itself: then a call and its answer stay on one
//! thread, and none has to wake another. While nobody blocks, a thread of our own, the
//! caretaker, drives it. Once something is awaited in an event loop, it does so for good,
//! because event loops do not wait for us.
//!
//! A fork copies memory but not threads. So a child makes a runtime of its own when it
//! first needs one, and leaves the parent's alone: nothing of it may be dropped.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

/// How often a blocked thread looks for signals, such as Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// How soon after the last blocked thread the caretaker takes over.
const CARETAKER_AFTER: Duration = Duration::from_millis(5);

/// Counts forks, as seen from the children: what was made in another generation has
/// no threads any more.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static DRIVER: Mutex<Option<(u64, &'static Driver)>> = Mutex::new(None);
/// The thread in which the interpreter ends, once it does.
static EXITING: OnceLock<ThreadId> = OnceLock::new();
static GATE: Gate = Gate { closed: AtomicBool::new(false), inside: AtomicUsize::new(0) };

/// Which process this is, in a line of forks.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Asks to be told of forks and of the end.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, py)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork_in_parent, py)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, py)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(at_exit, py)?,))?;
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
    GATE.open();
}

#[pyfunction]
fn at_exit() {
    let _ = EXITING.set(thread::current().id());
}

/// The runtime of this process.
struct Driver {
    runtime: Runtime,
    /// Threads that block on the runtime, and drive it.
    blocked: AtomicUsize,
    /// Whether the caretaker drives for good.
    is_shared: AtomicBool,
    /// Asks the caretaker to let a blocked thread drive.
    leave: Notify,
}

fn driver() -> std::io::Result<&'static Driver> {
    let generation = generation();
    // Taken under the interpreter's lock only, so never held at a fork.
    let mut current = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    match *current {
        Some((made_in, driver)) if made_in == generation => Ok(driver),
        _ => {
            let driver = Driver::start()?;
            *current = Some((generation, driver));
            Ok(driver)
        }
    }
}

impl Driver {
    fn start() -> std::io::Result<&'static Self> {
        let driver: &'static Self = Box::leak(Box::new(Self {
            runtime: Builder::new_current_thread().enable_all().build()?,
            blocked: AtomicUsize::new(0),
            is_shared: AtomicBool::new(false),
            leave: Notify::new(),
        }));
        let caretaker = thread::Builder::new().name("ratekeeper".to_owned());
        caretaker.spawn(|| driver.take_care())?;
        Ok(driver)
    }

    fn take_care(&self) {
        loop {
            if self.is_shared.load(Ordering::Acquire) {
                self.runtime.block_on(std::future::pending::<()>());
            }
            if self.blocked.load(Ordering::Acquire) == 0 {
                self.runtime.block_on(self.leave.notified());
            }
            thread::sleep(CARETAKER_AFTER);
        }
    }

    /// Drives the runtime until `future` is ready.
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let is_first = self.blocked.fetch_add(1, Ordering::AcqRel) == 0;
        if is_first && !self.is_shared.load(Ordering::Acquire) {
            self.leave.notify_waiters();
        }
        let output = self.runtime.block_on(future);
        self.blocked.fetch_sub(1, Ordering::AcqRel);
        output
    }
}

/// Enters the runtime, for what spawns tasks as it is made.
pub(crate) fn within<T>(make: impl FnOnce() -> T) -> PyResult<T> {
    let _entered = driver()?.runtime.enter();
    Ok(make())
}

/// Runs `future` beside everything else.
pub(crate) fn background(future: impl Future<Output = ()> + Send + 'static) -> PyResult<()> {
    driver()?.runtime.spawn(gated(future));
    Ok(())
}

/// The runtime, driven by the caretaker from now on.
pub(crate) fn shared() -> PyResult<&'static Handle> {
    let driver = driver()?;
    if !driver.is_shared.swap(true, Ordering::AcqRel) {
        driver.leave.notify_waiters();
    }
    Ok(driver.runtime.handle())
}

/// Waits for `future` while other threads of Python run. Ctrl-C ends it.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let driver = driver()?;
    let mut future = pin!(gated(future));
    loop {
        let answer = py.detach(|| {
            let answer =
                driver.block_on(async { tokio::time::timeout(SIGNALS_EVERY, future.as_mut()).await });
            stay_out_of_a_dead_interpreter();
            answer
        });
        match answer {
            Ok(output) => return Ok(output),
            Err(_) => py.check_signals()?,
        }
    }
}

/// An interpreter that ends kills threads that come back to it, by means that a
/// function in Rust does not survive. Such a thread (a daemon) has nothing left to do.
fn stay_out_of_a_dead_interpreter() {
    if EXITING.get().is_some_and(|ending| *ending != thread::current().id()) {
        loop {
            thread::park();
        }
    }
}

/// Keeps forks out while a thread without the interpreter's lock may hold one of ours:
/// in the child, nobody would ever give it back.
struct Gate {
    closed: AtomicBool,
    inside: AtomicUsize,
}

impl Gate {
    fn enter(&self) {
        loop {
            self.inside.fetch_add(1, Ordering::SeqCst);
            if !self.closed.load(Ordering::SeqCst) {
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
        self.closed.store(true, Ordering::SeqCst);
        // A step of a future takes microseconds.
        while self.inside.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
    }

    fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
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
        GATE.enter();
        let step = self.project().future.poll(context);
        GATE.leave();
        step
    }
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
        Ok(own.value.clone().ok_or(crate::error::Failure::Lost)?)
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

/// What it takes to answer: nothing but a step, or I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In this process's memory.
    Memory,
    /// Outside of it.
    Far,
}

/// What a future that only needs memory comes to.
pub(crate) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
