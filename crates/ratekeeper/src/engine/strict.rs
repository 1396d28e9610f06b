//! The verbs for callers that decide themselves what an outage means, with async and without.

use std::time::Duration;

use ratekeeper_core::{Decision, Labels};

use super::Demand;
use super::outage::ByCaller;
use super::verbs::{Purpose, Terms, explained, needs_io, now};
use crate::store::StoreError;

/// The verbs of a [`Demand`] with an outage as an error, whatever its rules say to one.
///
/// # Errors
/// Each as its namesake; also if the store could not answer.
#[derive(Clone, Copy, Debug)]
pub struct Strict<'d, 'a>(&'d Demand<'a>);

impl<'a> Demand<'a> {
    /// The same verbs, with an outage as an error.
    #[must_use]
    pub fn strict(&self) -> Strict<'_, 'a> {
        Strict(self)
    }
}

#[allow(clippy::missing_errors_doc, reason = "said once, for the type")]
impl<'d, 'a> Strict<'d, 'a> {
    /// The same verbs without async, for stores that need no I/O.
    #[must_use]
    pub fn now(&self) -> StrictNow<'d, 'a> {
        StrictNow(*self)
    }

    /// [`Demand::check`].
    pub async fn check(&self) -> Result<Decision, StoreError> {
        self.0.decide::<ByCaller>(&self.0.purpose(Purpose::Check)?).await
    }

    /// [`Demand::try_check`].
    pub fn try_check(&self, decision: &mut Decision) -> Option<Result<(), StoreError>> {
        self.0.decide_now::<ByCaller>(decision)
    }

    /// [`Demand::peek`].
    pub async fn peek(&self) -> Result<Decision, StoreError> {
        self.0.decide::<ByCaller>(&self.0.purpose(Purpose::Peek)?).await
    }

    /// [`Demand::explain`].
    pub async fn explain(&self, labels: Labels<'_>) -> Result<String, StoreError> {
        Ok(explained(&self.peek().await?, labels))
    }

    /// [`Demand::reserve`], also of nothing: a charge of 0 beside others only looks.
    pub async fn reserve(&self, id: &str, hold: Duration) -> Result<Decision, StoreError> {
        self.0.decide::<ByCaller>(&Terms::held(id, hold)?).await
    }

    /// [`Demand::until_allowed`].
    pub async fn until_allowed(&self, patience: Duration) -> Result<Decision, StoreError> {
        self.0.wait::<ByCaller>(patience).await
    }

    /// [`Demand::try_refund`].
    pub async fn refund(&self, decision: &Decision, units: u32) -> Result<u64, StoreError> {
        self.0.try_refund(decision, units).await
    }
}

/// The verbs of [`Strict`] without async, for stores that need no I/O. Even these fail: a memory can be full of
/// keys that are limited.
///
/// # Errors
/// Each as its namesake; also if the store does need I/O. Then nothing was charged.
#[derive(Clone, Copy, Debug)]
pub struct StrictNow<'d, 'a>(Strict<'d, 'a>);

#[allow(clippy::missing_errors_doc, reason = "said once, for the type")]
impl StrictNow<'_, '_> {
    /// [`Strict::check`].
    pub fn check(&self) -> Result<Decision, StoreError> {
        let mut decision = Decision::default();
        self.0.try_check(&mut decision).unwrap_or_else(|| Err(needs_io().into()))?;
        Ok(decision)
    }

    /// [`Strict::peek`].
    pub fn peek(&self) -> Result<Decision, StoreError> {
        self.0.0.local()?;
        now(self.0.peek())
    }

    /// [`Strict::explain`].
    pub fn explain(&self, labels: Labels<'_>) -> Result<String, StoreError> {
        self.0.0.local()?;
        now(self.0.explain(labels))
    }

    /// [`Strict::reserve`].
    pub fn reserve(&self, id: &str, hold: Duration) -> Result<Decision, StoreError> {
        self.0.0.local()?;
        now(self.0.reserve(id, hold))
    }

    /// [`Strict::until_allowed`]: this thread waits.
    pub fn until_allowed(&self, patience: Duration) -> Result<Decision, StoreError> {
        self.0.0.wait_here::<ByCaller>(patience)
    }

    /// [`Strict::refund`].
    pub fn refund(&self, decision: &Decision, units: u32) -> Result<u64, StoreError> {
        self.0.0.local()?;
        now(self.0.refund(decision, units))
    }
}
