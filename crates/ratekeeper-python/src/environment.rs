//! The mode of a service in the environment.
//!
//! Asked of `os.environ`, which a program may change at any time; the environment of
//! the process itself is not safe to read while others write it.

use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};
use ratekeeper::{MODE_VARIABLE, Mode};

use crate::error::Failure;

/// The mode in RATE_LIMIT_MODE, if it says one; ValueError if it says something else.
#[pyfunction]
pub(crate) fn mode_from_environment(py: Python<'_>) -> PyResult<Option<&'static str>> {
    let text = text_of(&environ(py)?)?;
    Ok(text.map(|text| mode_in(&text)).transpose()?.flatten().map(Mode::as_str))
}

/// The same for who asks with every check: quickly, and a word that is none is logged once and
/// means nothing, so that rules do what they say.
pub(crate) fn mode_now(py: Python<'_>) -> PyResult<Option<Mode>> {
    let environ = environ(py)?;
    let text = match Known::get(py)?.filter(|known| known.environ.is(&environ)) {
        Some(known) if !known.encoded.bind(py).contains(&known.variable)? => return Ok(None),
        _ => text_of(&environ)?,
    };
    let Some(text) = text else { return Ok(None) };
    mode_in(&text).or_else(|failure| {
        log_once(py, &text, failure)?;
        Ok(None)
    })
}

fn environ(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static OS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let os = OS.get_or_try_init(py, || Ok::<_, PyErr>(py.import("os")?.unbind()))?;
    os.bind(py).getattr(intern!(py, "environ"))
}

/// The dictionary behind `os.environ`, which can be asked for what is not there without raising
/// two exceptions on the way.
struct Known {
    environ: Py<PyAny>,
    encoded: Py<PyDict>,
    variable: Py<PyBytes>,
}

impl Known {
    fn get(py: Python<'_>) -> PyResult<Option<&'static Self>> {
        static KNOWN: PyOnceLock<Option<Known>> = PyOnceLock::new();
        let known = || {
            let environ = environ(py)?;
            let encoded = environ.getattr("_data").ok().and_then(|data| data.cast_into::<PyDict>().ok());
            let variable = PyBytes::new(py, MODE_VARIABLE.as_bytes()).unbind();
            Ok::<_, PyErr>(encoded.map(|encoded| Self {
                environ: environ.unbind(),
                encoded: encoded.unbind(),
                variable,
            }))
        };
        Ok(KNOWN.get_or_try_init(py, known)?.as_ref())
    }
}

fn text_of(environ: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    environ.call_method1(intern!(environ.py(), "get"), (MODE_VARIABLE,))?.extract()
}

fn mode_in(text: &str) -> Result<Option<Mode>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |_| Failure::Input(format!("{MODE_VARIABLE}: got {text:?}; expected on, monitor or off"));
    text.to_ascii_lowercase().parse().map(Some).map_err(wrong)
}

#[cold]
fn log_once(py: Python<'_>, text: &str, failure: Failure) -> PyResult<()> {
    static LOGGED: Mutex<Option<String>> = Mutex::new(None);
    // Taken under the interpreter's lock only, and not while anything of Python runs.
    let before = LOGGED.lock().unwrap_or_else(PoisonError::into_inner).replace(text.to_owned());
    if before.as_deref() != Some(text) {
        let log = py.import("logging")?.call_method1("getLogger", ("ratekeeper",))?;
        let problem = PyErr::from(failure);
        log.call_method1("error", ("rate limits are as if no mode were set: %s", problem.value(py)))?;
    }
    Ok(())
}
