//! Metrics as instruments of an OpenTelemetry meter.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use super::Metrics;
use super::families::{Family, Kind, Value};

/// How long what was read is shown: a reader asks for one instrument after the other, and all of them are read at once.
const READ_FOR: Duration = Duration::from_millis(500);

impl Metrics {
    /// Makes an observable instrument of `meter` for each metric, under the names and with the attributes of the server's.
    /// They are read when the application's own reader collects, and live as long as its provider.
    pub fn observe(self, meter: &Meter) {
        let families = self.families();
        let reading = Arc::new(Reading { metrics: self, last: Mutex::default() });
        for (index, family) in families.iter().enumerate() {
            let reading = Arc::clone(&reading);
            let observe = move |instrument: &dyn AsyncInstrument<u64>| reading.observe(index, instrument);
            match family.kind {
                Kind::Counter => {
                    let counter = meter.u64_observable_counter(family.name).with_description(family.help);
                    counter.with_unit("1").with_callback(observe).build();
                }
                // Only the server has histograms.
                Kind::Gauge | Kind::Histogram => {
                    let gauge = meter.u64_observable_gauge(family.name).with_description(family.help);
                    gauge.with_unit("1").with_callback(observe).build();
                }
            }
        }
    }
}

/// What was read last, and when.
struct Reading {
    metrics: Metrics,
    last: Mutex<Option<(Instant, Vec<Family>)>>,
}

impl Reading {
    /// Shows the family at `index`: families are always the same, in the same order.
    fn observe(&self, index: usize, instrument: &dyn AsyncInstrument<u64>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(at, _)| at.elapsed() > READ_FOR) {
            *last = Some((Instant::now(), self.metrics.families()));
        }
        let family = last.as_ref().and_then(|(_, families)| families.get(index));
        for sample in family.into_iter().flat_map(|family| &family.samples) {
            let labels = sample.labels.iter();
            let labels: Vec<KeyValue> =
                labels.map(|(name, value)| KeyValue::new(*name, value.clone())).collect();
            if let Value::Whole(value) = sample.value {
                instrument.observe(value, &labels);
            }
        }
    }
}
