//! The server over real sockets, in this process and as the binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod audited;
mod batches;
mod binary;
mod bounds;
mod calls;
mod client;
mod conditions;
mod crowded;
mod dashboard;
mod data;
mod docs;
mod embedded;
mod ending;
mod explained;
mod expressions;
mod forward;
mod fuzz;
mod gateways;
mod health;
mod hostile;
mod leaving;
mod mongo;
mod names;
mod newcomers;
mod notices;
mod observed;
mod openapi;
mod operating;
mod operators;
mod otlp;
mod paths;
mod refunds;
mod renewed;
mod resp;
mod resp_clients;
mod resp_hostile;
mod rig;
mod schemas;
mod series;
mod started;
mod stores;
mod unread;
mod vectors;
