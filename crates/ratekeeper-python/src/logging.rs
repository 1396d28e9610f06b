//! What the engine has to say, in Python's `logging`.
//!
//! The engine logs wherever it runs: in tasks, in threads that follow files. None of them may
//! take the interpreter's lock, so what they say waits in a queue until a thread of Python comes
//! by: every call into this module looks for it when its work is done, and so does the end of
//! the program. That look is one load of a flag.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use pyo3::intern;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// How many lines wait at most, if nobody comes for them: later ones are only counted.
const WAITING_MAX: usize = 256;
/// Whose lines these are: libraries below us have their own ideas of what is worth a line.
const OURS: &str = "ratekeeper";

/// Whether something waits.
static WAITS: AtomicBool = AtomicBool::new(false);
/// Whatever waits. Another in a child of a fork: somebody may have held the lock of this one.
static QUEUE: LazyLock<ArcSwap<Mutex<Queue>>> = LazyLock::new(ArcSwap::default);

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<Line>,
    /// Lines that had no room.
    lost: usize,
}

#[derive(Debug)]
struct Line {
    level: u8,
    text: String,
}

/// Listens to the engine from now on.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Only once in a process: of several interpreters the first to come takes the lines.
    let _ = tracing::subscriber::set_global_default(Listener);
    let py = module.py();
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(tell_the_rest, py)?,))?;
    Ok(())
}

/// In a child: what waits is its parent's to tell.
pub(crate) fn forget() {
    WAITS.store(false, Ordering::Relaxed);
    std::mem::forget(QUEUE.swap(Arc::default()));
}

/// Tells what waits.
#[inline]
pub(crate) fn tell(py: Python<'_>) {
    if WAITS.load(Ordering::Relaxed) {
        tell_all(py);
    }
}

#[pyfunction]
fn tell_the_rest(py: Python<'_>) {
    tell(py);
}

#[cold]
fn tell_all(py: Python<'_>) {
    WAITS.store(false, Ordering::Relaxed);
    let queue = QUEUE.load();
    // Not while the lock is held: a handler may call us.
    let Queue { lines, lost } = std::mem::take(&mut *locked(&queue));
    let lost = (lost > 0).then(|| Line { level: WARNING, text: format!("{lost} more lines had no room") });
    let told = || {
        let logger = py.import(intern!(py, "logging"))?.call_method1(intern!(py, "getLogger"), (OURS,))?;
        for line in lines.into_iter().chain(lost) {
            logger.call_method1(intern!(py, "log"), (line.level, line.text))?;
        }
        Ok(())
    };
    if let Err(error) = told() {
        // Whoever made this call did not ask for it.
        PyErr::write_unraisable(error, py, None);
    }
}

fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

// Of Python's `logging`.
const INFO: u8 = 20;
const WARNING: u8 = 30;
const ERROR: u8 = 40;

/// Takes what the engine says, and nothing of anybody else.
struct Listener;

impl Listener {
    fn hears(metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with(OURS)
    }
}

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::hears(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::hears(metadata)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let level = match *event.metadata().level() {
            Level::ERROR => ERROR,
            Level::WARN => WARNING,
            _ => INFO,
        };
        let queue = QUEUE.load();
        let mut queue = locked(&queue);
        if queue.lines.len() < WAITING_MAX {
            queue.lines.push_back(Line { level, text: words.text() });
        } else {
            queue.lost += 1;
        }
        // After the line is there: whoever sees the flag finds it.
        WAITS.store(true, Ordering::Release);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// An event in words: what happened, and in brackets the details, on one line.
#[derive(Default)]
struct Words {
    message: String,
    details: String,
}

impl Words {
    fn text(self) -> String {
        if self.details.is_empty() { self.message } else { format!("{} ({})", self.message, self.details) }
    }
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a text does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let comma = if self.details.is_empty() { "" } else { ", " };
            write!(self.details, "{comma}{}={value:?}", field.name())
        };
    }
}
