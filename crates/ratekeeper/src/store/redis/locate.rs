//! Where the node is that a connection goes to: asked anew for every attempt to connect.
//!
//! A link keeps one connection to one node and does not care how its place is known. So a new topology is a
//! variant here, and not a case in the link.

use std::sync::Arc;

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
        }
    }

    /// Where the node is now. Takes a bounded time, whoever is silent.
    pub(super) async fn locate(&self) -> Result<Address, NoPlace> {
        match self {
            Self::Fixed(address) => Ok((**address).clone()),
            Self::Sentinels(sentinels) => sentinels.primary().await,
        }
    }

    /// Whether the node may be another one next time: then it has to say that it is a primary, and errors name it.
    pub(super) const fn can_move(&self) -> bool {
        matches!(self, Self::Sentinels(_))
    }

    pub(super) const fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match self {
            Self::Fixed(_) => None,
            Self::Sentinels(sentinels) => Some(sentinels),
        }
    }
}
