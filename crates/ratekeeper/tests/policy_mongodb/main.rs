//! Policies as documents in MongoDB, on a real server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod changes;
mod copies;
mod hostile;
mod outages;
mod settings;
mod setup;
