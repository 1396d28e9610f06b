//! For actix-web 4: a middleware, and what handlers can ask.
//!
//! - [`RateLimit`] goes around an app, a scope, a resource or a route. A policy that does
//!   not look into bodies on a store that needs no I/O is decided right in `call`: no boxed future.
//! - Bodies are read only if a rule that could apply to the request looks into
//!   them, only if they are JSON, and never further than [`Gate`](crate::Gate) allows; the service
//!   gets them whole.
//! - What a request holds (places in quotas for concurrency) is given back when its response
//!   body has been sent or dropped ([`ResponseBody`]): on a panic and when the client hangs
//!   up as well, as far as the server notices (see `docs/web.md`).
//! - Middleware may be nested. All add to one tally; the outermost one writes the fields.
//! - An error that the service behind hands up goes up as it is. Handlers do not: actix
//!   makes responses of theirs before anybody sees them.
//!
//! ```no_run
//! use actix_web::{App, HttpServer, web};
//! use ratekeeper::MemoryStore;
//! use ratekeeper_web::actix::RateLimit;
//! use ratekeeper_web::ready::PathLimit;
//! use std::{sync::Arc, time::Duration};
//!
//! #[actix_web::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = Arc::new(MemoryStore::new());
//!     // Outside of the closure, which runs once for every worker: all share one gate.
//!     let limit = RateLimit::new(PathLimit::new(100).expiry(Duration::from_secs(60)).gate(store)?);
//!     let server = HttpServer::new(move || {
//!         App::new().wrap(limit.clone()).route("/hook", web::post().to(|| async { "ok" }))
//!     });
//!     Ok(server.bind("127.0.0.1:8080")?.run().await?)
//! }
//! ```

mod body;
mod extract;
mod facts;
mod future;
mod middleware;
mod response;

pub use crate::handler::{Limits, Refused};
pub use crate::response::ResponseBody;
pub use extract::Apply;
pub use facts::RequestRef;
pub use future::ResponseFuture;
pub use middleware::{RateLimit, RateLimitService};
