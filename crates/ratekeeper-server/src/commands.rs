//! One module per command.

pub(crate) mod demo;
pub(crate) mod policy;
pub(crate) mod serve;
