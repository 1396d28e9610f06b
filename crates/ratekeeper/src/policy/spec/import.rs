//! Limits that were written for other limiters, as policies.
//!
//! The YAML of envoyproxy/ratelimit is a policy as it is: whoever reads policies reads it. That of Limitador says too
//! little for that (it has no name for a limit, and one file for all services); it is converted, once, into ours.

mod convert;
mod limitador;
mod names;
mod pattern;
mod ratelimit;
mod write;

pub use self::convert::{Converted, Foreign, convert};
pub(in crate::policy) use self::ratelimit::Sheet;
pub(super) use self::ratelimit::is_ratelimit;
