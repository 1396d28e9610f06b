//! For actix-web 4: a middleware, and what handlers can ask.
//!
//! - [`RateLimit`] goes around an app, a scope, a resource or a route. A policy that does
//!   not look into bodies on a store that needs no I/O is decided right in `call`: no boxed future.
//! - Bodies are read only if a rule that could apply to the request looks into
//!   them, only if they are JSON, and never further than [`Gate`] allows; the service
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
//! use ratekeeper_web::actix::per_ip;
//!
//! #[actix_web::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Outside of the closure, which runs once for every worker: all share its counters.
//!     let limit = per_ip("10/s burst 20")?;
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

use actix_web::HttpRequest;
use ratekeeper::{InvalidInput, Limiter};

pub use crate::admission::Admission;
use crate::gate::Gate;
pub use crate::handler::{Limits, Refused};
pub use crate::limits::Limited;
pub use crate::response::ResponseBody;
pub use extract::Apply;
pub use facts::RequestRef;
pub use future::ResponseFuture;
pub use middleware::{RateLimit, RateLimitService};

/// What limits in one line are a middleware of: `App::new().wrap(per_ip("10/s burst 20")?)`.
#[derive(Clone, Debug)]
pub enum Actix {}

/// Puts rules in code in front of an app: their closures look at the [`HttpRequest`].
#[must_use]
pub fn limit_by(limiter: Limiter<HttpRequest>) -> RateLimit {
    RateLimit::new(Gate::of_limiter(limiter))
}

crate::limits::one_line!(Actix);
