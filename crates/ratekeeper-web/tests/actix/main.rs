//! The middleware in front of actix-web, asked in the same process and over sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod basics;
mod bodies;
mod example;
mod handlers;
mod hostile;
mod limits;
mod nested;
mod outages;
mod paths;
mod ready;
#[path = "../common/remote.rs"]
mod remote;
mod sockets;
mod spans;
mod startup;
mod support;
#[path = "../common/traces.rs"]
mod traces;
