//! What HTTP clients are told about rate limits, for any framework.
//!
//! This crate turns the decisions of `ratekeeper` into header fields and bodies:
//! names are `&'static str`, values are text, and an adapter makes of them what
//! its framework wants. It sends nothing itself and asks no store.
//!
//! # Layout
//! - [`Tally`]: the policies that a request met, and the fields that tell of them:
//!   `RateLimit-Policy`, `RateLimit` and legacy ones;
//! - [`Denial`]: status, `Retry-After` and body of a denied request, for gRPC, too;
//! - [`HttpOptions`]: every switch;
//! - [`field`]: the names.
//!
//! # Example
//! ```
//! use ratekeeper_core::{Charge, Check, Key, Model, Name, Quota, Timestamp};
//! use ratekeeper_http::{Denial, HttpOptions, Tally};
//!
//! let mut model = Model::default();
//! let quota: Quota = "1/min".parse()?;
//! let charge = Charge::new(Key::new(Name::new("per-user")?, "user:42")?, &quota);
//! let now = Timestamp::from_secs(1_000);
//! model.check(&Check::one(&charge), now)?;
//! let denied = model.check(&Check::one(&charge), now)?;
//!
//! let options = HttpOptions::default();
//! let fields: Vec<_> = Tally::of(&denied).fields(&options).collect();
//! assert_eq!(fields[0], ("ratelimit-policy", r#""per-user";q=1;w=60"#.into()));
//! assert_eq!(fields[1], ("ratelimit", r#""per-user";r=0;t=60"#.into()));
//!
//! let denial = Denial::of(&denied, &options).expect("it was denied");
//! assert_eq!((denial.status(), denial.retry_after()), (429, Some(60)));
//! assert!(denial.body().contains(r#""violated-policies":["per-user"]"#));
//! # Ok::<(), ratekeeper_core::InvalidInput>(())
//! ```

#![forbid(unsafe_code)]

mod denial;
pub mod field;
mod member;
mod options;
mod tally;
mod text;

pub use denial::{Denial, SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS};
pub use options::{Body, Draft, HttpOptions, Legacy, Reset, SPREAD_PERCENT_MAX, SPREAD_SECS_MAX};
pub use tally::{FIELDS_MAX, Field, MEMBERS_MAX, PARTITION_BYTES_MAX, Tally};
