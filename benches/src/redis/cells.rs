//! What is measured: candidates, scenarios, callers, and on which server.

use ratekeeper_testkit::servers::Flavour;

use crate::redis::scenario::Scenario;

/// How many callers there are in the cells that most targets are about.
pub const CALLERS_MAIN: usize = 64;
/// So many that most of them wait in our queue.
pub const CALLERS_CROWD: usize = 512;
/// How many callers ask at once.
pub const CALLERS: [usize; 3] = [1, CALLERS_MAIN, CALLERS_CROWD];

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidate {
    /// Our store.
    Ours,
    /// A script per request through redis-rs.
    Plain,
    /// Batches of our store replayed.
    Bare,
    /// Limitador.
    Limitador,
    /// Python's `limits`.
    Limits,
    /// Node's `rate-limiter-flexible`.
    Flexible,
}

impl Candidate {
    /// What the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Candidate::Ours => "ratekeeper `RedisStore`",
            Candidate::Plain => "a script per request, redis-rs",
            Candidate::Bare => "bare load generator",
            Candidate::Limitador => "limitador `AsyncRedisStorage`",
            Candidate::Limits => "limits (Python, asyncio)",
            Candidate::Flexible => "rate-limiter-flexible (Node)",
        }
    }
}

/// A row of the tables.
pub type Row = (Scenario, Candidate);

/// One figure's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// On which server.
    pub flavour: Flavour,
    /// By how many callers.
    pub callers: usize,
    /// What.
    pub scenario: Scenario,
    /// By whom.
    pub candidate: Candidate,
}

/// The rows for so many callers on a server, those to be compared side by side. On the second
/// server only what the targets are about, and the peers beside it.
#[must_use]
pub fn rows(flavour: Flavour, callers: usize) -> Vec<Row> {
    use Candidate::{Bare, Flexible, Limitador, Limits, Ours, Plain};
    use Scenario::{FourTiers, NoOverride, OneQuota, ProjectOverride};
    let of = |scenario, candidates: &[Candidate]| {
        candidates.iter().map(|candidate| (scenario, *candidate)).collect::<Vec<_>>()
    };
    match (flavour, callers) {
        (Flavour::Redis7, CALLERS_MAIN) => [
            of(OneQuota, &[Bare, Ours, Plain, Limitador, Limits, Flexible]),
            of(FourTiers, &[Ours, Plain, Limitador, Limits, Flexible]),
            of(NoOverride, &[Ours, Plain]),
            of(ProjectOverride, &[Ours, Plain]),
        ]
        .concat(),
        (Flavour::Redis7, _) => [
            of(OneQuota, &[Ours, Plain, Limitador, Limits, Flexible]),
            of(FourTiers, &[Ours, Plain, Limitador]),
            of(NoOverride, &[Ours, Plain]),
        ]
        .concat(),
        (_, CALLERS_MAIN) => [
            of(OneQuota, &[Bare, Ours, Plain, Limitador, Limits, Flexible]),
            of(FourTiers, &[Ours, Plain]),
            of(NoOverride, &[Ours, Plain]),
        ]
        .concat(),
        _ => of(OneQuota, &[Ours, Plain]),
    }
}
