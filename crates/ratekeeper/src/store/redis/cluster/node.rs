//! The nodes of a cluster, and which of them has which slot.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::lanes::{LaneMaker, Lanes};
use super::super::locate::{Locator, Member};
use super::super::redirect::Place;
use super::super::route::Part;
use super::super::tag::SLOTS;
use super::super::wire::Address;
use super::survey::Survey;

/// How long a node without slots is kept after a call was last sent there: while a slot moves to it, it has none.
const KEPT: Duration = Duration::from_secs(10);
/// Stands for the number of no node.
const NONE: u16 = u16::MAX;

/// A node, and the connections to it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) lanes: Lanes,
    /// Whether the last survey found slots on it.
    has_slots: AtomicBool,
    /// When it was last found, or a call was last sent there.
    wanted: Mutex<Instant>,
}

impl Node {
    /// `is_heir` says that others turn to it as well, now.
    pub(super) fn new(
        place: Place,
        address: Address,
        maker: &LaneMaker,
        changed: &Arc<Notify>,
        is_heir: bool,
    ) -> Self {
        let is_known = AtomicBool::new(false);
        let member = Member { address, changed: Arc::clone(changed), is_known, is_heir };
        let lanes = maker.lanes(&Locator::Member(Arc::new(member)));
        Self { place, lanes, has_slots: AtomicBool::new(false), wanted: Mutex::new(Instant::now()) }
    }

    pub(super) fn has_slots(&self) -> bool {
        self.has_slots.load(Ordering::Relaxed)
    }

    fn want(&self) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_wanted(&self) -> bool {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < KEPT
    }
}

/// Which node has which slot.
#[derive(Debug)]
pub(super) struct Topology {
    pub(super) nodes: Vec<Arc<Node>>,
    /// Numbers of nodes. What a node says of a slot is noted in place.
    slots: Box<[AtomicU16]>,
}

impl Default for Topology {
    fn default() -> Self {
        Self { nodes: Vec::new(), slots: (0..SLOTS).map(|_| AtomicU16::new(NONE)).collect() }
    }
}

impl Topology {
    /// By what nodes have said. Those that are known keep their connections; those that have left do, too, while calls
    /// may be under way to them and there are no more than `nodes_max` in all.
    pub(super) fn of(
        survey: &Survey,
        before: &Self,
        nodes_max: usize,
        connect: impl Fn(&Place) -> Arc<Node>,
    ) -> Self {
        let mut after = Self::default();
        for range in &survey.ranges {
            let known = after.nodes.iter().position(|node| node.place == range.place);
            let number = known.unwrap_or_else(|| {
                let node = before.at(&range.place).unwrap_or_else(|| connect(&range.place));
                node.has_slots.store(true, Ordering::Relaxed);
                after.nodes.push(node);
                after.nodes.len() - 1
            });
            let slots = after.slots.get(usize::from(range.first)..=usize::from(range.last));
            for slot in slots.into_iter().flatten() {
                slot.store(number as u16, Ordering::Relaxed);
            }
        }
        for node in &after.nodes {
            node.want();
        }
        for node in &before.nodes {
            if after.at(&node.place).is_none() {
                node.has_slots.store(false, Ordering::Relaxed);
                if node.is_wanted() && after.nodes.len() < nodes_max {
                    after.nodes.push(Arc::clone(node));
                }
            }
        }
        after
    }

    /// The same with one node more.
    pub(super) fn with(&self, node: Arc<Node>) -> Self {
        let slots = self.slots.iter().map(|slot| AtomicU16::new(slot.load(Ordering::Relaxed)));
        let mut nodes = self.nodes.clone();
        nodes.push(node);
        Self { nodes, slots: slots.collect() }
    }

    /// The node that has a slot.
    pub(super) fn node(&self, part: Part) -> Option<&Arc<Node>> {
        let slot = self.slots.get(usize::from(part.0))?;
        self.nodes.get(usize::from(slot.load(Ordering::Relaxed)))
    }

    /// The node at a place.
    pub(super) fn at(&self, place: &Place) -> Option<Arc<Node>> {
        let node = self.nodes.iter().find(|node| node.place == *place)?;
        Some(Arc::clone(node))
    }

    /// Notes that the node at a place has a slot.
    pub(super) fn learn(&self, part: Part, place: &Place) {
        let number = self.nodes.iter().position(|node| node.place == *place);
        if let Some((slot, number)) = self.slots.get(usize::from(part.0)).zip(number) {
            self.nodes[number].want();
            slot.store(number as u16, Ordering::Relaxed);
        }
    }
}
