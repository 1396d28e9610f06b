//! The server over real sockets, in this process and as the binary.

mod binary;
mod calls;
mod client;
mod health;
mod hostile;
mod openapi;
mod otlp;
mod rig;
mod vectors;
