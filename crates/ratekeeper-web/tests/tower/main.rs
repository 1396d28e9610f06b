//! The layer in front of axum and of services made for the purpose.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admissions;
mod basics;
mod bodies;
mod grpc;
mod handlers;
mod hostile;
mod http2;
mod limits;
mod nested;
mod outages;
mod paths;
mod ready;
#[path = "../common/remote.rs"]
mod remote;
mod services;
mod sockets;
mod spans;
mod startup;
mod support;
#[path = "../common/traces.rs"]
mod traces;

use remote::Remote;
use support::{field, fields, gate, gate_on, get, store, text};
use traces::Traces;
