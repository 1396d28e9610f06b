//! Where the node is that a connection goes to: asked anew for every attempt to connect.
//!
//! A link keeps one connection to one node and does not care how its place is known. So a new topology is a
//! variant here, and not a case in the link.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::sentinel::Sentinels;
use super::wire::Address;
use crate::store::StoreErrorKind;

/// How the place of a node is found.
#[derive(Clone, Debug)]
pub(super) enum Locator {
    /// It is where the URL says.
    Fixed(Arc<Address>),
    /// It is where sentinels say, and has to be a primary.
    Sentinels(Arc<Sentinels>),
    /// It is a node of a cluster, and stays where it is; keys may leave it.
    Member(Arc<Member>),
}

/// A node of a cluster.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) address: Address,
    /// Asks for the topology: a node that has to be connected to again may have lost its keys to another.
    pub(super) changed: Arc<Notify>,
    /// Whether it was connected to before.
    pub(super) is_known: AtomicBool,
    /// Whether it has just taken the place of another one, and all instances turn to it.
    pub(super) is_heir: bool,
}

/// Why there is no place to connect to.
#[derive(Clone, Debug)]
pub(super) struct NoPlace {
    pub(super) kind: StoreErrorKind,
    pub(super) why: String,
}

impl Locator {
    /// What logs and errors call the node, without secrets. It stays the same wherever the node is.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Fixed(address) => address.server(),
            Self::Sentinels(sentinels) => sentinels.name().to_owned(),
            Self::Member(member) => member.address.server(),
        }
    }

    /// Where the node is now. Takes a bounded time, whoever is silent.
    pub(super) async fn locate(&self) -> Result<Address, NoPlace> {
        match self {
            Self::Fixed(address) => Ok((**address).clone()),
            Self::Sentinels(sentinels) => sentinels.primary().await,
            Self::Member(member) => {
                if member.is_known.swap(true, Ordering::Relaxed) {
                    member.changed.notify_one();
                }
                Ok(member.address.clone())
            }
        }
    }

    /// Whether a failover cuts the connections of all instances at once.
    pub(super) const fn can_move(&self) -> bool {
        matches!(self, Self::Sentinels(_) | Self::Member(_))
    }

    /// Whether all instances connect to the node for the first time now.
    pub(super) fn is_in_storm(&self) -> bool {
        matches!(self, Self::Member(member) if member.is_heir)
    }

    /// Whether the node may be another one next time: then it has to say that it is a primary, and errors name it. A
    /// replica in a cluster sends callers away by itself.
    pub(super) const fn is_primary_alone(&self) -> bool {
        matches!(self, Self::Sentinels(_))
    }

    /// Whether the node has to be one of a cluster.
    pub(super) const fn is_of_cluster(&self) -> bool {
        matches!(self, Self::Member(_))
    }

    pub(super) const fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match self {
            Self::Fixed(_) | Self::Member(_) => None,
            Self::Sentinels(sentinels) => Some(sentinels),
        }
    }
}
