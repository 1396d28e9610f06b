//! What can be done with a request, whichever limiter is asked.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::policy::Matched;
use ratekeeper::{Decision, LIMIT_MAX, Limiter, Settled};

use crate::arguments::units;
use crate::error::Failure;
use crate::limiter::Asked;

/// What is done with a request.
pub(crate) enum Way {
    Check,
    Peek,
    Reserve(String, Duration),
    Wait(Duration),
}

impl Way {
    /// By the rules of a limiter. Also gives back what was asked, for refunds.
    pub(crate) async fn by_rules(
        self,
        engine: Arc<Limiter<Asked>>,
        asked: Asked,
    ) -> Result<(Decision, Asked), Failure> {
        let decision = match &self {
            Way::Check => engine.check_cost(&asked, asked.cost()).await?,
            Way::Peek => engine.peek(&asked).await?,
            Way::Reserve(id, hold) => engine.reserve(&asked, asked.cost(), id, *hold).await?,
            Way::Wait(patience) => engine.until_allowed(&asked, *patience).await?,
        };
        Ok((decision, asked))
    }

    /// By a policy. Also gives back what was matched: what is refunded is what was charged,
    /// whatever the policy says by then.
    pub(crate) async fn by_policy(self, matched: Matched) -> Result<(Decision, Matched), Failure> {
        let decision = match &self {
            Way::Check => matched.check().await?,
            Way::Peek => matched.peek().await?,
            Way::Reserve(id, hold) => matched.reserve(id, *hold).await?,
            Way::Wait(patience) => matched.until_allowed(*patience).await?,
        };
        Ok((decision, matched))
    }
}

/// How many units to give back: all, if nothing is said.
pub(crate) fn refund_units(asked: Option<i64>) -> pyo3::PyResult<u32> {
    let Some(asked) = asked else { return Ok(LIMIT_MAX) };
    Ok(u32::try_from(units("units", asked)?).map_or(LIMIT_MAX, |units| units.min(LIMIT_MAX)))
}

pub(crate) fn settled_word(settled: Settled) -> &'static str {
    settled.as_str()
}
