//! Quotas, and charges that callers put together themselves.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use ratekeeper::{Algorithm, Charges, Demand, Enforcement, Engine, Key, OnOutage, RawCharge, RawName};

use crate::arguments::{
    Id, at_least, at_least_a_second, cost_of, emergency as emergency_of, float, seconds_of, type_name, whole,
};
use crate::error::Failure;

/// How much in how long: `Quota("10/s burst 20")`, `Quota("100/60s fixed_window")`.
///
/// Algorithms: token_bucket (the default), fixed_window, sliding_window, sliding_log,
/// leaky_bucket, concurrency. Windows by the clock: `50000 per calendar month`,
/// `100/15min fixed_window aligned`.
#[pyclass(module = "ratekeeper", frozen, eq)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quota(pub(crate) ratekeeper::Quota);

#[pymethods]
impl Quota {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        Ok(Self(text.parse().map_err(Failure::from)?))
    }

    /// A window that begins with the first request, as in Application Kit.
    ///
    /// Values below 1 raise ValueError: "max_requests must be at least 1" and
    /// "expiry must be at least 1 second" (windows below a second: by text).
    #[staticmethod]
    #[pyo3(signature = (max_requests, expiry = 1.0))]
    fn fixed_window(
        #[pyo3(from_py_with = whole)] max_requests: i64,
        #[pyo3(from_py_with = float)] expiry: f64,
    ) -> PyResult<Self> {
        let limit = at_least(1, "max_requests", max_requests)?;
        let window = at_least_a_second("expiry", expiry)?;
        let quota = ratekeeper::Quota::new(Algorithm::FixedWindow, limit, window);
        Ok(Self(quota.map_err(Failure::from)?))
    }

    /// How it counts: "token_bucket", "fixed_window" and so on.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.0.algorithm().as_str()
    }

    /// Units in a window.
    #[getter]
    fn limit(&self) -> u32 {
        self.0.limit()
    }

    /// The most units there can be at once: the burst of a bucket, else the limit.
    #[getter]
    fn capacity(&self) -> u32 {
        self.0.capacity()
    }

    /// Seconds; of a calendar window, the longest.
    #[getter]
    fn window(&self) -> f64 {
        seconds_of(self.0.window())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// For `copy` and `pickle`.
    fn __getnewargs__(&self) -> (String,) {
        (self.0.to_string(),)
    }

    fn __repr__(&self) -> String {
        format!("Quota('{}')", self.0)
    }
}

/// A quota, or the text of one.
pub(crate) fn quota_of(value: &Bound<'_, PyAny>) -> PyResult<ratekeeper::Quota> {
    if let Ok(quota) = value.cast::<Quota>() {
        return Ok(quota.get().0);
    }
    match value.extract::<&str>() {
        Ok(text) => Ok(text.parse::<ratekeeper::Quota>().map_err(Failure::from)?),
        Err(_) => {
            Err(PyTypeError::new_err(format!("quota: expected str or Quota, got {}", type_name(value))))
        }
    }
}

/// One quota, one key, one cost: what `Store.check` takes.
///
/// `endpoint`, `organisation` and `project` say whose overrides apply. A fixed window whose
/// key is `endpoint:organisation:project`, with numbers for the last two, is counted where
/// Application Kit counts it. With `any_window`, all fixed windows of the name and key are one counter.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Clone, Debug)]
pub(crate) struct Charge(Arc<RawCharge<'static>>);

#[pymethods]
impl Charge {
    #[new]
    #[pyo3(signature = (name, quota, key, *, cost = 1, shadow = false, flat = false, any_window = false,
        emergency = "off", endpoint = None, organisation = None, project = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        name: String,
        quota: &Bound<'_, PyAny>,
        key: String,
        #[pyo3(from_py_with = whole)] cost: i64,
        shadow: bool,
        flat: bool,
        any_window: bool,
        emergency: &str,
        endpoint: Option<String>,
        organisation: Option<Id>,
        project: Option<Id>,
    ) -> PyResult<Self> {
        let name = RawName::new(name).map_err(Failure::from)?;
        // Whatever is wrong with it is told here, not where it is used.
        Key::raw(&name, &key).map_err(Failure::from)?;
        let mut charge = RawCharge::new(name, key, quota_of(quota)?)
            .any_cost(cost_of("cost", cost)?)
            .enforcement(if shadow { Enforcement::Shadow } else { Enforcement::Enforce })
            .emergency(emergency_of(emergency)?);
        if flat {
            charge = charge.flat();
        }
        if any_window {
            charge = charge.any_window();
        }
        charge = match (endpoint, organisation) {
            (Some(endpoint), Some(organisation)) => {
                let project = project.map(|id| Cow::Owned(id.0));
                charge.overridable(endpoint, organisation.0, project).map_err(Failure::from)?
            }
            (None, None) if project.is_none() => charge,
            _ => {
                let message = "overrides: expected endpoint and organisation, and perhaps a project";
                return Err(Failure::Input(message.to_owned()).into());
            }
        };
        Ok(Self(Arc::new(charge)))
    }

    /// The name of the quota, which stands in keys.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// How much in how long.
    #[getter]
    fn quota(&self) -> Quota {
        Quota(*self.0.quota())
    }

    /// Whose counter it is.
    #[getter]
    fn key(&self) -> &str {
        self.0.key()
    }

    /// Units asked for.
    #[getter]
    fn cost(&self) -> u64 {
        self.0.units()
    }

    fn __repr__(&self) -> String {
        // Keys may be somebody's secret.
        format!("Charge('{}', '{}', cost={})", self.0.name(), self.0.quota(), self.0.units())
    }
}

/// The charges of one check, kept for its refund and for their names.
#[derive(Clone, Debug)]
pub(crate) enum RawCharges {
    /// The usual one: nothing is copied.
    One(Arc<RawCharge<'static>>),
    Several(Arc<[RawCharge<'static>]>),
}

impl RawCharges {
    /// One charge, or a sequence of them.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(charge) = value.cast::<Charge>() {
            return Ok(Self::one(charge));
        }
        let wrong = || {
            let got = type_name(value);
            PyTypeError::new_err(format!("charges: expected a Charge or a sequence of them, got {got}"))
        };
        let items = value.try_iter().map_err(|_| wrong())?;
        let items = items.map(|item| match item?.cast::<Charge>() {
            Ok(charge) => Ok(RawCharge::clone(&charge.get().0)),
            Err(_) => Err(wrong()),
        });
        let charges: Arc<[_]> = items.collect::<PyResult<_>>()?;
        if charges.is_empty() {
            // In the words of the library.
            Charges::new().check().map_err(Failure::from)?;
        }
        Ok(Self::Several(charges))
    }

    pub(crate) fn one(charge: &Bound<'_, Charge>) -> Self {
        Self::One(Arc::clone(&charge.get().0))
    }

    /// What is asked for, of a store that raises when it is away.
    pub(crate) fn demand<'a>(&'a self, engine: &'a Arc<Engine>, cost: Option<u64>) -> Demand<'a> {
        let demand = engine.raw(self, OnOutage::default());
        if let Some(cost) = cost { demand.cost(cost) } else { demand }
    }
}

impl Deref for RawCharges {
    type Target = [RawCharge<'static>];

    fn deref(&self) -> &Self::Target {
        match self {
            RawCharges::One(charge) => std::slice::from_ref(charge),
            RawCharges::Several(charges) => charges,
        }
    }
}
