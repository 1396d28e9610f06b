//! For tonic: limits in front of gRPC services, with the client's address as tonic's server has it.
//!
//! ```no_run
//! use ratekeeper_web::tonic::{global, per_ip};
//! use tonic::transport::Server;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let (_reporter, health) = tonic_health::server::health_reporter();
//! let limits = per_ip("10/s burst 20")?.and(global("1000/s")?)?;   // several limits, one decision
//! Server::builder().layer(limits).add_service(health).serve("127.0.0.1:50051".parse()?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A denied call gets the status `RESOURCE_EXHAUSTED`, with the same fields as over HTTP in its metadata. Behind TLS, or on
//! a server that is not tonic's own, put [`Peer`] into the extensions of requests.

pub use crate::tower::{
    Limited, Peer, RateLimitLayer, Route, Wrapped, global, limit_by, per_header, per_identity, per_ip,
};
