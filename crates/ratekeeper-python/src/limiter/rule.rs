//! A rule in code, as Python writes it.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use pyo3::{PyTraverseError, PyVisit};
use ratekeeper::{Algorithm, Name, OnOutage, Quotas};

use super::asked::Asked;
use crate::arguments::{choice, on_outage as on_outage_of, plain_function, type_name};
use crate::error::Failure;
use crate::quota::{Quota, quota_of};

/// Whose quota it is, how much, and what happens when the store is away.
///
/// `quotas`: a text, a `Quota`, tiers `{"rps": 20, "rpm": 1000}` (fixed windows, as in
/// the SDK's documents) or `"{rps=20, rpm=1000}"`, or a mapping from names to texts or quotas.
///
/// `key`: from a request to the key it counts under; None means that the rule does not
/// apply. Without a function, whoever asks says the key. `everyone=True` counts all
/// requests together.
///
/// `mode`: "monitor" counts and tells, never denies. `on_outage`: what an outage of the
/// store means: "allow", "deny", or "local", this process's share in its own memory.
/// `per_request`: one unit, whatever a check costs.
#[pyclass(module = "ratekeeper", frozen)]
pub(crate) struct Rule {
    pub(super) name: String,
    pub(super) key: KeyOf,
    /// Each with its name within the rule, "" for the only one.
    quotas: Vec<(String, ratekeeper::Quota)>,
    is_shadow: bool,
    on_outage: OnOutage,
    per_request: bool,
}

/// Where the key of a rule comes from.
pub(super) enum KeyOf {
    Everyone,
    Asked,
    Function(Py<PyAny>),
}

#[pymethods]
impl Rule {
    #[new]
    #[pyo3(signature = (name, quotas, *, key = None, everyone = false, mode = "on", on_outage = "allow",
        per_request = false))]
    fn new(
        name: String,
        quotas: &Bound<'_, PyAny>,
        key: Option<Bound<'_, PyAny>>,
        everyone: bool,
        mode: &str,
        on_outage: &str,
        per_request: bool,
    ) -> PyResult<Self> {
        let key = match key {
            Some(_) if everyone => {
                let message = "key: got a function for a rule for everyone; expected one of the two";
                return Err(Failure::Input(message.to_owned()).into());
            }
            Some(function) => {
                plain_function("key", &function)?;
                KeyOf::Function(function.unbind())
            }
            None if everyone => KeyOf::Everyone,
            None => KeyOf::Asked,
        };
        let rule = Self {
            key,
            quotas: quotas_of(quotas)?,
            is_shadow: choice("mode", mode, &[("on", false), ("monitor", true)])?,
            on_outage: on_outage_of(on_outage)?,
            per_request,
            name,
        };
        rule.named().map_err(|error| Failure::Input(format!("rule `{}`: {error}", rule.name)))?;
        Ok(rule)
    }

    /// Its name, which stands in keys and before those of its quotas.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Each with its full name: `name`, or `name.rpm` of several.
    #[getter]
    fn quotas(&self) -> PyResult<Vec<(&'static str, Quota)>> {
        let named = self.named().map_err(Failure::from)?;
        Ok(named.into_iter().map(|(name, quota)| (name.as_str(), Quota(quota))).collect())
    }

    /// A key function may know the limiter that calls it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.key {
            KeyOf::Function(function) => visit.call(function),
            KeyOf::Everyone | KeyOf::Asked => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<Rule {}>", self.shown())
    }
}

impl Rule {
    pub(super) fn shown(&self) -> String {
        let quotas: Vec<String> = self.quotas.iter().map(|(_, quota)| quota.to_string()).collect();
        format!("{}: {}", self.name, quotas.join(", "))
    }

    fn named(&self) -> Result<Vec<(Name, ratekeeper::Quota)>, ratekeeper::InvalidInput> {
        let name = Name::new(&self.name)?;
        let named = self.quotas.iter().map(|(label, quota)| {
            Ok((if label.is_empty() { name } else { Name::joined(name, label)? }, *quota))
        });
        named.collect()
    }

    /// The rule as the library has it; `index` is its place in the limiter.
    pub(super) fn compiled(&self, index: usize) -> ratekeeper::Rule<Asked> {
        let mut rule = match self.key {
            KeyOf::Everyone => ratekeeper::Rule::new(&self.name, |_: &Asked| Some(Cow::Borrowed("all"))),
            _ => ratekeeper::Rule::new(&self.name, move |asked: &Asked| asked.key(index)),
        };
        rule = rule.overridable(Asked::owner).mode_of(Asked::mode).on_outage(self.on_outage);
        for (label, quota) in &self.quotas {
            rule = if label.is_empty() { rule.quota(*quota) } else { rule.also(label, &quota.to_string()) };
        }
        if self.is_shadow {
            rule = rule.shadow();
        }
        if self.per_request { rule.per_request() } else { rule }
    }
}

/// A text, a quota, or a mapping from names to limits, texts or quotas.
fn quotas_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, ratekeeper::Quota)>> {
    let owned = |quotas: Quotas| quotas.iter().map(|(tier, quota)| (tier.to_owned(), quota)).collect();
    if let Ok(text) = value.extract::<&str>() {
        return Ok(owned(text.parse::<Quotas>().map_err(Failure::from)?));
    }
    if let Ok(quota) = value.cast::<Quota>() {
        return Ok(vec![(String::new(), quota.get().0)]);
    }
    let Ok(mapping) = value.cast::<PyMapping>() else {
        let message = format!("quotas: expected str, Quota or a mapping, got {}", type_name(value));
        return Err(PyTypeError::new_err(message));
    };
    if mapping.is_empty()? {
        return Err(Failure::Input("quotas: got none; expected at least one".to_owned()).into());
    }
    let items = mapping.items()?;
    let quotas = items.iter().map(|item| {
        let (name, limit): (String, Bound<'_, PyAny>) = item.extract()?;
        if name.is_empty() {
            return Err(
                Failure::Input("quotas: got an empty name; expected a name for each".to_owned()).into()
            );
        }
        let Ok(limit) = limit.extract::<i64>() else { return Ok((name, quota_of(&limit)?)) };
        let Ok(units) = u64::try_from(limit) else {
            let message = format!("{name}: got {limit}; expected a whole number from 0 to 1000000000");
            return Err(Failure::Input(message).into());
        };
        let tier = Quotas::tiers(Algorithm::FixedWindow, &[(&name, units)]).map_err(Failure::from)?;
        let quota = tier.iter().next().map(|(_, quota)| quota);
        Ok((name, quota.ok_or(Failure::Lost)?))
    });
    quotas.collect()
}
