//! The Redis store on real servers: one binary for all of its tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod audit;
mod cluster;
mod connections;
mod control;
#[cfg(feature = "policy")]
mod demand;
mod engine;
mod exactness;
mod fullest;
mod fuzzed_values;
mod ids;
mod inspect;
mod layout;
mod lifetimes;
mod lists;
mod outages;
mod overrides;
mod overrides_together;
mod penalties;
mod permissions;
mod poison;
mod poisoned_numbers;
#[cfg(feature = "policy")]
mod policies;
mod replicas;
mod script;
mod sentinel;
mod setup;
mod spread;
mod subjects;
mod versions;
mod work;
