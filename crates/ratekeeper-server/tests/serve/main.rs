//! The server over real sockets, in this process and as the binary.

mod calls;
mod client;
mod hostile;
mod openapi;
mod rig;
mod vectors;
