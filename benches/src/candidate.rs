//! Everything that is measured.

use crate::measure::Contestant;
use crate::scenario::Load;
use crate::{Result, floor, limiter, ours, peers};

/// A row of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidate {
    /// The loop and the key alone: in every other row too.
    Harness,
    /// A bare look-up in a concurrent map and one compare-and-swap.
    Floor,
    /// Our store, one quota, into a decision that is used again.
    TryCheck,
    /// Our store, one quota, the decision by value.
    Decide,
    /// Our store, three quotas on three keys, all or nothing.
    Layered,
    /// Our limiter with one rule.
    Limiter,
    /// governor, keyed, over `DashMap`.
    Governor,
    /// Limitador, in memory.
    Limitador,
    /// throttlecrab, adaptive store.
    Throttlecrab,
    /// pingora-limits: approximate counts in fixed memory.
    Pingora,
}

impl Candidate {
    /// All rows, in their order.
    pub const ALL: [Candidate; 10] = [
        Candidate::Harness,
        Candidate::Floor,
        Candidate::TryCheck,
        Candidate::Decide,
        Candidate::Layered,
        Candidate::Limiter,
        Candidate::Governor,
        Candidate::Limitador,
        Candidate::Throttlecrab,
        Candidate::Pingora,
    ];

    /// What the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Candidate::Harness => "harness (key only)",
            Candidate::Floor => "floor (papaya, ahash, one CAS)",
            Candidate::TryCheck => "ratekeeper `try_check`",
            Candidate::Decide => "ratekeeper `decide`",
            Candidate::Layered => "ratekeeper, three quotas",
            Candidate::Limiter => "ratekeeper `Limiter`",
            Candidate::Governor => "governor",
            Candidate::Limitador => "limitador",
            Candidate::Throttlecrab => "throttlecrab",
            Candidate::Pingora => "pingora-limits",
        }
    }

    /// A contestant that holds the counters of all `keys`, or `None` if there
    /// is no such row.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub fn build(self, load: Load, keys: u32) -> Result<Option<Box<dyn Contestant>>> {
        Ok(match self {
            // Neither of them knows a limit, so there is nothing to deny.
            Candidate::Harness | Candidate::Floor if load == Load::Denied => None,
            Candidate::Harness => Some(Box::new(floor::Harness)),
            Candidate::Floor => Some(Box::new(floor::Floor::new(keys))),
            Candidate::TryCheck => Some(Box::new(ours::TryCheck::new(load, keys)?)),
            Candidate::Decide => Some(Box::new(ours::Decide::new(load, keys)?)),
            Candidate::Layered => Some(Box::new(ours::Layered::new(load, keys)?)),
            Candidate::Limiter => limiter::contestant(load, keys)?,
            Candidate::Governor => Some(Box::new(peers::Governor::new(load, keys)?)),
            Candidate::Limitador => Some(Box::new(peers::Limitador::new(load, keys)?)),
            Candidate::Throttlecrab => Some(Box::new(peers::Throttlecrab::new(load, keys)?)),
            Candidate::Pingora => Some(Box::new(peers::Pingora::new(load, keys)?)),
        })
    }
}
