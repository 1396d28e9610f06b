//! The layer in front of axum and of services made for the purpose.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod basics;
mod bodies;
mod grpc;
mod handlers;
mod hostile;
mod nested;
mod outages;
mod ready;
mod services;
mod sockets;
mod spans;
mod startup;
mod support;

use support::{Remote, Traces, field, fields, gate, gate_on, get, store, text};
