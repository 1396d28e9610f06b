//! From Python's arguments to Rust's, with words for what is wrong.

use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use ratekeeper::bounds::{COST_BEYOND, IDEMPOTENCY_DEFAULT, LIMIT_MAX};
use ratekeeper::{Emergency, Mode, OnOutage, Wait};

use crate::verbs::Once;

/// The longest organisation or project that stands in keys as it is.
const ID_BYTES_MAX: usize = 128;

/// An organisation or a project: a text, or a whole number. As it stands in keys, between
/// colons, which it must not have itself: nobody is called like two others together. What is
/// too long for that, or nothing at all, is hashed, as keys are: ids come from requests.
#[derive(Clone, Debug)]
pub(crate) struct Id(pub(crate) String);

impl FromPyObject<'_, '_> for Id {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return match text.to_str() {
                Ok(text) if (1..=ID_BYTES_MAX).contains(&text.len()) => Ok(Self(escaped(text))),
                _ => Ok(Self(hashed(&text)?)),
            };
        }
        if let Ok(number) = value.extract::<i64>() {
            return Ok(Self(number.to_string()));
        }
        match value.cast::<PyInt>() {
            Ok(number) => Self::extract(number.str()?.as_any().as_borrowed()),
            Err(_) => Err(PyTypeError::new_err(format!("expected str or int, got {}", type_name(&value)))),
        }
    }
}

fn escaped(text: &str) -> String {
    let is_plain = !text.contains([':', '%']);
    if is_plain { text.to_owned() } else { text.replace('%', "%25").replace(':', "%3A") }
}

/// Of any text, halves of characters included. Nobody can be called like that: a `%` of
/// their own is escaped.
#[cold]
fn hashed(text: &Bound<'_, PyString>) -> PyResult<String> {
    let encoded = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
    let digest = text.py().import("hashlib")?.call_method1("sha256", (encoded,))?;
    Ok(format!("%sha256-{}", digest.call_method0("hexdigest")?.extract::<String>()?))
}

pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// A function that nobody would await.
pub(crate) fn plain_function(argument: &str, function: &Bound<'_, PyAny>) -> PyResult<()> {
    if !function.is_callable() {
        let message = format!("{argument}: expected a function, got {}", type_name(function));
        return Err(PyTypeError::new_err(message));
    }
    let asked = function.py().import("inspect")?.getattr("iscoroutinefunction")?;
    let is_async = |value: Bound<'_, PyAny>| asked.call1((value,))?.is_truthy();
    let called = function.getattr_opt("__call__")?;
    if is_async(function.clone())? || called.map(is_async).transpose()?.unwrap_or(false) {
        let message = "expected a plain function, got one that is async (def, not async def)";
        return Err(PyTypeError::new_err(format!("{argument}: {message}")));
    }
    Ok(())
}

/// A whole number. What is too large for a machine is the largest it has, and wrong in
/// words of ours rather than those of an OverflowError.
pub(crate) fn whole(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().or_else(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            return Err(error);
        }
        Ok(if value.lt(0)? { i64::MIN } else { i64::MAX })
    })
}

/// The same, or none.
pub(crate) fn whole_or_none(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if value.is_none() { Ok(None) } else { whole(value).map(Some) }
}

/// Seconds; those that no float can tell are infinite.
pub(crate) fn float(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract().or_else(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            return Err(error);
        }
        Ok(if value.lt(0)? { f64::NEG_INFINITY } else { f64::INFINITY })
    })
}

/// The same, or none.
pub(crate) fn float_or_none(value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if value.is_none() { Ok(None) } else { float(value).map(Some) }
}

/// A whole number that the library takes in another type, within that type's bounds.
pub(crate) fn fitting<T: TryFrom<i64>>(argument: &str, value: i64, expected: &str) -> PyResult<T> {
    T::try_from(value).map_err(|_| wrong_number(argument, value, expected))
}

fn wrong_number(argument: &str, got: i64, expected: &str) -> PyErr {
    // What is larger has become these.
    let got = match got {
        i64::MAX => "a number beyond 2^63".to_owned(),
        i64::MIN => "a number below -2^63".to_owned(),
        got => got.to_string(),
    };
    PyValueError::new_err(format!("{argument}: got {got}; expected {expected}"))
}

/// A thousand years: beyond, there is no use.
const SECONDS_MAX: f64 = 3.2e10;

/// Seconds as a duration; microseconds are the finest that counts.
pub(crate) fn duration(argument: &str, seconds: f64) -> PyResult<Duration> {
    if seconds > SECONDS_MAX {
        let message = format!("{argument}: got {seconds:e} seconds; expected at most {SECONDS_MAX:e}");
        return Err(PyValueError::new_err(message));
    }
    let micros = (seconds * 1e6).round();
    // Neither is what is no number.
    if micros.is_nan() || micros < 0.0 {
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

/// An amount: the bounds above are the library's.
pub(crate) fn units(argument: &str, units: i64) -> PyResult<u64> {
    fitting(argument, units, "0 or more")
}

/// A cost. Beyond all bounds it is denied, and no error: it may come from a request.
pub(crate) fn cost_of(argument: &str, cost: i64) -> PyResult<u64> {
    Ok(units(argument, cost)?.min(COST_BEYOND.into()))
}

/// What a reservation comes to.
pub(crate) fn amount(argument: &str, amount: i64) -> PyResult<u64> {
    let bounded = u64::try_from(amount).ok().filter(|amount| *amount <= LIMIT_MAX.into());
    bounded.ok_or_else(|| wrong_number(argument, amount, &format!("a whole number from 0 to {LIMIT_MAX}")))
}

/// How many units to give back: all, if nothing is said.
pub(crate) fn units_or_all(asked: Option<i64>) -> PyResult<u32> {
    let Some(asked) = asked else { return Ok(LIMIT_MAX) };
    Ok(u32::try_from(units("units", asked)?).map_or(LIMIT_MAX, |units| units.min(LIMIT_MAX)))
}

/// The id of a call that is charged once, if it has one.
pub(crate) fn once_of(id: Option<String>, keep: f64) -> PyResult<Once> {
    id.map(|id| Ok((id, duration("keep", keep)?))).transpose()
}

// Python shows defaults only if they are written out.
const _: () = assert!(IDEMPOTENCY_DEFAULT.as_secs() == 600);

/// The words of Application Kit for what is below its least value.
pub(crate) fn at_least(least: u64, argument: &str, value: i64) -> PyResult<u64> {
    match u64::try_from(value) {
        Ok(value) if value > LIMIT_MAX.into() => {
            Err(wrong_number(argument, i64::try_from(value).unwrap_or(i64::MAX), "at most 1000000000"))
        }
        Ok(value) if value >= least => Ok(value),
        _ => Err(PyValueError::new_err(format!("{argument} must be at least {least}"))),
    }
}

/// The words of Application Kit for windows and lives below a second.
pub(crate) fn at_least_a_second(argument: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 1.0 {
        return Err(PyValueError::new_err(format!("{argument} must be at least 1 second")));
    }
    duration(argument, seconds)
}
