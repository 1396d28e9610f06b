//! A store in memory whose directory outlives it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod damage;
mod directory;
mod operators;
mod poison;
mod restarts;
mod rig;
