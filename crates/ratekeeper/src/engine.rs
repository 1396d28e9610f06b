//! What decides: the store that all instances share, the memory of this process,
//! and what rules say when the store cannot be asked.
//!
//! Rules in code and rules of a policy come here alike, as a [`Demand`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    Charges, Check, Decision, Field, InvalidInput, LIMIT_MAX, Origin, Outcome, Reservation, Settled, Verdict,
};

use crate::limiter::OnOutage;
use crate::store::memory::MemoryStore;
use crate::store::{Store, StoreError, StoreErrorKind};

/// Keys a process counts for itself.
const PROCESS_KEYS_MAX: usize = 1_000_000;
/// How often to look whether a holder has come back.
const RELEASE_POLL: Duration = Duration::from_millis(20);
/// Waiting is lengthened by up to this share of itself, so that those who were
/// denied together do not come back together. Never shortened: earlier would be
/// denied again.
const JITTER: f64 = 0.1;

/// What one request asks for: the charges of the rules that apply to it.
pub(crate) trait Demand {
    /// What all instances count together.
    fn shared(&self) -> Result<Charges<'_>, InvalidInput>;

    /// Whether there is anything that this process counts for itself.
    fn has_own(&self) -> bool {
        false
    }

    /// What this process counts for itself.
    fn own(&self) -> Result<Charges<'_>, InvalidInput> {
        Ok(Charges::new())
    }

    /// This process's share of what is shared, for rules with [`OnOutage::Local`].
    fn share(&self) -> Result<Charges<'_>, InvalidInput>;

    /// The strictest that the rules say to an outage of the store.
    fn on_outage(&self) -> OnOutage;
}

/// How many requests were decided without the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// They went on, uncounted.
    pub allowed: u64,
    /// They were denied.
    pub denied: u64,
    /// This process decided with its own share.
    pub local: u64,
}

#[derive(Debug, Default)]
struct OutageCounters {
    allowed: AtomicU64,
    denied: AtomicU64,
    local: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    /// What this process counts for itself: rules that want it, and its share
    /// of the others while the store is away. No rule is both.
    pub(crate) process: Arc<MemoryStore>,
    outages: OutageCounters,
}

impl Engine {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self::with_process(store, Arc::new(MemoryStore::with_max_keys(PROCESS_KEYS_MAX)))
    }

    pub(crate) fn with_process(store: Arc<dyn Store>, process: Arc<MemoryStore>) -> Self {
        Self { store, process, outages: OutageCounters::default() }
    }

    pub(crate) fn outages(&self) -> Outages {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let OutageCounters { allowed, denied, local } = &self.outages;
        Outages { allowed: read(allowed), denied: read(denied), local: read(local) }
    }

    pub(crate) async fn check(&self, demand: &impl Demand) -> Result<Decision, InvalidInput> {
        if demand.has_own() {
            return self.check_both(demand).await;
        }
        let charges = demand.shared()?;
        let Ok(check) = charges.check() else { return Ok(self.unlimited()) };
        let mut decision = Decision::default();
        let outcome = match self.store.try_check(&check, &mut decision) {
            Some(outcome) => outcome.map(|()| decision),
            None => self.store.check(&check).await,
        };
        self.answer(demand, outcome)
    }

    /// This process's part first, because it costs nothing; it is given back if
    /// the shared part denies. For that moment others may find it taken, but
    /// never more than there is.
    async fn check_both(&self, demand: &impl Demand) -> Result<Decision, InvalidInput> {
        let (own, shared) = (demand.own()?, demand.shared()?);
        let first = self.own_part(demand, &own, false)?;
        let (true, Ok(check)) = (first.is_allowed(), shared.check()) else { return Ok(first) };
        let undo = Undo { engine: self, own: &own, first: Some(first) };
        let second = self.answer(demand, self.store.check(&check).await);
        self.both(demand, &own, undo.first(), second)
    }

    /// [`Engine::check_both`], unless the store needs I/O for it.
    fn try_check_both(&self, demand: &impl Demand) -> Result<Option<Decision>, InvalidInput> {
        let (own, shared) = (demand.own()?, demand.shared()?);
        let first = self.own_part(demand, &own, false)?;
        let (true, Ok(check)) = (first.is_allowed(), shared.check()) else { return Ok(Some(first)) };
        let mut second = Decision::default();
        match self.store.try_check(&check, &mut second) {
            Some(outcome) => {
                let second = self.answer(demand, outcome.map(|()| second));
                self.both(demand, &own, first, second).map(Some)
            }
            None => {
                self.give_back(&own, &first);
                Ok(None)
            }
        }
    }

    /// The decision on both parts, the first of which was admitted.
    fn both(
        &self,
        demand: &impl Demand,
        own: &Charges<'_>,
        first: Decision,
        second: Result<Decision, InvalidInput>,
    ) -> Result<Decision, InvalidInput> {
        if let Ok(second) = &second
            && second.is_allowed()
        {
            return Ok(first.joined(second));
        }
        self.give_back(own, &first);
        Ok(self.own_part(demand, own, true)?.joined(&second?))
    }

    fn give_back(&self, own: &Charges<'_>, decision: &Decision) {
        if let Ok(check) = own.check() {
            // In memory, so it is done when the call returns.
            let _ = self.process.refund(&check, decision, LIMIT_MAX).now();
        }
    }

    fn own_part(
        &self,
        demand: &impl Demand,
        own: &Charges<'_>,
        peek: bool,
    ) -> Result<Decision, InvalidInput> {
        let Ok(check) = own.check() else { return Ok(self.unlimited()) };
        let result = self.process.decide(&if peek { check.peek() } else { check });
        result.or_else(|error| match error.into_input() {
            Some(input) => Err(input),
            // Full of keys that limit somebody.
            None if demand.on_outage() == OnOutage::Deny => Ok(self.without_store(Outcome::Deny, peek)),
            None => Ok(self.without_store(Outcome::Allow, peek)),
        })
    }

    /// Decides, unless the store needs I/O for it. The decision is written over
    /// the caller's, because it is large.
    #[inline]
    pub(crate) fn try_check(
        &self,
        demand: &impl Demand,
        decision: &mut Decision,
    ) -> Option<Result<(), InvalidInput>> {
        if demand.has_own() {
            return self
                .try_check_both(demand)
                .transpose()
                .map(|answer| answer.map(|answer| *decision = answer));
        }
        let charges = match demand.shared() {
            Ok(charges) => charges,
            Err(error) => return Some(Err(error)),
        };
        let Ok(check) = charges.check() else {
            *decision = self.unlimited();
            return Some(Ok(()));
        };
        Some(self.store.try_check(&check, decision)?.or_else(|error| {
            *decision = self.outage(demand, error, false)?;
            Ok(())
        }))
    }

    pub(crate) async fn peek(&self, demand: &impl Demand) -> Result<Decision, InvalidInput> {
        let (own, shared) = (demand.own()?, demand.shared()?);
        let first = self.own_part(demand, &own, true)?;
        let Ok(check) = shared.check() else { return Ok(first) };
        let second = self.store.check(&check.peek()).await;
        Ok(first.joined(&second.or_else(|error| self.outage(demand, error, true))?))
    }

    /// Gives back what a decision charged. An outage is no error: what cannot be given
    /// back comes back with time.
    pub(crate) async fn refund(
        &self,
        demand: &impl Demand,
        decision: &Decision,
        units: u32,
    ) -> Result<(), InvalidInput> {
        let refunded = self.refund_or_fail(demand, decision, units).await;
        refunded.or_else(|error| error.into_input().map_or(Ok(()), Err))
    }

    /// The same for whoever wants to know of an outage.
    pub(crate) async fn refund_or_fail(
        &self,
        demand: &impl Demand,
        decision: &Decision,
        units: u32,
    ) -> Result<(), StoreError> {
        let (own, shared) = (demand.own()?, demand.shared()?);
        let mut results = Vec::with_capacity(2);
        let mut first = 0;
        if let Ok(check) = own.check() {
            // What was decided without a part has no verdicts of it.
            let pairs = check.charges().iter().zip(decision.verdicts());
            first = pairs.take_while(|(charge, verdict)| charge.key().scope() == verdict.name()).count();
            results.push(self.process.refund(&check, decision, units).await);
        }
        let rest = decision.clone().without_first(first);
        if decision.origin() == Origin::Outage {
            // This process has counted for itself meanwhile, if anybody has.
            let share = demand.share()?;
            if let Ok(check) = share.check() {
                results.push(self.process.refund(&check, &rest, units).await);
            }
        } else if let Ok(check) = shared.check() {
            results.push(self.store.refund(&check, &rest, units).await);
        }
        // What is wrong with the call says more than what is wrong with a store.
        let mut failures: Vec<StoreError> = results.into_iter().filter_map(Result::err).collect();
        failures.sort_by_key(|failure| failure.kind() == StoreErrorKind::Input);
        failures.pop().map_or(Ok(()), Err)
    }

    pub(crate) async fn reserve(
        &self,
        demand: &impl Demand,
        reservation: &Reservation<'_>,
    ) -> Result<Decision, InvalidInput> {
        let (own, shared) = (demand.own()?, demand.shared()?);
        let first = match own.check() {
            Err(_) => self.unlimited(),
            Ok(check) => match self.process.reserve(&check.by_rules(), reservation).await {
                Ok(decision) => decision,
                Err(error) => self.outage(demand, error, false)?,
            },
        };
        let (true, Ok(check)) = (first.is_allowed(), shared.check()) else { return Ok(first) };
        let second = self.answer(demand, self.store.reserve(&check.by_rules(), reservation).await);
        let denied = second.as_ref().map_or(true, |second| !second.is_allowed());
        if demand.has_own() && denied {
            let _ = self.process.settle(reservation.id(), None).await;
            return Ok(self.own_part(demand, &own, true)?.joined(&second?));
        }
        Ok(first.joined(&second?))
    }

    pub(crate) async fn settle(&self, id: &str, actual: Option<u64>) -> Result<Settled, StoreError> {
        let expected = || format!("a whole number from 0 to {LIMIT_MAX}");
        let bounded = |actual| {
            let bounded = u32::try_from(actual).ok().filter(|actual| *actual <= LIMIT_MAX);
            bounded.ok_or_else(|| InvalidInput::new(Field::Cost, actual, expected()))
        };
        let actual = actual.map(bounded).transpose()?;
        let own = self.process.settle(id.as_bytes(), actual).await?;
        let shared = self.store.settle(id.as_bytes(), actual).await?;
        Ok(if shared == Settled::Unknown { own } else { shared })
    }

    pub(crate) async fn reset(&self, demand: &impl Demand) -> Result<usize, StoreError> {
        let mut forgotten = 0;
        let (own, shared) = (demand.own()?, demand.shared()?);
        for charge in own.check().iter().flat_map(Check::charges) {
            forgotten += usize::from(self.process.reset(charge.key(), charge.quota().algorithm()).await?);
        }
        for charge in shared.check().iter().flat_map(Check::charges) {
            forgotten += usize::from(self.store.reset(charge.key(), charge.quota().algorithm()).await?);
        }
        Ok(forgotten)
    }

    pub(crate) fn unlimited(&self) -> Decision {
        Decision::without_store(Outcome::Allow, Origin::Unlimited, self.store.now())
    }

    /// Who only looks is neither let through nor turned away, so that is not counted.
    fn without_store(&self, outcome: Outcome, peek: bool) -> Decision {
        let counter = match outcome {
            Outcome::Allow => &self.outages.allowed,
            Outcome::Deny => &self.outages.denied,
        };
        counter.fetch_add(u64::from(!peek), Ordering::Relaxed);
        Decision::without_store(outcome, Origin::Outage, self.store.now())
    }

    fn answer(
        &self,
        demand: &impl Demand,
        result: Result<Decision, StoreError>,
    ) -> Result<Decision, InvalidInput> {
        result.or_else(|error| self.outage(demand, error, false))
    }

    /// What the rules say to a store that could not answer: one that denies is
    /// enough, then those that count for themselves decide. A call that no store
    /// could answer is the caller's error.
    #[cold]
    fn outage(&self, demand: &impl Demand, error: StoreError, peek: bool) -> Result<Decision, InvalidInput> {
        if let Some(input) = error.into_input() {
            return Err(input);
        }
        match demand.on_outage() {
            OnOutage::Deny => Ok(self.without_store(Outcome::Deny, peek)),
            OnOutage::Allow => Ok(self.without_store(Outcome::Allow, peek)),
            OnOutage::Local => {
                let charges = demand.share()?;
                let Ok(check) = charges.check() else { return Ok(self.unlimited()) };
                let check = if peek { check.peek() } else { check };
                // Full of keys that limit somebody: then even this is away.
                let Ok(decision) = self.process.decide(&check) else {
                    return Ok(self.without_store(Outcome::Allow, peek));
                };
                self.outages.local.fetch_add(u64::from(!peek), Ordering::Relaxed);
                Ok(decision.from_origin(Origin::Outage))
            }
        }
    }
}

/// Gives this process's part back if whoever asked does not wait for the shared one.
struct Undo<'a, 'c> {
    engine: &'a Engine,
    own: &'a Charges<'c>,
    first: Option<Decision>,
}

impl Undo<'_, '_> {
    /// The answer has come: it decides.
    fn first(mut self) -> Decision {
        self.first.take().unwrap_or_default()
    }
}

impl Drop for Undo<'_, '_> {
    fn drop(&mut self) {
        if let Some(first) = &self.first {
            self.engine.give_back(self.own, first);
        }
    }
}

/// Waits until what `check` asks is allowed; see
/// [`Limiter::until_allowed`](crate::Limiter::until_allowed).
pub(crate) async fn until_allowed<C>(
    patience: Duration,
    check: impl Fn() -> C,
    give_back: impl AsyncFnOnce(Decision) -> Result<(), InvalidInput>,
) -> Result<Decision, InvalidInput>
where
    C: Future<Output = Result<Decision, InvalidInput>>,
{
    let mut left = patience;
    loop {
        let decision = check().await?;
        if decision.is_allowed() {
            if decision.proceed_after() > left {
                give_back(decision.clone()).await?;
                return Ok(decision.given_up());
            }
            tokio::time::sleep(decision.proceed_after()).await;
            return Ok(decision);
        }
        let mut wait = decision.retry_after().duration();
        if !left.is_zero() && decision.strictest().is_some_and(Verdict::is_at_latest) {
            // Only an upper bound: a holder may come back any moment.
            wait = wait.map(|wait| wait.min(RELEASE_POLL).min(left));
        }
        let Some(wait) = wait.filter(|wait| !wait.is_zero() && *wait <= left) else {
            return Ok(decision);
        };
        let wait = wait.mul_f64(1.0 + JITTER * fastrand::f64()).min(left);
        tokio::time::sleep(wait).await;
        left = left.saturating_sub(wait);
    }
}
