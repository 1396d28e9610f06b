//! The connections to one server, and how they are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratekeeper_core::Clock;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::breaker::BreakerPolicy;
use super::lane::{Bounds, Lane};
use super::link::{Link, Script};
use super::locate::Locator;
use crate::store::failures::FailureLog;
use crate::store::{BreakerState, Health};

/// What all connections of a store have in common.
#[derive(Debug)]
pub(super) struct LaneMaker {
    pub(super) script: String,
    pub(super) breaker: BreakerPolicy,
    pub(super) bounds: Bounds,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) connections: usize,
    /// How many replicas must have a charge before it is answered.
    pub(super) replicas: usize,
    pub(super) failures: Arc<FailureLog>,
    pub(super) runtime: Handle,
}

/// The connections to one server.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Box<[Arc<Lane>]>,
    next: AtomicUsize,
}

impl LaneMaker {
    /// Begins to connect.
    pub(super) fn lanes(&self, locator: &Locator) -> Lanes {
        let lane = |_| {
            let link = Link::start(
                locator.clone(),
                Script::new(&self.script),
                self.bounds.deadline,
                self.replicas,
                self.breaker,
                self.runtime.clone(),
                self.connections > 1,
            );
            Lane::new(link, self.bounds, self.clock.clone(), Arc::clone(&self.failures))
        };
        Lanes { lanes: (0..self.connections).map(lane).collect(), next: AtomicUsize::new(0) }
    }

    /// When a call that begins now must be over.
    pub(super) fn end_of_call(&self) -> Instant {
        Instant::now() + self.bounds.total
    }

    pub(super) const fn deadline(&self) -> Duration {
        self.bounds.deadline
    }
}

impl Lanes {
    /// The connection for a call.
    pub(super) fn pick(&self) -> &Arc<Lane> {
        let lanes = &self.lanes;
        if let [lane] = &**lanes {
            return lane;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed) % lanes.len();
        // In turn, but rather one that is connected and answers.
        let (before, from) = lanes.split_at(next);
        let from_next = || from.iter().chain(before).filter(|lane| lane.link().is_up());
        let usual = from_next().find(|lane| !lane.link().is_suspect());
        usual.or_else(|| from_next().next()).unwrap_or(&lanes[next])
    }

    pub(super) fn all(&self) -> &[Arc<Lane>] {
        &self.lanes
    }

    /// Whether a call would be sent now.
    pub(super) fn is_up(&self) -> bool {
        self.lanes
            .iter()
            .any(|lane| lane.link().is_up() && lane.link().breaker_state() == BreakerState::Closed)
    }

    pub(super) fn health(&self) -> Health {
        let health = self.lanes.iter().map(|lane| lane.health()).reduce(Health::and).unwrap_or_default();
        Health { nodes: 1, nodes_up: usize::from(self.is_up()), ..health }
    }
}
