//! What policies can see of a request.

use std::net::IpAddr;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyMapping};
use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit};
use ratekeeper::policy::{Body, Facts, JsonBody, RequestFacts, Scalar};

use crate::arguments::type_name;
use crate::error::Failure;

/// What policies can see of a request.
///
/// `target`: path and query as they were sent, or `request.get_full_path_info()` of Django.
/// `headers`: pairs, in the order they came. `body`: the bytes that were read (None: unread);
/// `unreadable_body` says that there is one, but it could not be read whole, which is no absence.
/// `peer`: the address at the other end of the connection. `identity`: claims such as
/// org, project, user, plan. `context` is what key functions are called with; the
/// Request itself, if there is none.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) facts: RequestFacts,
    context: Option<Py<PyAny>>,
}

impl Request {
    /// What key functions are called with.
    pub(super) fn seen_by_functions(this: &Bound<'_, Self>) -> Py<PyAny> {
        let context = this.get().context.as_ref();
        context.map_or_else(|| this.clone().into_any().unbind(), |context| context.clone_ref(this.py()))
    }
}

#[pymethods]
impl Request {
    #[new]
    #[pyo3(signature = (method = "GET", target = "/", *, route = None, headers = None, body = None, peer = None,
        identity = None, context = None, unreadable_body = false))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        method: &str,
        target: &str,
        route: Option<String>,
        headers: Option<&Bound<'_, PyAny>>,
        body: Option<&[u8]>,
        peer: Option<&str>,
        identity: Option<&Bound<'_, PyMapping>>,
        context: Option<Py<PyAny>>,
        unreadable_body: bool,
    ) -> PyResult<Self> {
        let mut facts = RequestFacts::new(method, target);
        if let Some(route) = route {
            facts = facts.route(route);
        }
        if let Some(headers) = headers {
            facts = with_headers(facts, headers)?;
        }
        if let Some(body) = body {
            facts = facts.body(body);
        }
        if unreadable_body {
            facts = facts.unreadable_body();
        }
        if let Some(peer) = peer {
            let wrong = |_| Failure::Input(format!("peer: got {peer:?}; expected an IP address"));
            facts = facts.peer(peer.parse::<IpAddr>().map_err(wrong)?);
        }
        for item in identity.map(PyMappingMethods::items).transpose()?.iter().flatten() {
            let (name, value): (String, Bound<'_, PyAny>) = item.extract()?;
            // What is not known is left out.
            if !value.is_none() {
                facts = facts.claim(&name, scalar_of(&name, &value)?);
            }
        }
        Ok(Self { facts, context })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.context)
    }

    /// Without the query, which may hold somebody's secret.
    fn __repr__(&self) -> String {
        format!("<Request: {} {}>", self.method(), self.route().unwrap_or(self.path()))
    }

    /// GET, POST and so on.
    #[getter]
    fn method(&self) -> &str {
        Facts::method(&self.facts).unwrap_or_default()
    }

    /// The path, without the query.
    #[getter]
    fn path(&self) -> &str {
        Facts::path(&self.facts).unwrap_or_default()
    }

    /// The template of the route that takes it, if it is known.
    #[getter]
    fn route(&self) -> Option<&str> {
        Facts::route(&self.facts)
    }

    /// What key functions are called with; None: this object.
    #[getter]
    fn context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.context.as_ref().map(|context| context.clone_ref(py))
    }

    /// The first line of that name.
    fn header(&self, name: &str) -> Option<String> {
        let value = Facts::header(&self.facts, &name.to_ascii_lowercase())?;
        // As Python's web frameworks read them.
        Some(value.iter().map(|byte| char::from(*byte)).collect())
    }

    /// The first value of a parameter in the query.
    fn query(&self, name: &str) -> Option<String> {
        self.facts.query(name).map(std::borrow::Cow::into_owned)
    }

    /// What is known of the caller under this name.
    fn claim(&self, py: Python<'_>, name: &str) -> PyResult<Option<Py<PyAny>>> {
        let value = Facts::claim(&self.facts, name).map(|value| match value {
            Scalar::Text(text) => text.into_py_any(py),
            Scalar::Integer(number) => number.into_py_any(py),
            Scalar::Large(number) => number.into_py_any(py),
            Scalar::Float(number) => number.into_py_any(py),
            Scalar::Bool(truth) => truth.into_py_any(py),
        });
        value.transpose()
    }

    /// Whether policies look into a body with this content type; if not, it counts as unreadable.
    #[staticmethod]
    fn looks_into(content_type: Option<&[u8]>) -> bool {
        JsonBody::is_looked_into(content_type)
    }

    /// The JSON in the body; None if there is none that can be read.
    fn json(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match Facts::body(&self.facts) {
            Body::Json(json) => Ok(py.import("json")?.call_method1("loads", (json.to_string(),))?.unbind()),
            Body::Unread | Body::Absent | Body::Unreadable => Ok(py.None()),
        }
    }
}

/// Text is what servers sent as latin-1 and frameworks decoded as such.
/// A request of which only header fields are known.
pub(crate) fn facts_of_headers(headers: &Bound<'_, PyAny>) -> PyResult<RequestFacts> {
    with_headers(RequestFacts::new("GET", "/"), headers)
}

fn with_headers(mut facts: RequestFacts, headers: &Bound<'_, PyAny>) -> PyResult<RequestFacts> {
    for header in headers.try_iter()? {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = header?.extract()?;
        let name = bytes_of("the name of a header", &name)?;
        facts = facts.header(&String::from_utf8_lossy(&name), bytes_of("a header", &value)?);
    }
    Ok(facts)
}

fn bytes_of(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.extract::<&str>() {
        let latin: Option<Vec<u8>> =
            text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect();
        return Ok(latin.unwrap_or_else(|| text.as_bytes().to_vec()));
    }
    value
        .extract::<Vec<u8>>()
        .map_err(|_| PyTypeError::new_err(format!("{what}: expected str or bytes, got {}", type_name(value))))
}

fn scalar_of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Scalar<'static>> {
    // Before numbers: a bool is one of them in Python.
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(truth.is_true().into());
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(text.into());
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(number.into());
    }
    if let Ok(number) = value.extract::<u64>() {
        return Ok(number.into());
    }
    if value.is_instance_of::<PyInt>() {
        // A float would make one of many: its digits, as of numbers in bodies.
        return Ok(value.str()?.extract::<String>()?.into());
    }
    let wrong = |_| {
        let got = type_name(value);
        PyTypeError::new_err(format!("identity[{name:?}]: expected str, int, float or bool, got {got}"))
    };
    value.extract::<f64>().map(Scalar::from).map_err(wrong)
}
