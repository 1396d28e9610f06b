//! Our store on Redis and Valkey against its peers, on real servers.
//!
//! - [`scenario`]: quotas and keys; [`contestant`]: what every candidate can be told to do;
//! - [`ours`], [`plain`], [`limitador`], [`child`], [`bare`]: the candidates;
//! - [`load`]: callers in this process; [`record`]: batches as our store sends them;
//! - [`cells`] and [`rounds`]: what is measured, and the turns; [`accuracy`]: exactness;
//! - [`targets`] and [`report`]: what came out.

pub mod accuracy;
pub mod bare;
pub mod cells;
pub mod child;
pub mod contestant;
pub mod limitador;
pub mod load;
pub mod ours;
pub mod plain;
pub mod record;
pub mod report;
pub mod rounds;
pub mod scenario;
pub mod stand;
pub mod targets;

use ratekeeper_testkit::servers::Flavour;

use crate::Result;
use crate::conditions::Conditions;
use crate::machine::Pinning;
use crate::redis::report::Report;
use crate::redis::rounds::{Plan, Results};
use crate::redis::stand::Stand;

/// The servers, the one that everything is measured on first.
pub const FLAVOURS: [Flavour; 2] = [Flavour::Redis7, Flavour::Valkey9];

/// Measures everything.
///
/// # Errors
/// If a candidate or a server cannot be set up.
pub fn run(plan: Plan, command: &str) -> Result<Report> {
    let conditions = Conditions::begin();
    let pinning = Pinning::of_this_process();
    let mut results = Results::default();
    let mut accuracy = Vec::new();
    let mut about = Vec::new();
    for flavour in FLAVOURS {
        let mut stand = Stand::start(flavour, pinning)?;
        eprintln!("{}", stand.about);
        accuracy.extend(accuracy::run(&stand)?);
        rounds::run(&mut stand, plan, &mut results)?;
        about.push(stand.about.clone());
        about.extend(stand.peers().filter(|_| flavour == FLAVOURS[0]));
    }
    let targets = targets::check(&results, &accuracy);
    let conditions = report::conditions(&conditions, command, plan, pinning, &about);
    Ok(Report { conditions, targets, results, accuracy })
}
