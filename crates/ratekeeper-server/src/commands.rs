//! One module per command.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
mod opened;
pub(crate) mod operate;
pub(crate) mod policy;
pub(crate) mod serve;
pub(crate) mod version;
