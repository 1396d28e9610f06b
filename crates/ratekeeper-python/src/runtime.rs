//! The runtime behind calls that take I/O, and what becomes of it at a fork.
//!
//! Whoever blocks drives the runtime itself: then a call and its answer stay on one
//! thread, and none has to wake another. While nobody blocks, a thread of our own, the
//! caretaker, drives it. Once something is awaited in an event loop, it does so for good,
//! because event loops do not wait for us.
//!
//! A child of a fork makes a runtime of its own; see [`fork`].

mod fork;
mod poll;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

pub(crate) use self::fork::{Own, PerProcess, fenced, gated, generation};
use self::poll::Polling;

/// How often a blocked thread looks for signals, such as Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// How soon after the last blocked thread the caretaker takes over.
const CARETAKER_AFTER: Duration = Duration::from_millis(5);

static DRIVER: Mutex<Option<(u64, &'static Driver)>> = Mutex::new(None);

/// Asks to be told of forks.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    fork::register(py)
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
    /// Whether it is worth looking for an answer before a thread sleeps.
    polling: Polling,
    /// Whether there is a caretaker yet.
    has_caretaker: AtomicBool,
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

/// The same for who asks something of it. Until then there is no thread: a process that only makes
/// its stores, and forks then, has none that it would leave behind.
fn driven() -> std::io::Result<&'static Driver> {
    let driver = driver()?;
    if !driver.has_caretaker.load(Ordering::Relaxed) {
        driver.engage_caretaker()?;
    }
    Ok(driver)
}

/// Sees to it that what runs in the background does, for who looks at what it found.
pub(crate) fn drive() -> PyResult<()> {
    driven()?;
    Ok(())
}

impl Driver {
    fn start() -> std::io::Result<&'static Self> {
        let driver: &'static Self = Box::leak(Box::new(Self {
            runtime: Builder::new_current_thread().enable_all().build()?,
            blocked: AtomicUsize::new(0),
            is_shared: AtomicBool::new(false),
            leave: Notify::new(),
            polling: Polling::default(),
            has_caretaker: AtomicBool::new(false),
        }));
        Ok(driver)
    }

    #[cold]
    fn engage_caretaker(&'static self) -> std::io::Result<()> {
        if !self.has_caretaker.swap(true, Ordering::AcqRel) {
            let caretaker = thread::Builder::new().name("ratekeeper".to_owned());
            let engaged = caretaker.spawn(|| self.take_care());
            self.has_caretaker.store(engaged.is_ok(), Ordering::Release);
            engaged?;
        }
        Ok(())
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
        let output = if is_first && !self.is_shared.load(Ordering::Relaxed) {
            self.runtime.block_on(self.polling.before_sleep(future))
        } else {
            self.runtime.block_on(future)
        };
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
    driven()?.runtime.spawn(gated(future));
    Ok(())
}

/// The runtime, driven by the caretaker from now on.
pub(crate) fn shared() -> PyResult<&'static Handle> {
    let driver = driven()?;
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
    let driver = driven()?;
    let mut future = pin!(gated(future));
    loop {
        // An interpreter that has ended does not take a thread back. PyO3 lets it sleep then: it
        // is a daemon, and nobody waits for it any more.
        let answer = py
            .detach(|| driver.block_on(async { tokio::time::timeout(SIGNALS_EVERY, future.as_mut()).await }));
        match answer {
            Ok(output) => return Ok(output),
            Err(_) => py.check_signals()?,
        }
    }
}

/// What it takes to answer: nothing but a step, or I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In this process's memory.
    Memory,
    /// Outside of it.
    Far,
    /// The same, and for long: it ends if whoever awaits it gives up.
    Long,
}

/// What a future that only needs memory comes to.
pub(crate) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
