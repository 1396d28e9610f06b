//! Decisions in pickles: what they say, in parts.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use ratekeeper::{
    DecisionParts, Enforcement, Level, Name, Origin, Outcome, Quota, Timestamp, VerdictParts, Wait,
};

use super::{About, Decision, Names, Verdict};
use crate::error::Failure;

/// Whether it is allowed, its origin, its instant, when to come back (None: never), how long to hold back, and
/// what its verdicts say; times in microseconds.
pub(crate) type Parts = (bool, u8, u64, Option<u64>, u64, Vec<Said>);
/// Names with and without the service, quota, level, whether it is enforced, cost, units left, when it is full again,
/// when to come back.
pub(crate) type Said = (String, String, String, u8, bool, u32, u32, u64, Option<u64>);

const ORIGINS: [Origin; 5] =
    [Origin::Store, Origin::Repeat, Origin::Outage, Origin::Unlimited, Origin::Budget];
const LEVELS: [Level; 6] =
    [Level::Default, Level::Plan, Level::Custom, Level::Organisation, Level::Project, Level::Emergency];

/// What a verdict is called where it comes from a pickle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TwoNames {
    /// With the service.
    pub(super) full: String,
    /// Without it.
    pub(super) label: String,
}

pub(super) fn parts_of(decision: &Decision) -> Parts {
    let inner = &decision.inner;
    let said = inner.verdicts().iter().map(|verdict| said_by(&decision.verdict(verdict.clone())));
    (
        inner.is_allowed(),
        place(&ORIGINS, &inner.origin()),
        inner.at().as_micros(),
        inner.retry_after().as_micros(),
        micros(inner.proceed_after()),
        said.collect(),
    )
}

pub(super) fn said_by(verdict: &Verdict) -> Said {
    let inner = &verdict.inner;
    let (full, label) = verdict.names();
    (
        full.to_owned(),
        label.to_owned(),
        inner.quota().to_string(),
        place(&LEVELS, &inner.level()),
        inner.enforcement() == Enforcement::Enforce,
        inner.cost(),
        inner.remaining(),
        micros(inner.reset_after()),
        inner.retry_after().as_micros(),
    )
}

/// A decision from its parts: what `pickle` calls.
#[pyfunction(name = "_decision_of")]
pub(crate) fn decision_of(parts: Parts) -> PyResult<Decision> {
    let (is_allowed, origin, at, retry_after, proceed_after, said) = parts;
    let names: Arc<[TwoNames]> = said.iter().map(names_of).collect();
    let verdicts = said.iter().enumerate().map(|(index, said)| verdict_parts(said, index));
    let parts = DecisionParts {
        outcome: if is_allowed { Outcome::Allow } else { Outcome::Deny },
        origin: *ORIGINS.get(usize::from(origin)).ok_or_else(wrong)?,
        at: Timestamp::from_micros(at),
        retry_after: wait(retry_after),
        proceed_after: Duration::from_micros(proceed_after),
        verdicts: verdicts.collect::<PyResult<_>>()?,
    };
    Ok(Decision { inner: Arc::new(parts.into()), about: About::Told(names) })
}

/// A verdict from its parts: what `pickle` calls.
#[pyfunction(name = "_verdict_of")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it converted")]
pub(crate) fn verdict_of(said: Said) -> PyResult<Verdict> {
    let names = Names::Told([names_of(&said)].into());
    Ok(Verdict { inner: verdict_parts(&said, 0)?.into(), names })
}

/// A function of this module, as `pickle` finds it again.
pub(super) fn maker<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("ratekeeper._native")?.getattr(name)
}

fn names_of((full, label, ..): &Said) -> TwoNames {
    TwoNames { full: full.clone(), label: label.clone() }
}

fn verdict_parts(said: &Said, index: usize) -> PyResult<VerdictParts> {
    let (_, _, quota, level, is_enforced, cost, remaining, reset_after, retry_after) = said;
    Ok(VerdictParts {
        level: *LEVELS.get(usize::from(*level)).ok_or_else(wrong)?,
        enforcement: if *is_enforced { Enforcement::Enforce } else { Enforcement::Shadow },
        cost: *cost,
        remaining: *remaining,
        reset_after: Duration::from_micros(*reset_after),
        retry_after: wait(*retry_after),
        index: u16::try_from(index).map_err(|_| wrong())?,
        // Names stay for the life of a process; these are kept beside.
        ..VerdictParts::new(Name::RAW, quota.parse::<Quota>().map_err(Failure::from)?)
    })
}

fn place<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|known| known == one).and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

fn wait(micros: Option<u64>) -> Wait {
    micros.map_or(Wait::NEVER, Wait::micros)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn wrong() -> PyErr {
    PyValueError::new_err("pickle of a decision: made by another version of this package")
}
