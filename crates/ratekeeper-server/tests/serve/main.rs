//! The server over real sockets, in this process and as the binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batches;
mod binary;
mod calls;
mod client;
mod docs;
mod ending;
mod fuzz;
mod health;
mod hostile;
mod names;
mod observed;
mod openapi;
mod otlp;
mod refunds;
mod rig;
mod started;
mod vectors;
