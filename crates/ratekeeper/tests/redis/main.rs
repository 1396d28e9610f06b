//! The Redis store on real servers: one binary for all of its tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod control;
mod engine;
mod outages;
mod script;
