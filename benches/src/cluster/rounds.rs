//! What is measured, and the rounds, in which all rows of a table take turns.

use std::time::Duration;

use crate::Result;
use crate::cluster::load::{Callers, Outcome};
use crate::cluster::shape::{Asked, Shape};
use crate::cluster::stand::{Place, Stand, Work};
use crate::series::Series;

/// The share of a turn that goes before it: connections open, caches fill.
const WARM_UP: u32 = 8;
/// One that waits for each answer: what a check costs without others in its batch.
pub const CALLERS_ALONE: usize = 1;
/// How many callers there are in the cells that most figures are about.
pub const CALLERS_MAIN: usize = 64;
/// So many that most of them wait in our queue.
pub const CALLERS_CROWD: usize = 512;
/// How many organisations there are.
pub const ORGANISATIONS: [u32; 3] = [10, 1_000, 100_000];

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
    pub const FULL: Plan = Plan { rounds: 5, time: Duration::from_secs(1), quick: false };
    /// Enough to see that everything runs.
    pub const QUICK: Plan = Plan { rounds: 2, time: Duration::from_millis(100), quick: true };
}

/// One figure's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Where.
    pub place: Place,
    /// What.
    pub shape: Shape,
    /// By how many callers.
    pub callers: usize,
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
    /// The servers' time on a processor per check, in microseconds.
    pub server_cpu: Series,
    /// Ours.
    pub client_cpu: Series,
    /// Bytes between us and the primaries per check.
    pub bytes: Series,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Results {
    /// In the order of measuring.
    pub cells: Vec<(Cell, Figures)>,
    /// Turns in which not every check was decided as it should have been.
    pub strays: Vec<String>,
}

impl Results {
    /// The figures of a cell, if it was measured.
    #[must_use]
    pub fn get(&self, place: Place, shape: Shape, callers: usize) -> Option<&Figures> {
        let cell = Cell { place, shape, callers };
        self.cells.iter().find(|(known, _)| *known == cell).map(|(_, figures)| figures)
    }

    fn record(&mut self, cell: Cell, outcome: &Outcome, before: Work, after: Work) {
        if outcome.strays > 0 {
            self.strays.push(format!("{cell:?}: {outcome:?}"));
        }
        let index = self.cells.iter().position(|(known, _)| *known == cell).unwrap_or_else(|| {
            self.cells.push((cell, Figures::default()));
            self.cells.len() - 1
        });
        let (figures, checks) = (&mut self.cells[index].1, outcome.checks as f64);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        figures.rate.push(checks / outcome.elapsed.as_secs_f64());
        figures.p50.push(micros(outcome.p50));
        figures.p99.push(micros(outcome.p99));
        figures.server_cpu.push(micros(after.cpu.saturating_sub(before.cpu)) / checks);
        figures.client_cpu.push(micros(outcome.cpu) / checks);
        figures.bytes.push(after.bytes.saturating_sub(before.bytes) as f64 / checks);
    }
}

/// Tables: rows that take turns.
#[must_use]
pub fn tables() -> Vec<(&'static str, Vec<Cell>)> {
    let of = |places: &[Place], shapes: &[Shape], callers: &[usize]| {
        let mut cells = Vec::new();
        for callers in callers {
            for shape in shapes {
                let cell = |place: &Place| Cell { place: *place, shape: *shape, callers: *callers };
                cells.extend(places.iter().map(cell));
            }
        }
        cells
    };
    let both = [Place::Server, Place::Cluster];
    let organisations = ORGANISATIONS.map(Shape::Organisations);
    let all = [CALLERS_ALONE, CALLERS_MAIN, CALLERS_CROWD];
    let spanning = [Shape::Together(2), Shape::Spanning(2), Shape::Together(3), Shape::Spanning(3)];
    let denied = [Shape::DeniedTogether, Shape::DeniedSpanning];
    vec![
        ("Routing: every batch as full as on one server", of(&both, &[Shape::OneSlot], &all)),
        ("Batches per slot", of(&both, &organisations, &all)),
        ("Checks that span slots", of(&[Place::Cluster], &spanning, &all[..2])),
        ("Denials that span slots", of(&[Place::Cluster], &denied, &all[..2])),
        (
            "Charges that a replica confirms",
            of(&[Place::Replicated, Place::Confirmed], &[Shape::Organisations(1_000)], &all[..2]),
        ),
    ]
}

/// Measures all tables.
///
/// # Errors
/// If a store cannot be set up.
pub fn run(stand: &Stand, plan: Plan) -> Result<Results> {
    let mut results = Results::default();
    for (name, cells) in tables() {
        eprintln!("{name}: setting up");
        let mut entrants = Vec::new();
        for cell in cells {
            let callers = Callers::new(stand.store(cell.place, cell.shape)?, Asked::new(cell.shape)?);
            // Shared by the cells of a place: whoever comes first makes them.
            if !entrants
                .iter()
                .any(|(known, _): &(Cell, _)| (known.place, known.shape) == (cell.place, cell.shape))
            {
                callers.fill(&stand.runtime)?;
            }
            entrants.push((cell, callers));
        }
        for round in 0..plan.rounds {
            eprintln!("{name}: round {} of {}", round + 1, plan.rounds);
            if round > 0 {
                // Forwards in one round and backwards in the next, so that nobody always follows the same neighbour.
                entrants.reverse();
            }
            for (cell, callers) in &mut entrants {
                callers.run(&stand.runtime, cell.callers, plan.time / WARM_UP)?;
                let before = stand.work(cell.place);
                let outcome = callers.run(&stand.runtime, cell.callers, plan.time)?;
                if outcome.checks == 0 {
                    return Err(format!("{cell:?}: no check was answered within {:?}", plan.time).into());
                }
                results.record(*cell, &outcome, before, stand.work(cell.place));
            }
        }
    }
    Ok(results)
}
