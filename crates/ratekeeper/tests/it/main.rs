//! The library from outside: one binary for all of its integration tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod away;
mod bounds;
mod concurrency;
mod demand;
mod engine;
mod eviction;
mod full;
mod limiter;
mod memory;
#[cfg(feature = "policy")]
mod metrics;
mod outages;
mod penalties;
mod testing;
#[path = "../policy/traces.rs"]
#[allow(dead_code, reason = "the tests of policies look at spans, too")]
mod traces;
mod urls;
mod waiting;
mod watching;
