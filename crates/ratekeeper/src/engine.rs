//! The one engine behind every surface.
//!
//! Front ends (rules in code, policies, raw charges) only make a [`Demand`]: what one request asks
//! for. The engine decides: this process's part, the store that all instances share, penalties, what an
//! outage means, and what is given back when a request is over. Every verb is written once, on `Demand`.

mod adjust;
mod counters;
mod demand;
mod hold;
mod outage;
mod overriding;
mod penalty;
mod raw;
mod strict;
mod terms;
mod verbs;
mod wait;

use std::sync::Arc;

use ratekeeper_core::{Decision, Field, InvalidInput, LIMIT_MAX, Origin, Outcome, Settled};

#[cfg(feature = "policy-core")]
pub(crate) use self::counters::RuleCounters;
pub(crate) use self::demand::{Asked, Endpoints, Limits, OwnerNames};
pub use self::demand::{Demand, DemandRule, Started};
pub use self::hold::{Admission, Hold};
use self::outage::OutageCounters;
pub use self::outage::{OnOutage, Outages};
#[cfg(feature = "policy-core")]
pub(crate) use self::overriding::EndpointPattern;
pub(crate) use self::overriding::Overridable;
pub(crate) use self::penalty::Penalty;
pub use self::raw::RawCharge;
use self::raw::RawTerms;
pub use self::strict::{Strict, StrictNow};
#[cfg_attr(not(feature = "policy-core"), allow(unreachable_pub, reason = "policies export it"))]
pub use self::terms::Scope;
pub(crate) use self::terms::{Held, LimitSet, Terms};
pub use self::verbs::CounterName;
pub use self::verbs::Now;
use crate::store::memory::MemoryStore;
use crate::store::{Store, StoreError};

/// Counters that a process keeps for itself.
const PROCESS_KEYS_MAX: usize = 1_000_000;

/// Decides on what requests ask for, on one store.
#[derive(Debug)]
pub struct Engine {
    store: Arc<dyn Store>,
    /// What this process counts for itself: rules that want it, and its share of the others while
    /// the store is away. No rule is both.
    process: Arc<MemoryStore>,
    /// Whether the store waits for I/O. Then a demand is prepared once and awaited.
    needs_io: bool,
    outages: OutageCounters,
    raw: RawTerms,
}

impl Engine {
    /// An engine on `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_process(store, Arc::new(MemoryStore::with_max_keys(PROCESS_KEYS_MAX)))
    }

    /// An engine on `store` that counts what belongs to this process alone in `process`.
    #[must_use]
    pub fn with_process(store: Arc<dyn Store>, process: Arc<MemoryStore>) -> Self {
        let needs_io = store.needs_io();
        Self { store, process, needs_io, outages: OutageCounters::default(), raw: RawTerms::default() }
    }

    /// The store, for its overrides, switches and clock.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// How many requests were decided without the store so far.
    #[must_use]
    pub fn outages(&self) -> Outages {
        self.outages.read()
    }

    /// Makes a reservation's charge `actual` units, or undoes it with `None`, whichever front end made it.
    ///
    /// # Errors
    /// If the amount is beyond 10^9, or the store could not answer.
    pub async fn settle(&self, id: &str, actual: Option<u64>) -> Result<Settled, StoreError> {
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

    /// [`Engine::settle`] without async.
    ///
    /// # Errors
    /// As [`Engine::settle`]; also if the store needs I/O. Then nothing was settled.
    pub fn settle_now(&self, id: &str, actual: Option<u64>) -> Result<Settled, StoreError> {
        if self.needs_io {
            return Err(verbs::needs_io().into());
        }
        verbs::at_once(self.settle(id, actual)).unwrap_or_else(|| Err(verbs::needs_io().into()))
    }

    pub(crate) fn unlimited(&self) -> Decision {
        Decision::without_store(Outcome::Allow, Origin::Unlimited, self.store.now())
    }
}
