//! Rate limits for web services: what a policy says, at the door of a service.
//!
//! ```text
//! request -> facts -> Gate (policy, store) -> decision -> fields, or a denial
//! ```
//!
//! # Layout
//! - [`Gate`]: the limits of a service and everything a middleware has to know
//!   beside them; framework-neutral;
//! - [`limits`]: limits in one line, as a layer of each framework;
//! - [`ready`]: limits that most services want, ready-made: per project, per
//!   path, by a key of one's own;
//! - `tower` (feature `tower`): a layer for any tower service; with the feature
//!   `axum`, routes, extractors and rejections;
//! - `actix` (feature `actix`): a middleware and extractors for actix-web;
//! - `openapi` (feature `utoipa`): limits in OpenAPI documents.
//!
//! With the feature `opentelemetry`, requests that a rule which only watches would have denied
//! are marked on their span. How to use it all is in `docs/web.md`; what clients are told is
//! `ratekeeper-http`'s, see `docs/http.md`.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(feature = "tower", feature = "actix")),
    allow(dead_code, reason = "the layers of frameworks use it")
)]

#[cfg(feature = "actix")]
pub mod actix;
#[cfg(feature = "axum")]
pub mod axum;
mod common;
mod counts;
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
mod told;
#[cfg(feature = "tower")]
pub mod tower;

pub use counts::Counts;
pub use gate::{
    Answer, BODY_BYTES_MAX_DEFAULT, BODY_WAIT_DEFAULT, Entry, Gate, NoIdentity, OnMissingAddress, Waiting,
};
pub use limits::Limited;
pub use ratekeeper::policy::Identity;
pub use ratekeeper_http::{Body, Denial, Draft, Field, HttpOptions, Legacy, Reset, Tally};
pub use told::Told;

/// The examples of the documentation compile.
#[cfg(all(doctest, feature = "actix", feature = "axum"))]
#[doc = include_str!("../../../docs/web.md")]
struct Docs;
