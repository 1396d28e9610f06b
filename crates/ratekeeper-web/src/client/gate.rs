//! Who may go out now, who waits, and who is refused.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use ratekeeper::Limiter;
use tokio::time::{Instant, sleep_until};

use super::NotSent;
use super::fields::told_by;
use super::state::States;

/// Decides for all requests of a client.
#[derive(Debug)]
pub(super) struct OutgoingGate {
    limiter: Limiter<str>,
    states: States,
    patience: Duration,
    queue_max: usize,
}

/// A request that is under way; the other side is free to answer.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<OutgoingGate>,
    key: Option<Box<str>>,
}

impl Pass {
    /// Notes what the response says.
    pub(super) fn answered(mut self, status: StatusCode, headers: &HeaderMap) {
        if let Some(key) = self.key.take() {
            self.gate.states.back(&key, &told_by(status, headers));
        }
    }
}

/// Without an answer, nothing is known.
impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.gate.states.back(&key, &[]);
        }
    }
}

/// A place in the queue, which is left also by a caller that goes away.
struct Place<'g> {
    states: &'g States,
    key: &'g str,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.states.leave(self.key);
    }
}

impl OutgoingGate {
    pub(super) fn new(limiter: Limiter<str>, patience: Duration, queue_max: usize) -> Self {
        Self { limiter, states: States::default(), patience, queue_max }
    }

    /// Waits until a request under this key may go out; without a key, it may at once.
    pub(super) async fn enter(self: Arc<Self>, key: Option<Box<str>>) -> Result<Pass, NotSent> {
        if let Some(key) = &key {
            self.wait(key).await?;
        }
        Ok(Pass { gate: self, key })
    }

    async fn wait(&self, key: &str) -> Result<(), NotSent> {
        let deadline = Instant::now() + self.patience;
        // The first try waits for nothing, so it needs no place in the queue.
        if self.states.closed(key).is_none() && self.try_once(key, Duration::ZERO).await.is_ok() {
            return Ok(());
        }
        if self.patience.is_zero() {
            return Err(self.refused(key, deadline).await);
        }
        self.states.queue(key, self.queue_max).map_err(|waiting| NotSent::QueueFull { waiting })?;
        let _place = Place { states: &self.states, key };
        loop {
            // First for the other side, then for ourselves: those who waited go out one by one.
            if let Some(until) = self.states.closed(key) {
                within(until, deadline)?;
                sleep_until(until).await;
            }
            match self.try_once(key, deadline.saturating_duration_since(Instant::now())).await {
                Ok(()) => return Ok(()),
                Err(Some(refused)) => return Err(refused),
                Err(None) => {}
            }
        }
    }

    /// Waits for our own limit and goes out, unless the other side has said to wait meanwhile: then nothing was charged.
    async fn try_once(&self, key: &str, patience: Duration) -> Result<(), Option<NotSent>> {
        // A key that cannot be judged limits nobody.
        let Ok(decision) = self.limiter.until_allowed(key, patience).await else { return Ok(()) };
        if !decision.is_allowed() {
            return Err(Some(NotSent::TooLong { retry_after: decision.retry_after().duration() }));
        }
        if self.states.go(key).is_ok() {
            return Ok(());
        }
        let _ = self.limiter.refund(key, &decision, 1).await;
        Err(None)
    }

    /// Why a request that does not wait is refused.
    async fn refused(&self, key: &str, now: Instant) -> NotSent {
        if let Some(until) = self.states.closed(key) {
            return NotSent::TooLong { retry_after: Some(until.saturating_duration_since(now)) };
        }
        let peeked = self.limiter.peek(key).await;
        NotSent::TooLong { retry_after: peeked.ok().and_then(|decision| decision.retry_after().duration()) }
    }
}

/// Refuses at once what would wait in vain.
fn within(until: Instant, deadline: Instant) -> Result<(), NotSent> {
    if until <= deadline {
        return Ok(());
    }
    Err(NotSent::TooLong { retry_after: Some(until.saturating_duration_since(Instant::now())) })
}
