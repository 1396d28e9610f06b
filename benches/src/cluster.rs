//! Our store on a cluster of three primaries against the same on one server.
//!
//! All servers share one core and all callers another, where the machine allows it: so both have the same time on a
//! processor, and what is left over is the cost of being spread.
//!
//! - [`shape`]: what a check consists of, and how many slots it touches;
//! - [`stand`]: the servers, and stores on them;
//! - [`load`]: callers in this process;
//! - [`rounds`]: what is measured, and the turns; [`report`]: what came out.

pub mod load;
pub mod report;
pub mod rounds;
pub mod shape;
pub mod stand;

pub use self::rounds::Plan;
use crate::Result;
use crate::conditions::Conditions;
use crate::machine::Pinning;

/// Measures everything; the report as Markdown.
///
/// # Errors
/// If a server cannot be set up, or a check fails.
pub fn run(plan: Plan, command: &str) -> Result<String> {
    let conditions = Conditions::begin();
    let pinning = Pinning::of_this_process();
    let stand = stand::Stand::start(pinning)?;
    eprintln!("{}", stand.about);
    let results = rounds::run(&stand, plan)?;
    let conditions = report::conditions(&conditions, command, plan, pinning, &stand.about);
    Ok(report::markdown(&conditions, &results))
}
