//! A layer for any tower service: hyper, axum, tonic.
//!
//! - A policy that does not look into bodies on a store that needs no I/O is decided
//!   right in `call`: no task, no boxed future.
//! - Bodies are read only if a rule that could apply to the request looks into
//!   them, only if they are JSON, and never further than [`Gate`] allows; the service
//!   gets them whole ([`RequestBody`]).
//! - Responses stream as they always did ([`ResponseBody`]). What a request holds
//!   (places in quotas for concurrency) is given back when its response body has been sent
//!   or dropped: on a panic and when the client hangs up as well.
//! - Layers may be nested. All add to one tally; the outermost one writes the fields,
//!   except on redirections ([`Told::each_field`](crate::Told::each_field)).
//! - gRPC callers get a status, `RESOURCE_EXHAUSTED` or `UNAVAILABLE`, with the same fields.

mod bodies;
mod body;
mod facts;
mod future;
mod layer;
mod policies;
mod response;

use http::request::Parts;
use ratekeeper::{InvalidInput, Limiter};

use crate::gate::Gate;

pub use crate::limits::Limited;
pub use crate::response::ResponseBody;
#[cfg(feature = "axum")]
pub use bodies::Axum;
pub use bodies::{RequestBodies, ResponseBodies, Wrapped};
pub use body::RequestBody;
pub use facts::{Peer, RequestRef, Route};
pub use future::ResponseFuture;
pub use layer::{RateLimit, RateLimitLayer};
#[cfg(feature = "axum")]
pub(crate) use response::{Dialect, denied, insert, internal_error, no_identity};

/// Puts rules in code in front of any service: their closures look at the [`Parts`] of requests.
#[must_use]
pub fn limit_by(limiter: Limiter<Parts>) -> RateLimitLayer {
    RateLimitLayer::new(Gate::of_limiter(limiter))
}

crate::limits::one_line!(Wrapped);
