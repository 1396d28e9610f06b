//! What HTTP clients are told.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use ratekeeper_http::{Body, Draft, Field, Legacy, Reset, SPREAD_PERCENT_MAX, field};

use crate::arguments::{choice, duration, float, type_name};
use crate::decision::Decision;
use crate::error::Failure;

/// Fields as Python has them.
pub(crate) fn fields(fields: impl Iterator<Item = Field>) -> Vec<(&'static str, String)> {
    fields.map(|(name, value)| (name, value.into_owned())).collect()
}

/// What clients are told.
///
/// `standard`: RateLimit-Policy and RateLimit as draft 11 has them, as "next" has them, or None.
/// `legacy`: "RateLimit" or "X-RateLimit" sends -Limit, -Remaining and -Reset as well;
/// `legacy_reset`: what -Reset counts. `body`: a problem document, or
/// `{"detail": "Rate limit exceeded. Try again later."}`. `retry_after_spread`: percent by which
/// each Retry-After is lengthened at random, so that the denied do not return together.
#[pyclass(module = "ratekeeper", frozen, eq)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HttpOptions {
    inner: ratekeeper_http::HttpOptions,
    said: Said,
}

/// The words they were made of.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    standard: Option<&'static str>,
    legacy: Option<&'static str>,
    legacy_reset: &'static str,
    body: &'static str,
    outage_retry_after: f64,
    retry_after_spread: u8,
}

impl HttpOptions {
    pub(crate) fn or_default(options: Option<&Bound<'_, Self>>) -> ratekeeper_http::HttpOptions {
        options.map_or_else(Default::default, |options| options.get().inner)
    }
}

/// One of a few words, and what it stands for.
fn word<T: Copy>(argument: &str, word: &str, choices: &[(&'static str, T)]) -> PyResult<(&'static str, T)> {
    let paired: Vec<(&'static str, (&'static str, T))> =
        choices.iter().map(|(name, value)| (*name, (*name, *value))).collect();
    choice(argument, word, &paired)
}

#[pymethods]
impl HttpOptions {
    #[new]
    #[pyo3(signature = (*, standard = Some("11"), legacy = None, legacy_reset = "delta", body = "problem",
        outage_retry_after = 1.0, retry_after_spread = 0), text_signature = "(*, standard='11', legacy=None, legacy_reset='delta', \
        body='problem', outage_retry_after=1.0, retry_after_spread=0)")]
    fn new(
        standard: Option<&str>,
        legacy: Option<&str>,
        legacy_reset: &str,
        body: &str,
        #[pyo3(from_py_with = float)] outage_retry_after: f64,
        retry_after_spread: i64,
    ) -> PyResult<Self> {
        let legacies = [("RateLimit", Legacy::RateLimit), ("X-RateLimit", Legacy::XRateLimit)];
        let legacy = legacy.map(|said| word("legacy", said, &legacies)).transpose()?;
        let resets = [("delta", Reset::Delta), ("epoch", Reset::Epoch)];
        let legacy_reset = word("legacy_reset", legacy_reset, &resets)?;
        let body = word("body", body, &[("problem", Body::Problem), ("detail", Body::Detail)])?;
        let drafts = [("11", Draft::V11), ("next", Draft::Next)];
        let standard = standard.map(|said| word("standard", said, &drafts)).transpose()?;
        let spread = u8::try_from(retry_after_spread).ok().filter(|percent| *percent <= SPREAD_PERCENT_MAX);
        let spread = spread.ok_or_else(|| {
            let expected = format!("0 to {SPREAD_PERCENT_MAX} percent");
            Failure::Input(format!("retry_after_spread: got {retry_after_spread}; expected {expected}"))
        })?;
        let options = ratekeeper_http::HttpOptions::without_fields()
            .legacy(legacy.map_or(Legacy::Off, |(_, legacy)| legacy))
            .legacy_reset(legacy_reset.1)
            .body(body.1)
            .outage_retry_after(duration("outage_retry_after", outage_retry_after)?)
            .retry_after_spread(spread);
        let said = Said {
            standard: standard.map(|(word, _)| word),
            legacy: legacy.map(|(word, _)| word),
            legacy_reset: legacy_reset.0,
            body: body.0,
            outage_retry_after,
            retry_after_spread: spread,
        };
        let inner = standard.map_or(options, |(_, draft)| options.draft(draft));
        Ok(Self { inner, said })
    }

    /// The content type of the body of a denial.
    #[getter]
    fn content_type(&self) -> &'static str {
        self.inner.content_type()
    }

    /// The header fields that can be sent, names in lower case.
    #[getter]
    fn field_names(&self) -> Vec<&'static str> {
        self.inner.field_names().collect()
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inner.hash(&mut hasher);
        hasher.finish()
    }

    /// For `copy` and `pickle`.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let Said { standard, legacy, legacy_reset, body, outage_retry_after, retry_after_spread } = self.said;
        let keywords = PyDict::new(py);
        keywords.set_item("standard", standard)?;
        keywords.set_item("legacy", legacy)?;
        keywords.set_item("legacy_reset", legacy_reset)?;
        keywords.set_item("body", body)?;
        keywords.set_item("outage_retry_after", outage_retry_after)?;
        keywords.set_item("retry_after_spread", retry_after_spread)?;
        Ok((PyTuple::empty(py), keywords))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (_, keywords) = self.__getnewargs_ex__(py)?;
        let said = keywords.iter().map(|(name, value)| Ok(format!("{name}={}", value.repr()?)));
        Ok(format!("HttpOptions({})", said.collect::<PyResult<Vec<_>>>()?.join(", ")))
    }
}

/// Status, header fields and body of the answer to a denied request.
#[pyclass(module = "ratekeeper", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Denial {
    /// 429, or 503 if limits could not be checked and the rule denies then.
    status: u16,
    /// Whole seconds, rounded up; None if the request can never pass.
    retry_after: Option<u64>,
    /// The content type of the body.
    content_type: Cow<'static, str>,
    /// The body, JSON of one kind or the other.
    body: String,
    /// content-type, cache-control, retry-after.
    headers: Vec<(Cow<'static, str>, String)>,
}

/// The fields of a [`Denial`], as they stand in a pickle.
type DenialParts = (u16, Option<u64>, String, String, Vec<(String, String)>);

/// A denial from its fields: what `pickle` calls.
#[pyfunction(name = "_denial_of")]
pub(crate) fn denial_of(parts: DenialParts) -> Denial {
    let (status, retry_after, content_type, body, headers) = parts;
    let headers = headers.into_iter().map(|(name, value)| (Cow::Owned(name), value)).collect();
    Denial { status, retry_after, content_type: Cow::Owned(content_type), body, headers }
}

#[pymethods]
impl Denial {
    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// For `pickle`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (DenialParts,))> {
        let headers = self.headers.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let kind = self.content_type.to_string();
        let make = py.import("ratekeeper._native")?.getattr("_denial_of")?;
        Ok((make, ((self.status, self.retry_after, kind, self.body.clone(), headers),)))
    }

    fn __repr__(&self) -> String {
        let after =
            self.retry_after.map_or_else(|| "never".to_owned(), |seconds| format!("after {seconds} s"));
        format!("<Denial: {}, retry {after}>", self.status)
    }
}

impl Denial {
    pub(crate) fn of(denial: &ratekeeper_http::Denial<'_>) -> Self {
        Self {
            status: denial.status(),
            retry_after: denial.retry_after(),
            content_type: Cow::Borrowed(denial.content_type()),
            body: denial.body().into_owned(),
            headers: denial.fields().map(|(name, value)| (Cow::Borrowed(name), value.into_owned())).collect(),
        }
    }
}

/// The policies that one request met, over any number of decisions.
///
/// Every policy is told once, in the order they were met; of several keys under one name and
/// one quota, the worst off. Threads may share one.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<ratekeeper_http::Tally>);

impl Tally {
    /// Whoever panicked while adding left whole members behind.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ratekeeper_http::Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Tally {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __repr__(&self) -> String {
        let told = self.lock().fields(&ratekeeper_http::HttpOptions::default());
        let policies = told.filter(|(name, _)| *name == field::RATELIMIT).map(|(_, value)| value);
        format!("<Tally: {}>", policies.last().as_deref().unwrap_or("nothing"))
    }

    /// `partition` is told to clients as `pk`; at most 64 bytes, longer ones are left out.
    #[pyo3(signature = (decision, *, partition = None))]
    fn add(&self, decision: &Bound<'_, Decision>, partition: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let decision = decision.get();
        let Some(partition) = partition else {
            decision.add_to(&mut self.lock(), |_| None);
            return Ok(());
        };
        let key: Box<[u8]> = if let Ok(text) = partition.extract::<String>() {
            text.into_bytes().into()
        } else if let Ok(bytes) = partition.extract::<Vec<u8>>() {
            bytes.into()
        } else {
            let message = format!("partition: expected str or bytes, got {}", type_name(partition));
            return Err(PyTypeError::new_err(message));
        };
        decision.add_to(&mut self.lock(), |_| Some(key.clone()));
        Ok(())
    }

    /// RateLimit-Policy, RateLimit and the legacy fields, names in lower case.
    #[pyo3(signature = (options = None))]
    fn headers(&self, options: Option<&Bound<'_, HttpOptions>>) -> Vec<(&'static str, String)> {
        fields(self.lock().fields(&HttpOptions::or_default(options)))
    }

    /// Header fields as ASGI has them, with those of this tally; they replace what is there of their names.
    #[pyo3(signature = (headers, options = None))]
    fn onto<'py>(
        &self,
        headers: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, HttpOptions>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (py, all) = (headers.py(), PyList::empty(headers.py()));
        for pair in headers.try_iter()? {
            let pair = pair?;
            if !is_about_limits(&pair)? {
                all.append(pair)?;
            }
        }
        let mut appended = Ok(());
        self.lock().each_field(&HttpOptions::or_default(options), |name, value| {
            let pair =
                PyTuple::new(py, [PyBytes::new(py, name.as_bytes()), PyBytes::new(py, value.as_bytes())]);
            if let Err(error) = pair.and_then(|pair| all.append(pair)) {
                appended = Err(error);
            }
        });
        appended.map(|()| all)
    }

    fn __bool__(&self) -> bool {
        !self.lock().is_empty()
    }
}

/// Whether a header field is one that tallies make.
fn is_about_limits(pair: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = pair.get_item(0)?;
    let Ok(name) = name.cast::<PyBytes>() else { return Ok(false) };
    let made =
        [field::RATELIMIT_POLICY, field::RATELIMIT].into_iter().chain(field::LEGACY).chain(field::LEGACY_X);
    Ok(made.map(str::as_bytes).any(|made| made == name.as_bytes()))
}
