//! The Redis store on real servers: one binary for all of its tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod connections;
mod control;
#[cfg(feature = "policy")]
mod demand;
mod engine;
mod exactness;
mod ids;
mod layout;
mod lifetimes;
mod outages;
mod overrides;
mod penalties;
mod permissions;
mod poison;
mod poisoned_numbers;
#[cfg(feature = "policy")]
mod policies;
mod script;
mod setup;
mod subjects;
mod versions;
