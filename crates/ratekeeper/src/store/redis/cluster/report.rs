//! What the nodes of a cluster say, for whoever looks after it.

use std::sync::Arc;

use super::super::encode::call;
use super::Cluster;
use super::survey::{newest, refusal};
use crate::store::{StoreError, StoreErrorKind};

/// What a cluster says of itself.
#[derive(Debug)]
#[non_exhaustive]
pub struct ClusterReport {
    /// Every node that the URL names, and why it does not say where the slots are, if it does not.
    pub named: Vec<(String, Result<(), StoreError>)>,
    /// The nodes that have slots, by the newest answer.
    pub nodes: Vec<ClusterNode>,
    /// How many slots are on a node.
    pub slots: usize,
    /// What keeps the cluster from deciding, and what to do about it.
    pub trouble: Option<String>,
}

/// A node that has slots.
#[derive(Debug)]
#[non_exhaustive]
pub struct ClusterNode {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How many slots it has.
    pub slots: usize,
}

impl Cluster {
    /// Asks every node that is named, which takes a bounded time.
    pub(in crate::store::redis) async fn report(&self) -> ClusterReport {
        let said = self.ask_seeds().await;
        let mut nodes: Vec<ClusterNode> = Vec::new();
        let best = newest(&said);
        for range in best.iter().flat_map(|survey| &survey.ranges) {
            let slots = usize::from(range.last - range.first) + 1;
            let same =
                |node: &&mut ClusterNode| node.host == range.place.host && node.port == range.place.port;
            match nodes.iter_mut().find(same) {
                Some(node) => node.slots += slots,
                None => {
                    nodes.push(ClusterNode { host: range.place.host.clone(), port: range.place.port, slots });
                }
            }
        }
        let trouble = match best {
            Some(survey) => survey.trouble(),
            None => Some(refusal(self.name(), &said).to_string()),
        };
        let slots = best.map_or(0, super::survey::Survey::covered);
        let named = said.into_iter().map(|(address, answer)| (address, answer.map(|_| ())));
        ClusterReport { named: named.collect(), nodes, slots, trouble }
    }

    /// Asks every node of the cluster to decide nothing; what is wrong with the cluster as a whole comes first.
    pub(in crate::store::redis) async fn ping(&self) -> Result<(), StoreError> {
        let report = self.report().await;
        for (address, answer) in &report.named {
            // Another one that is away for a while is no reason not to start.
            if let Some(error) = answer.as_ref().err().filter(|error| error.is_no_node()) {
                return Err(StoreError::new(error.kind(), format!("{address}: {error}")));
            }
        }
        if let Some(trouble) = report.trouble {
            let errors = report.named.iter().filter_map(|(_, answer)| answer.as_ref().err());
            let is_refused = errors.map(StoreError::kind).any(|kind| kind == StoreErrorKind::Permission);
            let is_refused = is_refused && report.slots == 0;
            let kind = if is_refused { StoreErrorKind::Permission } else { StoreErrorKind::Unavailable };
            return Err(StoreError::new(kind, format!("{}: {trouble}", self.name())));
        }
        for lane in self.nodes().await? {
            Arc::clone(lane.link()).run(&call(&[], None)).await?;
        }
        Ok(())
    }
}
