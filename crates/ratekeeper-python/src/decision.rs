//! The answer to a check.

mod told;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ratekeeper::{Demand, Enforcement, Labels, Origin};

use crate::arguments::{seconds, seconds_of, seconds_of_wait};
use crate::http::{Denial, HttpOptions, fields};
use crate::quota::{Quota, RawCharges};
use told::{Parts, Said, TwoNames};
pub(crate) use told::{decision_of, verdict_of};

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
    /// Of a decision that comes from a pickle: the names of its verdicts, and nothing that could be given back.
    Told(Arc<[TwoNames]>),
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
            About::Told(names) => names.iter().map(|names| names.label.as_str()).collect(),
            About::Request(_) | About::Demand(_) => Vec::new(),
        }
    }
}

/// The answer to a check. True if the request may go on.
///
/// Copies are the decision itself, so they share the count of what was given back. A pickle says the same, and
/// has nothing that could be given back: whoever gives back in another process charges under an id, or reserves.
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
        let names = match &self.about {
            About::Charges(charges) => Names::Charges(charges.clone()),
            About::Told(names) => Names::Told(Arc::clone(names)),
            About::Request(_) | About::Demand(_) => Names::Own,
        };
        Verdict { inner, names }
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

    /// Two are equal if they say the same.
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| told::parts_of(self) == told::parts_of(other.get()))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        told::parts_of(self).hash(&mut hasher);
        hasher.finish()
    }

    /// For `pickle`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Parts,))> {
        Ok((told::maker(py, "_decision_of")?, (told::parts_of(self),)))
    }

    fn __repr__(&self) -> String {
        format!("<Decision: {}>", self.explain())
    }
}

/// Where the names of verdicts are.
#[derive(Clone, Debug)]
enum Names {
    /// In the verdicts.
    Own,
    /// With the charges of the caller's.
    Charges(RawCharges),
    /// In the pickle that it came from.
    Told(Arc<[TwoNames]>),
}

/// What one quota said.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    inner: ratekeeper::Verdict,
    names: Names,
}

impl Verdict {
    /// What it is called, with its service and without.
    fn names(&self) -> (&str, &str) {
        let own = (self.inner.name().as_str(), self.inner.name().label());
        match &self.names {
            Names::Own => own,
            Names::Charges(charges) => {
                charges.get(self.inner.index()).map_or(own, |charge| (charge.name(), charge.name()))
            }
            Names::Told(names) => {
                names.get(self.inner.index()).map_or(own, |names| (&names.full, &names.label))
            }
        }
    }
}

#[pymethods]
impl Verdict {
    /// Its full name: of the rule, or `rule.rpm`, or `service/rule.rpm`.
    #[getter]
    fn name(&self) -> &str {
        self.names().0
    }

    /// Its name as clients see it, without the service.
    #[getter]
    fn policy(&self) -> &str {
        self.names().1
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

    /// Two are equal if they say the same.
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| told::said_by(self) == told::said_by(other.get()))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        told::said_by(self).hash(&mut hasher);
        hasher.finish()
    }

    /// For `pickle`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Said,))> {
        Ok((told::maker(py, "_verdict_of")?, (told::said_by(self),)))
    }

    fn __repr__(&self) -> String {
        let (name, left, quota) = (self.policy(), self.inner.remaining(), self.inner.quota());
        format!("<Verdict {name}: {left} of {} left, {quota}>", quota.capacity())
    }
}
