//! Key functions in Python.
//!
//! The library calls them while it looks at a request, in the thread that asks; what they
//! are called with, and what they raise, waits in that thread.

use std::borrow::Cow;
use std::cell::RefCell;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use ratekeeper::policy::KeyFunction;

use crate::arguments::{plain_function, type_name};

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The request that is being looked at.
struct Current {
    request: Py<PyAny>,
    raised: Option<PyErr>,
}

/// Looks at a request with `look`; key functions are called with `request`.
pub(super) fn looking_at<T>(request: Option<Py<PyAny>>, look: impl FnOnce() -> T) -> PyResult<T> {
    let Some(request) = request else { return Ok(look()) };
    // A key function may ask another limiter.
    let outer = CURRENT.replace(Some(Current { request, raised: None }));
    let found = look();
    let raised = CURRENT.replace(outer).and_then(|current| current.raised);
    raised.map_or(Ok(found), Err)
}

/// A function of Python as the library has it.
pub(super) fn key_function(function: &Bound<'_, PyAny>) -> PyResult<KeyFunction> {
    plain_function("key_functions", function)?;
    let function = function.clone().unbind();
    Ok(KeyFunction::new(move |_| {
        Python::attach(|py| {
            let request = CURRENT.with_borrow(|current| Some(current.as_ref()?.request.clone_ref(py)))?;
            let key = function.bind(py).call1((request,)).and_then(|key| key_of(&key));
            key.unwrap_or_else(|error| {
                CURRENT.with_borrow_mut(|current| {
                    if let Some(current) = current {
                        current.raised.get_or_insert(error);
                    }
                });
                None
            })
        })
    }))
}

fn key_of(key: &Bound<'_, PyAny>) -> PyResult<Option<Cow<'static, str>>> {
    let wrong = |_| PyTypeError::new_err(format!("a key: expected str or None, got {}", type_name(key)));
    let text: Option<String> = key.extract().map_err(wrong)?;
    Ok(text.map(Cow::Owned))
}
