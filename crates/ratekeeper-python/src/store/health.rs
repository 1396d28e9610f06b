//! How a store is doing, and what time it is there.

use pyo3::prelude::*;
use ratekeeper::{BreakerState, Timestamp};

use crate::arguments::duration;

/// How a store is doing.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct Health(pub(super) ratekeeper::Health);

#[pymethods]
impl Health {
    #[getter]
    fn breaker(&self) -> &'static str {
        match self.0.breaker {
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half_open",
            BreakerState::Open => "open",
        }
    }

    #[getter]
    fn breaker_opened(&self) -> u64 {
        self.0.breaker_opened
    }

    #[getter]
    fn timeouts(&self) -> u64 {
        self.0.timeouts
    }

    #[getter]
    fn failures(&self) -> u64 {
        self.0.failures
    }

    #[getter]
    fn batches(&self) -> u64 {
        self.0.batches
    }

    #[getter]
    fn batched(&self) -> u64 {
        self.0.batched
    }

    #[getter]
    fn waiting(&self) -> usize {
        self.0.waiting
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

/// A clock for tests: it stands still until it is moved.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct ManualClock(pub(super) ratekeeper::ManualClock);

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (seconds = 1_700_000_000.0))]
    fn new(seconds: f64) -> PyResult<Self> {
        let since = duration("seconds", seconds)?;
        Ok(Self(ratekeeper::ManualClock::starting_at(Timestamp::from_micros(0).after(since))))
    }

    fn advance(&self, seconds: f64) -> PyResult<()> {
        self.0.advance(duration("seconds", seconds)?);
        Ok(())
    }

    fn set_micros(&self, micros: u64) {
        self.0.set(Timestamp::from_micros(micros));
    }

    #[getter]
    fn micros(&self) -> u64 {
        ratekeeper::Clock::now(&self.0).as_micros()
    }
}
