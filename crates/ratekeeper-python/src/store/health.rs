//! How a store is doing, and what time it is there.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use ratekeeper::metrics::{Family, Kind, Value};
use ratekeeper::{BreakerState, Timestamp};

use crate::arguments::{duration, float, units, whole};

/// How a store is doing; counts are since it was made (in this process).
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct Health(pub(super) ratekeeper::Health);

#[pymethods]
impl Health {
    /// "open" while the server is not asked because it kept failing, "half_open" while it is tried.
    #[getter]
    fn breaker(&self) -> &'static str {
        match self.0.breaker {
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half_open",
            BreakerState::Open => "open",
        }
    }

    /// How often the breaker has opened.
    #[getter]
    fn breaker_opened(&self) -> u64 {
        self.0.breaker_opened
    }

    /// Calls that were not answered within the deadline.
    #[getter]
    fn timeouts(&self) -> u64 {
        self.0.timeouts
    }

    /// Checks that waited too long for a server that answers, or found too many waiting.
    #[getter]
    fn overloads(&self) -> u64 {
        self.0.overloads
    }

    /// Checks for which the store had no room left ...
    #[getter]
    fn full(&self) -> u64 {
        self.0.full
    }

    /// ... and whether that goes on.
    #[getter]
    fn is_full(&self) -> bool {
        self.0.is_full
    }

    /// Live counters that a store in memory forgot at its bound ...
    #[getter]
    fn evicted(&self) -> u64 {
        self.0.evicted
    }

    /// ... and how many of them were exhausted.
    #[getter]
    fn evicted_exhausted(&self) -> u64 {
        self.0.evicted_exhausted
    }

    /// Charges that a store in memory did not give back, because it can remember no more receipts.
    #[getter]
    fn refunds_refused(&self) -> u64 {
        self.0.refunds_refused
    }

    /// Checks that failed for any reason, those that the breaker refused included.
    #[getter]
    fn failures(&self) -> u64 {
        self.0.failures
    }

    /// The same by kind of failure: "timeout", "read_only", "unreadable" and so on.
    #[getter]
    fn failures_by_kind(&self) -> BTreeMap<&'static str, u64> {
        self.0.by_kind.iter().map(|(kind, count, _)| (kind.name(), count)).collect()
    }

    /// The kinds of failure that go on.
    #[getter]
    fn failing(&self) -> Vec<&'static str> {
        let lasting = self.0.by_kind.iter().filter(|(_, _, is_lasting)| *is_lasting);
        lasting.map(|(kind, _, _)| kind.name()).collect()
    }

    /// Calls to the server ...
    #[getter]
    fn batches(&self) -> u64 {
        self.0.batches
    }

    /// ... and how many checks travelled in them.
    #[getter]
    fn batched(&self) -> u64 {
        self.0.batched
    }

    /// Checks that wait for a connection now.
    #[getter]
    fn waiting(&self) -> usize {
        self.0.waiting
    }

    /// The directory of a store in memory, if it has one: `bytes` of its file, `age` in seconds of what was saved last,
    /// `failures`, `is_failing`, `was_damaged` at the start, and `unreadable` records then.
    #[getter]
    fn data(&self) -> Option<BTreeMap<&'static str, f64>> {
        let data = self.0.data?;
        Some(BTreeMap::from([
            ("bytes", data.bytes as f64),
            ("age", data.age.as_secs_f64()),
            ("failures", data.failures as f64),
            ("is_failing", f64::from(data.is_failing)),
            ("was_damaged", f64::from(data.was_damaged)),
            ("unreadable", data.unreadable as f64),
        ]))
    }

    /// Checks whose counters are on several servers ...
    #[getter]
    fn spanning(&self) -> u64 {
        self.0.spanning
    }

    /// ... how often one of these gave its charge back, because another denied ...
    #[getter]
    fn spanning_refunds(&self) -> u64 {
        self.0.spanning_refunds
    }

    /// ... and how often that failed, so that the charge stays until its window ends.
    #[getter]
    fn spanning_refunds_failed(&self) -> u64 {
        self.0.spanning_refunds_failed
    }

    /// The servers that the counters are on; 0 in memory ...
    #[getter]
    fn nodes(&self) -> usize {
        self.0.nodes
    }

    /// ... and how many of them take charges now, as far as this process knows.
    #[getter]
    fn nodes_up(&self) -> usize {
        self.0.nodes_up
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

/// A metric: its name, what it means, "counter" or "gauge", and its values, each with its labels.
pub(super) type Metric =
    (&'static str, &'static str, &'static str, Vec<(BTreeMap<&'static str, String>, u64)>);

/// A metric as Python has it.
pub(super) fn metric(family: Family) -> Metric {
    let kind = if family.kind == Kind::Counter { "counter" } else { "gauge" };
    let samples = family.samples.into_iter().filter_map(|sample| match sample.value {
        Value::Whole(value) => Some((sample.labels.into_iter().collect(), value)),
        // Only the server has histograms.
        Value::Buckets(..) => None,
    });
    (family.name, family.help, kind, samples.collect())
}

/// A clock for tests: it stands still until it is moved.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct ManualClock(pub(super) ratekeeper::ManualClock);

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (seconds = 1_700_000_000.0))]
    fn new(#[pyo3(from_py_with = float)] seconds: f64) -> PyResult<Self> {
        let since = duration("seconds", seconds)?;
        Ok(Self(ratekeeper::ManualClock::starting_at(Timestamp::from_micros(0).after(since))))
    }

    /// Moves it on.
    fn advance(&self, #[pyo3(from_py_with = float)] seconds: f64) -> PyResult<()> {
        self.0.advance(duration("seconds", seconds)?);
        Ok(())
    }

    /// Sets it to microseconds since 1970.
    fn set_micros(&self, #[pyo3(from_py_with = whole)] micros: i64) -> PyResult<()> {
        self.0.set(Timestamp::from_micros(units("micros", micros)?));
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<ManualClock: {} us>", self.micros())
    }

    /// Microseconds since 1970.
    #[getter]
    fn micros(&self) -> u64 {
        ratekeeper::Clock::now(&self.0).as_micros()
    }
}
