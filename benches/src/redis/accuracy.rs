//! How exactly candidates count when callers meet at a few keys.

use ratekeeper_testkit::servers::Flavour;

use crate::Result;
use crate::redis::cells::{CALLERS_MAIN, Candidate};
use crate::redis::contestant::{Job, Work};
use crate::redis::scenario::{HOT_KEYS, HOT_LIMIT, Room, Scenario, Setting};
use crate::redis::stand::Stand;

/// What should be admitted: what all keys have room for. Windows are a day, so that nothing
/// comes back while it runs.
pub const EXACT: u64 = (HOT_KEYS * HOT_LIMIT) as u64;

const CANDIDATES: [(Scenario, Candidate); 12] = [
    (Scenario::OneQuota, Candidate::Ours),
    (Scenario::OneQuota, Candidate::Plain),
    (Scenario::OneQuota, Candidate::Limitador),
    (Scenario::OneQuota, Candidate::Limits),
    (Scenario::OneQuota, Candidate::Flexible),
    (Scenario::FourTiers, Candidate::Ours),
    (Scenario::FourTiers, Candidate::Plain),
    (Scenario::FourTiers, Candidate::Limitador),
    (Scenario::NoOverride, Candidate::Ours),
    (Scenario::NoOverride, Candidate::Plain),
    (Scenario::ProjectOverride, Candidate::Ours),
    (Scenario::ProjectOverride, Candidate::Plain),
];

/// What a candidate made of it.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// On which server.
    pub flavour: Flavour,
    /// What was asked.
    pub scenario: Scenario,
    /// Who.
    pub candidate: Candidate,
    /// Requests that passed.
    pub admitted: u64,
    /// Requests that did not.
    pub denied: u64,
    /// Requests that were not answered.
    pub failed: u64,
}

impl Finding {
    /// How many too many passed.
    #[must_use]
    pub const fn off(&self) -> i64 {
        self.admitted.cast_signed() - EXACT.cast_signed()
    }
}

/// Lets every candidate of a server be hammered.
///
/// # Errors
/// If a candidate cannot be set up.
pub fn run(stand: &Stand) -> Result<Vec<Finding>> {
    let flavour = stand.server.flavour();
    let one = |(scenario, candidate)| {
        let mut contestant = stand.connect(candidate, Setting { scenario, room: Room::Tight })?;
        let outcome = contestant.run(Job { work: Work::Hammer, callers: CALLERS_MAIN })?;
        let (admitted, failed) = (outcome.admitted, outcome.failed);
        let denied = outcome.checks - admitted - failed;
        Ok(Finding { flavour, scenario, candidate, admitted, denied, failed })
    };
    eprintln!("{flavour}: accuracy");
    CANDIDATES.into_iter().map(one).collect()
}
