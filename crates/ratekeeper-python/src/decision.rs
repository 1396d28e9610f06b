//! The answer to a check.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ratekeeper::{Demand, Enforcement, Labels, Origin};

use crate::arguments::{seconds, seconds_of, seconds_of_wait};
use crate::http::{Denial, HttpOptions, fields};
use crate::quota::{Quota, RawCharges};

/// What a decision was about, so that it can be given back. Nothing of Python is in it:
/// decisions are many, and not for the collector of garbage.
#[derive(Debug)]
pub(crate) enum About {
    /// Charges that the caller put together.
    Charges(RawCharges),
    /// What was asked of a limiter.
    Request(crate::limiter::Asked),
    /// What the rules of a policy made of a request.
    Demand(Box<Demand<'static>>),
}

impl About {
    /// Whether an outage is an error: who puts charges together decides what it means.
    pub(crate) fn raises(&self) -> bool {
        matches!(self, About::Charges(_))
    }

    /// The names that the caller gave to charges.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            About::Charges(charges) => charges.iter().map(ratekeeper::RawCharge::name).collect(),
            About::Request(_) | About::Demand(_) => Vec::new(),
        }
    }
}

/// The answer to a check. True if the request may go on.
///
/// It belongs to the process that asked: it can be copied, and not pickled.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct Decision {
    /// Shared with refunds under way, because it keeps count of what was given back.
    pub(crate) inner: Arc<ratekeeper::Decision>,
    pub(crate) about: About,
}

impl Decision {
    /// Allowed, within every quota, and with nothing to be released later.
    pub(crate) fn simply_passes(&self) -> bool {
        self.inner.is_allowed() && !self.inner.is_over_limit() && !self.holds()
    }

    /// What a refund takes: the decision, and whether an outage is an error.
    pub(crate) fn kept(&self) -> (Arc<ratekeeper::Decision>, bool) {
        (Arc::clone(&self.inner), self.about.raises())
    }

    /// Adds what it says of each policy.
    pub(crate) fn add_to(
        &self,
        tally: &mut ratekeeper_http::Tally,
        partition_of: impl FnMut(&ratekeeper::Verdict) -> Option<Box<[u8]>>,
    ) {
        tally.add_labelled(&self.inner, Labels(&self.about.names()), partition_of);
    }

    fn verdict(&self, inner: ratekeeper::Verdict) -> Verdict {
        let charges = match &self.about {
            About::Charges(charges) => Some(charges.clone()),
            About::Request(_) | About::Demand(_) => None,
        };
        Verdict { inner, charges }
    }
}

#[pymethods]
impl Decision {
    /// Whether the request may go on.
    #[getter]
    fn allowed(&self) -> bool {
        self.inner.is_allowed()
    }

    /// Whether some quota had no room, also one that only watches (monitor mode).
    #[getter]
    fn over_limit(&self) -> bool {
        self.inner.is_over_limit()
    }

    /// Who decided: `outage` is the rules' failure policy, `unlimited` says that no rule applied, `budget` that its
    /// conditions are too much work.
    #[getter]
    fn origin(&self) -> &'static str {
        match self.inner.origin() {
            Origin::Store => "store",
            Origin::Repeat => "repeat",
            Origin::Outage => "outage",
            Origin::Unlimited => "unlimited",
            Origin::Budget => "budget",
        }
    }

    /// Why it is denied, if neither a limit nor an outage denies it: `condition_budget` says that the
    /// conditions of its policy are more work than the budget of a request.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.inner.reason()
    }

    /// The instant of the decision by the store's clock, seconds since 1970.
    #[getter]
    fn at(&self) -> f64 {
        seconds(self.inner.at().as_micros())
    }

    /// Seconds until the same check would pass: 0 if allowed, inf if never.
    #[getter]
    fn retry_after(&self) -> f64 {
        seconds_of_wait(self.inner.retry_after())
    }

    /// Seconds that an allowed request should hold back (leaky buckets).
    #[getter]
    fn proceed_after(&self) -> f64 {
        seconds_of(self.inner.proceed_after())
    }

    /// Every quota that was asked, in the order of the rules.
    #[getter]
    fn verdicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let verdicts =
            self.inner.verdicts().iter().map(|verdict| Bound::new(py, self.verdict(verdict.clone())));
        PyTuple::new(py, verdicts.collect::<PyResult<Vec<_>>>()?)
    }

    /// The one that matters most: the longest wait of those that denied, else the fullest.
    #[getter]
    fn strictest(&self) -> Option<Verdict> {
        self.inner.strictest().map(|verdict| self.verdict(verdict.clone()))
    }

    /// Whether it holds places (concurrency) that are to be released when the request is over.
    #[getter]
    fn holds(&self) -> bool {
        let held = |verdict: &ratekeeper::Verdict| verdict.is_at_latest() && verdict.receipt().is_some();
        self.inner.is_allowed() && self.inner.verdicts().iter().any(held)
    }

    /// One sentence for people.
    fn explain(&self) -> String {
        self.inner.labelled(Labels(&self.about.names())).to_string()
    }

    /// The header fields of a response, names in lower case; on a denial with those of `denial`.
    #[pyo3(signature = (options = None))]
    fn headers(&self, options: Option<&Bound<'_, HttpOptions>>) -> Vec<(&'static str, String)> {
        let (options, names) = (HttpOptions::or_default(options), self.about.names());
        let mut all = fields(ratekeeper_http::Tally::labelled(&self.inner, Labels(&names)).fields(&options));
        if let Some(denial) = ratekeeper_http::Denial::of(&self.inner, &options) {
            all.extend(fields(denial.fields()));
        }
        all
    }

    /// What to answer if it was denied.
    #[pyo3(signature = (options = None))]
    fn denial(&self, options: Option<&Bound<'_, HttpOptions>>) -> Option<Denial> {
        let (options, names) = (HttpOptions::or_default(options), self.about.names());
        let denial = ratekeeper_http::Denial::of(&self.inner, &options)?;
        Some(Denial::of(&denial.labelled(Labels(&names))))
    }

    fn __bool__(&self) -> bool {
        self.inner.is_allowed()
    }

    fn __copy__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// It never changes, so it is its own copy.
    fn __deepcopy__<'py>(this: PyRef<'py, Self>, _memo: &Bound<'_, PyAny>) -> PyRef<'py, Self> {
        this
    }

    fn __repr__(&self) -> String {
        format!("<Decision: {}>", self.explain())
    }
}

/// What one quota said.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    inner: ratekeeper::Verdict,
    /// The charges of the caller's, if one of them is what it is about.
    charges: Option<RawCharges>,
}

impl Verdict {
    fn raw_name(&self) -> Option<&str> {
        let charge = self.charges.as_ref()?.get(self.inner.index())?;
        Some(charge.name())
    }
}

#[pymethods]
impl Verdict {
    /// Its full name: of the rule, or `rule.rpm`, or `service/rule.rpm`.
    #[getter]
    fn name(&self) -> &str {
        self.raw_name().unwrap_or_else(|| self.inner.name().as_str())
    }

    /// Its name as clients see it, without the service.
    #[getter]
    fn policy(&self) -> &str {
        self.raw_name().unwrap_or_else(|| self.inner.name().label())
    }

    /// The quota in force, overrides included.
    #[getter]
    fn quota(&self) -> Quota {
        Quota(*self.inner.quota())
    }

    /// Units in a window, overrides included.
    #[getter]
    fn limit(&self) -> u32 {
        self.inner.quota().limit()
    }

    /// Seconds; of a calendar window, the longest.
    #[getter]
    fn window(&self) -> f64 {
        seconds_of(self.inner.quota().window())
    }

    /// Units left, after the charge if there was one.
    #[getter]
    fn remaining(&self) -> u32 {
        self.inner.remaining()
    }

    /// Seconds until it is full again if nobody else asks.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds_of(self.inner.reset_after())
    }

    /// Seconds until it would let the same charge pass: 0 now, inf never.
    #[getter]
    fn retry_after(&self) -> f64 {
        seconds_of_wait(self.inner.retry_after())
    }

    /// Units asked for.
    #[getter]
    fn cost(&self) -> u32 {
        self.inner.cost()
    }

    /// Who set the limit.
    #[getter]
    fn level(&self) -> &'static str {
        self.inner.level().as_str()
    }

    /// Whether it can deny; False in monitor mode.
    #[getter]
    fn enforced(&self) -> bool {
        self.inner.enforcement() == Enforcement::Enforce
    }

    /// Whether it had room.
    #[getter]
    fn admitted(&self) -> bool {
        self.inner.is_admitted()
    }

    /// Whether it denied the check.
    #[getter]
    fn denied(&self) -> bool {
        self.inner.is_denied()
    }

    /// Whether something was charged that can be given back.
    #[getter]
    fn charged(&self) -> bool {
        self.inner.receipt().is_some()
    }

    /// Proof of the charge; opaque.
    #[getter]
    fn receipt(&self) -> Option<(u64, u32)> {
        self.inner.receipt().map(|receipt| (receipt.at, receipt.detail))
    }

    fn __copy__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// It never changes, so it is its own copy.
    fn __deepcopy__<'py>(this: PyRef<'py, Self>, _memo: &Bound<'_, PyAny>) -> PyRef<'py, Self> {
        this
    }

    fn __repr__(&self) -> String {
        let (name, left, quota) = (self.policy(), self.inner.remaining(), self.inner.quota());
        format!("<Verdict {name}: {left} of {} left, {quota}>", quota.capacity())
    }
}
