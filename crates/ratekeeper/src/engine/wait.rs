//! Waiting until a request is allowed.

use std::time::Duration;

use ratekeeper_core::{Decision, InvalidInput, LIMIT_MAX, Verdict};
use tokio::time::Instant;

use super::Demand;
use super::outage::{Away, ByRules};
use super::verbs::{Purpose, now};

/// How often to look whether a holder has come back.
const RELEASE_POLL: Duration = Duration::from_millis(20);
/// Waiting is lengthened by up to this share of itself, so that callers that were denied together do
/// not come back together. Never shortened: earlier would be denied again.
const JITTER: f64 = 0.1;

impl Demand<'_> {
    /// Waits until the request is allowed, for at most `patience` in all, and then also as long as a
    /// leaky bucket asks it to hold back. All time counts, the store's too.
    ///
    /// Waits are as long as the decision says and a little longer, at random, so that waiting callers do
    /// not come back all at once. If `patience` would not suffice, the denial is returned at once and
    /// nothing stays charged. Denials on the way are no strikes: the caller waits as it is asked to.
    ///
    /// Under an id the charge is final: if the hold-back grows beyond `patience` while it is
    /// made, the decision says how long is left ([`Decision::proceed_after`]).
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn until_allowed(&self, patience: Duration) -> Result<Decision, InvalidInput> {
        self.wait::<ByRules>(patience).await
    }

    pub(super) async fn wait<A: Away>(&self, patience: Duration) -> Result<Decision, A::Error> {
        let started = Instant::now();
        let left = || patience.saturating_sub(started.elapsed());
        loop {
            let decision = self.attempt::<A>(left()).await?;
            if decision.is_allowed() {
                return Ok(self.held_back(decision, left()).await?);
            }
            let Some(pause) = pause(&decision, left()) else { return Ok(decision) };
            tokio::time::sleep(pause.min(left())).await;
        }
    }

    /// One attempt. Under an id, what would be given up is not charged in the first place.
    async fn attempt<A: Away>(&self, left: Duration) -> Result<Decision, A::Error> {
        if self.once.is_some() {
            let seen = self.decide::<A>(&self.purpose(Purpose::Peek)?).await?;
            if seen.is_allowed() && seen.proceed_after() > left {
                return Ok(seen.given_up());
            }
        }
        self.decide::<A>(&self.purpose(Purpose::Wait)?).await
    }

    async fn held_back(&self, decision: Decision, left: Duration) -> Result<Decision, InvalidInput> {
        if decision.proceed_after() <= left {
            tokio::time::sleep(decision.proceed_after()).await;
            return Ok(decision);
        }
        if self.once.is_some() {
            return Ok(decision);
        }
        self.refund(&decision, LIMIT_MAX).await?;
        Ok(decision.given_up())
    }

    /// [`Demand::wait`] on this thread, if the store needs no I/O.
    pub(super) fn wait_here<A: Away>(&self, patience: Duration) -> Result<Decision, A::Error> {
        self.local()?;
        let started = std::time::Instant::now();
        let left = || patience.saturating_sub(started.elapsed());
        loop {
            let decision = now(self.attempt::<A>(left()))?;
            if decision.is_allowed() {
                let (hold_back, patience) = (decision.proceed_after(), left());
                if hold_back <= patience {
                    std::thread::sleep(hold_back);
                    return Ok(decision);
                }
                return Ok(now(self.held_back(decision, patience))?);
            }
            let Some(pause) = pause(&decision, left()) else { return Ok(decision) };
            std::thread::sleep(pause.min(left()));
        }
    }
}

/// How long to wait after a denial before asking again; nothing if what is left of the patience would not suffice.
fn pause(denial: &Decision, left: Duration) -> Option<Duration> {
    let mut wait = denial.retry_after().duration()?;
    if !left.is_zero() && denial.strictest().is_some_and(Verdict::is_at_latest) {
        // Only an upper bound: a holder may come back any moment.
        wait = wait.min(RELEASE_POLL).min(left);
    }
    let is_enough = !wait.is_zero() && wait <= left;
    is_enough.then(|| wait.mul_f64(1.0 + JITTER * fastrand::f64()))
}
