//! Where policies come from. Each source watches its documents and puts what it
//! reads into [`Policies`](super::Policies), which refuses what is wrong.

#[cfg(feature = "watch")]
pub mod file;
#[cfg(feature = "mongodb")]
pub mod mongodb;
