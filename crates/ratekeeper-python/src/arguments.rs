//! From Python's arguments to Rust's, with words for what is wrong.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;
use ratekeeper::{Emergency, Mode, OnOutage, Wait};

/// An organisation or a project: a text, or a whole number. As it stands in keys, between
/// colons, which it must not have itself: nobody is called like two others together.
#[derive(Clone, Debug)]
pub(crate) struct Id(pub(crate) String);

impl FromPyObject<'_, '_> for Id {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.extract::<String>() {
            let is_plain = !text.contains([':', '%']);
            return Ok(Self(if is_plain { text } else { text.replace('%', "%25").replace(':', "%3A") }));
        }
        if let Ok(number) = value.extract::<i64>() {
            return Ok(Self(number.to_string()));
        }
        match value.cast::<PyInt>() {
            Ok(number) => Ok(Self(number.str()?.extract()?)),
            Err(_) => Err(PyTypeError::new_err(format!("expected str or int, got {}", type_name(&value)))),
        }
    }
}

pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// Seconds as a duration; microseconds are the finest that counts.
pub(crate) fn duration(argument: &str, seconds: f64) -> PyResult<Duration> {
    let micros = (seconds * 1e6).round();
    // A thousand years: beyond, and for what is no number, there is no use.
    if !(0.0..=3.2e16).contains(&micros) {
        let message = format!("{argument}: got {seconds}; expected seconds, 0 or more");
        return Err(PyValueError::new_err(message));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(Duration::from_micros(micros as u64))
}

/// Microseconds as seconds: exact to the microsecond within centuries.
#[allow(clippy::cast_precision_loss, reason = "below 2^53")]
pub(crate) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

pub(crate) fn seconds_of(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// Never is infinity.
pub(crate) fn seconds_of_wait(wait: Wait) -> f64 {
    wait.as_micros().map_or(f64::INFINITY, seconds)
}

fn wrong(argument: &str, got: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{argument}: got {got:?}; expected {expected}"))
}

/// What one of a few words stands for.
pub(crate) fn choice<T: Copy>(argument: &str, word: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(name, _)| *name == word);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
        wrong(argument, word, &names.join(" or "))
    })
}

pub(crate) fn mode(word: &str) -> PyResult<Mode> {
    choice("mode", word, &Mode::NAMES)
}

pub(crate) fn emergency(word: &str) -> PyResult<Emergency> {
    let choices = [("off", Emergency::Off), ("lift", Emergency::Lift), ("block", Emergency::Block)];
    choice("emergency", word, &choices)
}

pub(crate) fn on_outage(word: &str) -> PyResult<OnOutage> {
    choice("on_outage", word, &OnOutage::NAMES)
}

/// A cost or an amount: the bounds above are the library's.
pub(crate) fn units(argument: &str, units: i64) -> PyResult<u64> {
    u64::try_from(units)
        .map_err(|_| PyValueError::new_err(format!("{argument}: got {units}; expected 0 or more")))
}

/// The words of Application Kit for what is below 1.
pub(crate) fn at_least_one(argument: &str, value: i64) -> PyResult<u64> {
    match u64::try_from(value) {
        Ok(value) if value >= 1 => Ok(value),
        _ => Err(PyValueError::new_err(format!("{argument} must be at least 1"))),
    }
}

/// The words of Application Kit for windows and lives below a second.
pub(crate) fn at_least_a_second(argument: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 1.0 {
        return Err(PyValueError::new_err(format!("{argument} must be at least 1 second")));
    }
    duration(argument, seconds)
}
