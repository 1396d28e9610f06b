//! What is traced and logged, for tests to read.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// What is traced in this thread while the guard lives: events and spans as lines of text,
/// a span when it closes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Mutex<Vec<String>>>);

/// While there is but one subscriber, what a thread without it meets first is
/// off for all threads. So there are always more.
static OTHERS: LazyLock<[Dispatch; 2]> =
    LazyLock::new(|| [0; 2].map(|_| Dispatch::new(Registry::default().with(Traces::default()))));

impl Traces {
    pub(crate) fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        LazyLock::force(&OTHERS);
        let traces = Self::default();
        let guard = tracing::subscriber::set_default(Registry::default().with(traces.clone()));
        (traces, guard)
    }

    /// The lines with this in them.
    pub(crate) fn with(&self, part: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl<S: Subscriber + for<'l> LookupSpan<'l>> Layer<S> for Traces {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line(format!("span {}", attributes.metadata().name()));
        attributes.record(&mut line);
        context.span(id).unwrap().extensions_mut().insert(line);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        values.record(context.span(id).unwrap().extensions_mut().get_mut::<Line>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let line = context.span(&id).unwrap().extensions_mut().remove::<Line>().unwrap();
        self.0.lock().unwrap().push(line.0);
    }
}
