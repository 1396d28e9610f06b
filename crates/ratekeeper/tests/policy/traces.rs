//! A subscriber that keeps what it is told: what spans were marked with, and
//! what was logged.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::{Dispatch, Event, Metadata, Subscriber};

/// What was told so far; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    marks: Mutex<Vec<String>>,
    events: Mutex<Vec<String>>,
    /// There is one span, or none.
    span: Mutex<Option<&'static Metadata<'static>>>,
    is_inside: AtomicBool,
}

/// While there is but one subscriber, what a thread without it meets first is
/// off for all threads. So there are always more.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [0; 2].map(|_| Dispatch::new(Traces::default())));

impl Traces {
    /// What `run` tells.
    pub(crate) fn of(run: impl FnOnce()) -> Self {
        LazyLock::force(&OTHERS);
        let traces = Self::default();
        tracing::subscriber::with_default(traces.clone(), run);
        traces
    }

    /// What the span was marked with.
    pub(crate) fn marks(&self) -> Vec<String> {
        self.0.marks.lock().unwrap().clone()
    }

    /// How often something was logged.
    pub(crate) fn count(&self, message: &str) -> usize {
        self.0.events.lock().unwrap().iter().filter(|event| event.contains(message)).count()
    }
}

/// Fields, one after the other.
struct Fields<'a>(&'a mut Vec<String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push(format!("{}={value:?}", field.name()));
    }
}

impl Subscriber for Traces {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        *self.0.span.lock().unwrap() = Some(attributes.metadata());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.0.marks.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Vec::new();
        event.record(&mut Fields(&mut fields));
        self.0.events.lock().unwrap().push(fields.join(" "));
    }

    fn enter(&self, _: &Id) {
        self.0.is_inside.store(true, Ordering::SeqCst);
    }

    fn exit(&self, _: &Id) {
        self.0.is_inside.store(false, Ordering::SeqCst);
    }

    fn current_span(&self) -> Current {
        match *self.0.span.lock().unwrap() {
            Some(span) if self.0.is_inside.load(Ordering::SeqCst) => Current::new(Id::from_u64(1), span),
            _ => Current::none(),
        }
    }
}
