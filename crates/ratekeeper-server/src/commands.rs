//! One module per command.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod look;
mod opened;
pub(crate) mod operate;
pub(crate) mod policy;
pub(crate) mod serve;
pub(crate) mod token;
pub(crate) mod version;
