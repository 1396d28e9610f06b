//! What the store writes to the log, kept for the tests.

use std::fmt::{Debug, Write};
use std::sync::{Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// All lines of this process, in the order they were written.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Begins to keep lines; says how many there are already.
pub(crate) fn begin() -> usize {
    static INSTALL: Once = Once::new();
    // For all threads: the store's own tasks run on those of a runtime.
    INSTALL.call_once(|| tracing::subscriber::set_global_default(Keeper).unwrap());
    lines().len()
}

/// The lines about the server at a port, without the first `skipped` of all.
pub(super) fn about(port: u16, skipped: usize) -> Vec<String> {
    let server = format!("127.0.0.1:{port}");
    lines()[skipped..].iter().filter(|line| line.contains(&server)).cloned().collect()
}

/// All lines.
pub(crate) fn all() -> Vec<String> {
    lines().clone()
}

fn lines() -> std::sync::MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        lines().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event as one line of text.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}
