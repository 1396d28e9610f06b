//! Ratekeeper measured against its peers.
//!
//! Every comparison is made within one run: candidates take turns round by
//! round, so that a machine that slows down slows all of them. Numbers from
//! different runs are not to be compared.
//!
//! - [`scenario`]: which keys are asked for, and whether limits let them pass;
//! - [`candidate`]: everything that is measured, built the same way;
//! - [`measure`]: the loop around a check, and the rounds;
//! - [`rss`], [`accuracy`], [`allocations`]: bytes per key, exactness, allocations;
//! - [`targets`] and [`report`]: what we promised, and what came out;
//! - [`command`]: the command line that comparisons share;
//! - `cluster`, behind the feature of that name: three primaries against one server;
//! - `http`, behind the feature of that name: a web service with and without limits;
//! - `policy`, behind the feature of that name: which rules apply to a request;
//! - `redis`, behind the feature of that name: the same on real servers;
//! - `server`, behind the feature of that name: our server against another;
//! - `machine`, for those on servers: cores, CPU time and memory of processes.

use std::error::Error;

pub mod accuracy;
pub mod allocations;
pub mod candidate;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod command;
pub mod conditions;
pub mod floor;
#[cfg(feature = "http")]
pub mod http;
pub mod key;
pub mod limiter;
#[cfg(any(feature = "cluster", feature = "redis", feature = "server"))]
pub mod machine;
pub mod measure;
pub mod ours;
pub mod peers;
#[cfg(feature = "policy")]
pub mod policy;
#[cfg(feature = "redis")]
pub mod redis;
pub mod report;
pub mod rss;
pub mod scenario;
pub mod series;
#[cfg(feature = "server")]
pub mod server;
pub mod targets;

/// What can go wrong while a benchmark is set up.
pub type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;
