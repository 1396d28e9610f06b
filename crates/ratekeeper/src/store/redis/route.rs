//! Where the calls of a store go: to its one server, or to the node of a cluster that has the keys.

use std::sync::Arc;

use ::redis::{Cmd, Value};
use ratekeeper_core::Timestamp;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::encode::Item;
use super::lane::{Lane, Reply};
use super::lanes::Lanes;
use super::link::Link;
use crate::store::{Health, StoreError};

/// What one call of the script can touch: a slot of a cluster. A server by itself is one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Part(pub(super) u16);

/// Where the keys of a store are.
#[derive(Debug)]
pub(super) enum Route {
    /// On one server.
    Server(Lanes),
    /// On the nodes of a cluster.
    Cluster(Arc<Cluster>),
}

/// The way of a call to its part.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way<'r> {
    /// On this connection.
    Lane(&'r Arc<Lane>),
    /// To wherever this slot is.
    Slot(&'r Cluster, Part),
}

impl Route {
    pub(super) fn way(&self, part: Part) -> Way<'_> {
        match self {
            Self::Server(lanes) => Way::Lane(lanes.pick()),
            Self::Cluster(cluster) => Way::Slot(cluster, part),
        }
    }

    pub(super) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Self::Server(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// A connection to each server that takes charges: for what looks through all keys.
    pub(super) async fn nodes(&self) -> Result<Vec<Arc<Lane>>, StoreError> {
        match self {
            Self::Server(lanes) => Ok(vec![Arc::clone(lanes.pick())]),
            Self::Cluster(cluster) => cluster.nodes().await,
        }
    }

    /// When a call that begins now must be over.
    pub(super) fn end_of_call(&self) -> Instant {
        match self {
            Self::Server(lanes) => lanes.pick().end_of_call(),
            Self::Cluster(cluster) => cluster.end_of_call(),
        }
    }

    /// The server's time as far as we know it.
    pub(super) fn now(&self) -> Timestamp {
        match self {
            Self::Server(lanes) => lanes.pick().now(),
            Self::Cluster(cluster) => cluster.now(),
        }
    }

    pub(super) fn health(&self) -> Health {
        match self {
            Self::Server(lanes) => lanes.health(),
            Self::Cluster(cluster) => cluster.health(),
        }
    }

    /// The servers, without secrets.
    pub(super) fn servers(&self) -> Vec<String> {
        match self {
            Self::Server(lanes) => lanes.all().iter().map(|lane| lane.link().server.clone()).collect(),
            Self::Cluster(cluster) => vec![cluster.name().to_owned()],
        }
    }
}

impl Way<'_> {
    /// Why a call would fail at once, if it would; counted.
    pub(super) fn refusal(self) -> Option<StoreError> {
        match self {
            Self::Lane(lane) => lane.link().refusal().inspect(|refusal| lane.count(refusal)),
            Self::Slot(cluster, part) => cluster.refusal(part),
        }
    }

    pub(super) fn end_of_call(self) -> Instant {
        match self {
            Self::Lane(lane) => lane.end_of_call(),
            Self::Slot(cluster, _) => cluster.end_of_call(),
        }
    }

    /// Asks, within the total.
    pub(super) async fn ask(self, item: Item) -> Result<Reply, StoreError> {
        match self {
            Self::Lane(lane) => lane.ask(item).await,
            Self::Slot(cluster, part) => cluster.ask(part, item).await,
        }
    }

    /// Asks as a later step of a call, which must be over by `end`.
    pub(super) async fn ask_until(self, end: Instant, item: Item) -> Result<Reply, StoreError> {
        match self {
            Self::Lane(lane) => lane.ask_until(end, item).await,
            Self::Slot(cluster, part) => cluster.ask_until(end, part, item).await,
        }
    }

    /// Sends a command about keys of the part.
    pub(super) async fn send_until(self, end: Instant, command: Cmd) -> Result<Value, StoreError> {
        match self {
            Self::Lane(lane) => send(lane.link(), end, &command).await,
            Self::Slot(cluster, part) => cluster.send_until(end, part, command).await,
        }
    }

    /// Counts what a check failed of; a server that takes no writes may be a primary of yesterday.
    pub(super) fn note(self, error: &StoreError) {
        match self {
            Self::Lane(lane) => {
                lane.count(error);
                lane.link().doubt(error);
            }
            Self::Slot(cluster, _) => cluster.count(error),
        }
    }

    /// A server that takes no writes may be a primary of yesterday.
    pub(super) fn doubt(self, error: &StoreError) {
        if let Self::Lane(lane) = self {
            lane.link().doubt(error);
        }
    }
}

/// Sends a command on one connection.
pub(super) async fn send(link: &Arc<Link>, end: Instant, command: &Cmd) -> Result<Value, StoreError> {
    let sent = |mut connection: ::redis::aio::MultiplexedConnection| async move {
        connection.send_packed_command(command).await?.extract_error()
    };
    link.send(end, sent).await
}
