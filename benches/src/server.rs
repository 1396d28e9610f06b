//! `ratekeeper serve` against throttlecrab-server, over HTTP.
//!
//! Servers are processes on one core; those who ask are on the other, in this process.
//!
//! - [`contestant`]: the servers; [`wire`]: HTTP as far as it is needed to ask them;
//! - [`load`]: who asks, in a closed or an open loop; [`rounds`]: what is measured, and the turns;
//! - [`report`]: what we promised, and what came out.

pub mod contestant;
pub mod load;
pub mod report;
pub mod rounds;
pub mod wire;

use crate::Result;
use crate::conditions::Conditions;
use crate::machine::Pinning;
use crate::server::rounds::Plan;

/// Measures everything and tells about it in Markdown.
///
/// # Errors
/// If a server is not there or cannot be set up.
pub fn run(plan: Plan, command: &str) -> Result<String> {
    let conditions = Conditions::begin();
    let pinning = Pinning::of_this_process();
    let results = rounds::run(plan, pinning)?;
    let conditions = report::conditions(&conditions, command, plan, pinning, &results.redis)?;
    Ok(report::markdown(&conditions, plan, &results))
}
