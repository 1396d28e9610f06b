//! For axum: what handlers can ask, and how denials become responses.
//!
//! The layer itself is [`rate_limit`], on a router or on one of its routes. It finds the matched
//! route by itself, and the peer's address if the service was made with
//! `into_make_service_with_connect_info`.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use ratekeeper_web::axum::per_ip;
//! use std::net::SocketAddr;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let app = Router::new().route("/", get(|| async { "ok" })).layer(per_ip("10/s burst 20")?);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Limits of a policy are a [`Gate`] behind [`rate_limit`].

use std::convert::Infallible;
use std::sync::Arc;

use ::axum::extract::FromRequestParts;
use ::axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::request::Parts;
use ratekeeper::policy::Body;
use ratekeeper::{InvalidInput, Limiter};

pub use crate::admission::Admission;
use crate::common;
use crate::gate::Gate;
use crate::handler::{Applying, Why, admission_of};
pub use crate::handler::{Limits, Refused};
pub use crate::limits::Limited;
use crate::told::Told;
use crate::tower::{Dialect, RateLimitLayer, RequestRef, denied, insert, internal_error, no_identity};

/// Puts the limits of a gate in front of a router or a route: a
/// [`RateLimitLayer`] that hands bodies on as they are.
#[must_use]
pub fn rate_limit(gate: impl Into<Arc<Gate>>) -> RateLimitLayer<crate::tower::Axum> {
    RateLimitLayer::with_bodies(gate)
}

/// Puts rules in code in front of a router or a route: their closures look at the [`Parts`] of requests.
///
/// ```
/// use axum::http::request::Parts;
/// use axum::{Router, routing::get};
/// use ratekeeper::{Limiter, MemoryStore, Rule};
/// use ratekeeper_web::axum::limit_by;
///
/// fn key(request: &Parts) -> Option<&str> {
///     request.headers.get("x-api-key")?.to_str().ok()
/// }
///
/// # fn app() -> Result<Router, Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(MemoryStore::new())
///     .rule(Rule::new("per-key", |request: &Parts| key(request).map(Into::into)).quotas("{rps=20, rpm=1000}"))
///     .rule(Rule::global("everything").quotas("10000/s"))
///     .build()?;
/// let app = Router::new().route("/", get(|| async { "ok" })).layer(limit_by(limiter));
/// # Ok(app)
/// # }
/// ```
///
/// For options, take [`rate_limit`] and [`Gate::of_limiter`].
#[must_use]
pub fn limit_by(limiter: Limiter<Parts>) -> RateLimitLayer<crate::tower::Axum> {
    rate_limit(Gate::of_limiter(limiter))
}

crate::limits::one_line!(crate::tower::Axum);

/// What the innermost layer around the handler has charged for the request.
///
/// ```
/// use ratekeeper_web::axum::{Admission, Refused};
///
/// async fn search(admission: Admission) -> Result<&'static str, Refused> {
///     // The layer has charged one. Four results cost four more ...
///     admission.charge(4).await?;
///     // ... of which two were found in a cache.
///     admission.refund(2).await?;
///     Ok("found")
/// }
/// ```
impl<S: Sync> FromRequestParts<S> for Admission {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let parts = &*parts;
        let facts = || RequestRef::new(parts).body(Body::Absent);
        admission_of(parts.extensions.get::<Told>(), |gate| gate.demand(&facts(), Some(parts), 1))
    }
}

impl<S: Sync> FromRequestParts<S> for Limits {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<Told>().cloned().unwrap_or_default()))
    }
}

/// Applies limits from within a handler: a second counter on the same endpoint, a cost that
/// is known only when the body has been read.
///
/// Behind a [`RateLimitLayer`], everything is told in the fields
/// of one response. Without one, return it beside the response, and it tells by itself.
///
/// ```
/// use axum::Json;
/// use ratekeeper_web::Gate;
/// use ratekeeper_web::axum::{Apply, Refused};
/// use std::sync::Arc;
///
/// struct Limited { elements: Gate }
///
/// async fn matrix(
///     limits: axum::extract::State<Arc<Limited>>,
///     apply: Apply,
///     Json(points): Json<Vec<u32>>,
/// ) -> Result<String, Refused> {
///     apply.cost(&limits.elements, points.len() as u64).await?;
///     Ok("computed".into())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Apply {
    parts: Parts,
    applying: Applying,
}

impl<S: Sync> FromRequestParts<S> for Apply {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let applying = Applying::new(parts.extensions.get::<Told>().cloned());
        Ok(Self { parts: parts.clone(), applying })
    }
}

impl Apply {
    /// Applies a limit: one unit. What the admission holds (a place in a quota for
    /// concurrency) is given back when it is dropped, so keep it as long as the work takes.
    ///
    /// # Errors
    /// The denial, ready to be returned from a handler.
    pub async fn limit(&self, gate: &Gate) -> Result<Admission, Refused> {
        self.cost(gate, 1).await
    }

    /// Applies a limit: so many units, for rules that do not say themselves what a request
    /// costs. More than 10^9 count as 10^9.
    ///
    /// # Errors
    /// As [`Apply::limit`].
    pub async fn cost(&self, gate: &Gate, units: u64) -> Result<Admission, Refused> {
        let facts = || RequestRef::new(&self.parts).body(Body::Absent);
        let entry = gate.prepare(&facts(), Some(&self.parts), units);
        self.applying.limit(gate, entry, facts).await
    }

    /// What the limits said so far.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits(self.applying.told.clone())
    }
}

/// Puts the fields about limits into the response, unless a layer does.
impl IntoResponseParts for Apply {
    type Error = Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Infallible> {
        // What it goes with is a success or an error of the handler's, as far as anybody can see here.
        let (status, headers) = (http::StatusCode::OK.as_u16(), response.headers_mut());
        self.applying.each_field(status, |name, value| insert(headers, name, value));
        Ok(response)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body_of = ::axum::body::Body::from;
        let mut response = match &self.why {
            Why::Denied(decision) => {
                denied(decision, &self.options, self.body.as_deref().cloned(), Dialect::Http, body_of)
            }
            Why::NoIdentity(what) => no_identity(*what, Dialect::Http, body_of),
            Why::Failed(error) => internal_error(common::failed(error).into(), body_of),
        };
        let (status, headers) = (response.status().as_u16(), response.headers_mut());
        self.each_field(status, |name, value| insert(headers, name, value));
        response
    }
}
