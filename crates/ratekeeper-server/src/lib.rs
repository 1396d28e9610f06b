//! The server behind `ratekeeper serve`, as a library: so that tests, benchmarks
//! and fuzzers start it, or parts of it, in their own process.

#![forbid(unsafe_code)]

pub mod files;
pub mod serve;
pub mod trust;
