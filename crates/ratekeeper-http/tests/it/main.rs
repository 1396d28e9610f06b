//! What clients are told, read back with parsers that are not ours.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod denials;
mod docs;
mod legacy;
mod names;
mod properties;
mod support;
mod tallies;
