//! What can be shown of a store, of policies, and of requests that were decided without the store.
//!
//! Every metric is defined here, once: the server's `/metrics` and OTLP and the collectors of embedded use are made of
//! the same [`Family`] values, so they have the same names and labels.
//!
//! ```
//! use std::sync::Arc;
//! use ratekeeper::{MemoryStore, metrics::Metrics};
//!
//! let metrics = Metrics::new(Arc::new(MemoryStore::new()));
//! assert!(metrics.families().iter().any(|family| family.name == "ratekeeper_outage_decisions"));
//! ```
//!
//! With the feature `prometheus`, [`Metrics`] is a collector for the registry of `prometheus-client`; with the feature
//! `opentelemetry`, `Metrics::observe` makes instruments of a meter.

#[cfg(feature = "policy-core")]
mod decisions;
mod families;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
#[cfg(feature = "policy-core")]
mod policies;
#[cfg(feature = "prometheus")]
mod prometheus;

use std::sync::Arc;

#[cfg(feature = "policy-core")]
pub(crate) use self::decisions::counted;
#[cfg(feature = "policy-core")]
pub use self::decisions::{OTHER, Outcomes, RuleSeries, of_decisions};
pub use self::families::{Family, Kind, SERIES_MAX, Sample, Value, of_store};
#[cfg(feature = "policy-core")]
pub use self::policies::of_policies;
#[cfg(feature = "prometheus")]
pub use self::prometheus::Families;
use crate::engine::Outages;
#[cfg(feature = "policy-core")]
use crate::policy::Policies;
use crate::store::Store;

/// The metrics of this process: how its store is doing, what was decided without it, and how its policies are doing.
///
/// Decisions, and requests that were decided without a store, are counted for the whole process, whichever limiter decided
/// them. So one of these is enough for any number of limiters on a store. Decisions are counted (with the feature `policy`)
/// from when the first of these is made; rules in code have no service.
#[derive(Clone, Debug)]
pub struct Metrics {
    store: Arc<dyn Store>,
    #[cfg(feature = "policy-core")]
    policies: Option<Policies>,
}

impl Metrics {
    /// Those of a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        #[cfg(feature = "policy-core")]
        decisions::count();
        Self {
            store,
            #[cfg(feature = "policy-core")]
            policies: None,
        }
    }

    /// Those of policies as well.
    #[cfg(feature = "policy-core")]
    #[must_use]
    pub fn with_policies(self, policies: Policies) -> Self {
        Self { policies: Some(policies), ..self }
    }

    /// What there is to show at this moment. The families are always the same; their samples may be none.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        #[allow(unused_mut, reason = "without policies, that is all")]
        let mut families = of_store(&self.store.health(), Outages::of_process());
        #[cfg(feature = "policy-core")]
        families.push(of_decisions(decisions::count(), self.policies.as_ref()));
        #[cfg(feature = "policy-core")]
        families.extend(self.policies.iter().flat_map(of_policies));
        families
    }
}
