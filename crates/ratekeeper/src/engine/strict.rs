//! The verbs for callers that decide themselves what an outage means.

use std::time::Duration;

use ratekeeper_core::{Decision, Labels};

use super::Demand;
use super::outage::ByCaller;
use super::verbs::{Purpose, Terms, explained};
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
impl Strict<'_, '_> {
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
}
