//! The rounds, in which all rows of a table take turns.

use std::time::Duration;

use ratekeeper_testkit::servers::Server;

use crate::Result;
use crate::redis::cells::{CALLERS, Cell, Row, rows};
use crate::redis::contestant::{Contestant, Job, Outcome, Work};
use crate::redis::scenario::{Room, Setting};
use crate::redis::stand::Stand;
use crate::series::Series;

/// The share of a turn that goes before it: connections open, caches fill.
const WARM_UP: u32 = 8;

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of every row.
    pub rounds: u32,
    /// The length of a turn.
    pub time: Duration,
    /// Whether it is too short to judge by.
    pub quick: bool,
}

impl Plan {
    /// What targets are judged by.
    pub const FULL: Plan = Plan { rounds: 7, time: Duration::from_secs(1), quick: false };
    /// Enough to see that everything runs.
    pub const QUICK: Plan = Plan { rounds: 2, time: Duration::from_millis(150), quick: true };
}

/// The figures of a cell, one of each per round.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Checks per second.
    pub rate: Series,
    /// The median wait, in microseconds.
    pub p50: Series,
    /// What one wait in a hundred exceeds, in microseconds.
    pub p99: Series,
    /// The server's CPU time per check, in microseconds.
    pub server_cpu: Series,
    /// The candidate's own.
    pub client_cpu: Series,
}

impl Figures {
    fn push(&mut self, outcome: &Outcome, server_cpu: Duration) {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let checks = outcome.checks as f64;
        self.rate.push(checks / outcome.elapsed.as_secs_f64());
        self.p50.push(micros(outcome.p50));
        self.p99.push(micros(outcome.p99));
        self.server_cpu.push(micros(server_cpu) / checks);
        self.client_cpu.push(micros(outcome.cpu) / checks);
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Results {
    /// In the order of measuring.
    pub cells: Vec<(Cell, Figures)>,
    /// Turns in which not every check passed.
    pub strays: Vec<String>,
}

impl Results {
    /// The figures of a cell, if it was measured.
    #[must_use]
    pub fn get(&self, cell: Cell) -> Option<&Figures> {
        self.cells.iter().find(|(known, _)| *known == cell).map(|(_, figures)| figures)
    }

    fn record(&mut self, cell: Cell, outcome: &Outcome, server_cpu: Duration) {
        if outcome.failed > 0 || outcome.admitted != outcome.checks {
            self.strays.push(format!("{cell:?}: {outcome:?}"));
        }
        if let Some((_, figures)) = self.cells.iter_mut().find(|(known, _)| *known == cell) {
            return figures.push(outcome, server_cpu);
        }
        let mut figures = Figures::default();
        figures.push(outcome, server_cpu);
        self.cells.push((cell, figures));
    }
}

type Entrant = (Row, Box<dyn Contestant>);

/// Measures everything that is to be measured on a server.
///
/// # Errors
/// If a candidate cannot be set up.
pub fn run(stand: &mut Stand, plan: Plan, results: &mut Results) -> Result<()> {
    let flavour = stand.server.flavour();
    for callers in CALLERS {
        let mut entrants: Vec<Entrant> = Vec::new();
        eprintln!("{flavour}, {callers} caller(s): setting up");
        // The bare load generator comes first in its rows and replays counters that exist: the
        // rows for fewer callers made them.
        for row in rows(flavour, callers) {
            let setting = Setting { scenario: row.0, room: Room::Ample };
            entrants.push((row, stand.contestant(row.1, setting)?));
        }
        for round in 0..plan.rounds {
            eprintln!("{flavour}, {callers} caller(s): round {} of {}", round + 1, plan.rounds);
            for ((scenario, candidate), contestant) in in_turn(&mut entrants, round) {
                let cell = Cell { flavour, callers, scenario: *scenario, candidate: *candidate };
                let (outcome, server_cpu) = turn(contestant.as_mut(), &stand.server, callers, plan.time)?;
                results.record(cell, &outcome, server_cpu);
            }
        }
    }
    Ok(())
}

/// One turn, and what it cost the server.
fn turn(
    contestant: &mut dyn Contestant,
    server: &Server,
    callers: usize,
    time: Duration,
) -> Result<(Outcome, Duration)> {
    contestant.run(Job { work: Work::Time(time / WARM_UP), callers })?;
    let before = server.cpu_time();
    let outcome = contestant.run(Job { work: Work::Time(time), callers })?;
    if outcome.checks == 0 {
        return Err(format!("no check was answered within {time:?}").into());
    }
    Ok((outcome, server.cpu_time().saturating_sub(before)))
}

/// Forwards in one round and backwards in the next, so that nobody always follows the same
/// neighbour.
fn in_turn(entrants: &mut [Entrant], round: u32) -> Box<dyn Iterator<Item = &mut Entrant> + '_> {
    if round.is_multiple_of(2) { Box::new(entrants.iter_mut()) } else { Box::new(entrants.iter_mut().rev()) }
}
