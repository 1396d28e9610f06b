//! Rate limits for web services in Rust: one line for axum, tower, tonic and actix-web, or a whole policy at the door.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, routing::get};
//! use ratekeeper_web::axum::{global, per_ip};
//! use std::net::SocketAddr;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two limits, one decision: a request that either denies is charged by none.
//! let limits = per_ip("10/s burst 20")?.and(global("1000/s")?)?;
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(limits);
//! // axum::serve(listener, service).await?
//! let service = app.into_make_service_with_connect_info::<SocketAddr>();
//! # drop(service);
//! # Ok(())
//! # }
//! # main().unwrap();
//! # }
//! ```
//!
//! Every response carries the standard's `RateLimit-Policy` and `RateLimit`; a denial is 429 with `Retry-After` and a problem
//! document, or a gRPC status.
//!
//! # Features
//! None is on unless you ask for it.
//!
//! | feature | what it adds |
//! |---|---|
//! | `axum` | limits as a layer, and extractors: `axum::per_ip`, `axum::Admission`; with `tower` |
//! | `tower` | a layer for any tower service, such as hyper's |
//! | `tonic` | the client's address as tonic's server has it; with `tower` |
//! | `actix` | a middleware and extractors for actix-web 4 |
//! | `client` | limits on requests that go out: `client::OutgoingLimit`, a layer for clients of tower |
//! | `reqwest` | the same as a middleware of reqwest-middleware; with `client` |
//! | `policy` | policies from documents, with conditions and costs in CEL: [`Gate`]`::from_toml`. Limits in code need none of it |
//! | `utoipa` | limits in the OpenAPI documents of utoipa |
//! | `opentelemetry` | requests that a rule which only watches would have denied are marked on their span |
//!
//! Counting across processes takes a store of `ratekeeper`, whose feature `redis` has one: `per_ip("10/s")?.store(redis)?`.
//!
//! # Layout
//! ```text
//! request -> facts -> Gate (policy or rules in code, store) -> decision -> fields, or a denial
//! ```
//!
//! - [`Gate`]: the limits of a service and everything a middleware has to know
//!   beside them; framework-neutral;
//! - [`limits`]: limits in one line, as a layer of each framework;
//! - [`ready`]: limits that most services want, ready-made: per project, per
//!   path, by a key of one's own;
//! - `tower`, `axum`, `tonic`, `actix`: what each framework takes;
//! - `client`: requests that go out;
//! - `openapi`: limits in OpenAPI documents.
//!
//! How to use it all is in `docs/web.md`; what clients are told is `ratekeeper-http`'s, see `docs/http.md`. Coming from
//! `tower_governor` or `actix-governor`: `docs/migrate`.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(feature = "tower", feature = "actix")),
    allow(dead_code, reason = "the layers of frameworks use it")
)]

#[cfg(feature = "actix")]
pub mod actix;
#[cfg(any(feature = "actix", feature = "axum"))]
mod admission;
#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "client")]
pub mod client;
mod common;
mod counts;
mod denial;
mod gate;
#[cfg(any(feature = "actix", feature = "axum"))]
mod handler;
pub mod limits;
mod observe;
#[cfg(feature = "utoipa")]
pub mod openapi;
pub mod ready;
#[cfg(any(feature = "actix", feature = "tower"))]
mod response;
mod rules;
mod told;
#[cfg(feature = "tonic")]
pub mod tonic;
#[cfg(feature = "tower")]
pub mod tower;

pub use counts::Counts;
pub use denial::DenialBody;
pub use gate::{
    Answer, BODY_BYTES_MAX_DEFAULT, BODY_WAIT_DEFAULT, Entry, Gate, NoIdentity, OnMissingAddress, Waiting,
};
pub use limits::Limited;
pub use ratekeeper::policy::Identity;
pub use ratekeeper_http::{Body, Denial, Draft, Field, HttpOptions, Legacy, Reset, Tally};
pub use told::Told;

/// The examples of the documentation compile, and those of the README.
#[cfg(all(doctest, feature = "actix", feature = "axum", feature = "utoipa"))]
mod docs {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/web.md")]
    struct Web;
    #[doc = include_str!("../../../docs/web-actix.md")]
    struct Actix;
    #[cfg(feature = "reqwest")]
    #[doc = include_str!("../../../docs/web-client.md")]
    struct Client;
    #[doc = include_str!("../../../docs/web-openapi.md")]
    struct OpenApi;
    #[doc = include_str!("../../../docs/migrate/actix-governor.md")]
    struct ActixGovernor;
    #[doc = include_str!("../../../docs/migrate/governor.md")]
    struct Governor;
    #[doc = include_str!("../../../docs/migrate/limitador.md")]
    struct Limitador;
    #[doc = include_str!("../../../docs/migrate/redis-cell.md")]
    struct RedisCell;
    #[doc = include_str!("../../../docs/migrate/tower_governor.md")]
    struct TowerGovernor;
}
