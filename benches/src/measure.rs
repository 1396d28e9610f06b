//! The loop around a check, and the rounds in which candidates take turns.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::candidate::Candidate;
use crate::key::KeyText;
use crate::scenario::{Load, SCENARIOS};
use crate::series::Series;

/// Checks between two looks at the clock.
pub const CHUNK: usize = 250;
/// The share of a measurement that goes before it to warm the caches.
const WARM_UP: u32 = 10;
/// How many threads check at once.
pub const THREADS: [usize; 2] = [1, 2];

/// Something that can be asked.
pub trait Contestant: Sync {
    /// Does the work: one check for every draw.
    fn run(&self, work: &Work<'_>) -> Tally;
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// After this long.
    Time(Duration),
    /// After this many checks, rounded up to whole chunks.
    Checks(u64),
}

/// What one thread is to do.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Key indices; when they are used up they are used again.
    pub draws: &'a [u32],
    /// The chunk to begin with.
    pub first: usize,
    /// When to stop.
    pub budget: Budget,
    /// Whether no other thread is at work.
    pub alone: bool,
}

/// What one thread has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// How many checks there were.
    pub checks: u64,
    /// How many of them passed.
    pub admitted: u64,
    /// How many could not be answered.
    pub failed: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Tally {
    /// Whether every answer was the one the load was set up for.
    fn fits(&self, load: Load) -> bool {
        let expected = if load == Load::Admitted { self.checks } else { 0 };
        self.failed == 0 && self.admitted == expected
    }
}

impl Work<'_> {
    /// The measured loop, compiled once for every candidate.
    #[inline(always)]
    pub fn drive<E>(&self, mut check: impl FnMut(u32, &String) -> Result<bool, E>) -> Tally {
        let mut key = KeyText::new("user");
        let mut tally = Tally::default();
        let start = Instant::now();
        for chunk in self.draws.chunks_exact(CHUNK).cycle().skip(self.first) {
            for index in chunk {
                key.set(*index);
                match check(*index, black_box(key.text())) {
                    Ok(passed) => tally.admitted += u64::from(passed),
                    Err(_) => tally.failed += 1,
                }
            }
            tally.checks += CHUNK as u64;
            tally.elapsed = start.elapsed();
            let done = match self.budget {
                Budget::Time(time) => tally.elapsed >= time,
                Budget::Checks(checks) => tally.checks >= checks,
            };
            if done {
                break;
            }
        }
        tally
    }
}

/// One measurement: all threads start together, each in its own place.
fn measure(
    contestant: &dyn Contestant,
    draws: &[u32],
    threads: usize,
    place: f64,
    time: Duration,
) -> Vec<Tally> {
    let barrier = Barrier::new(threads);
    let chunks = (draws.len() / CHUNK) as f64;
    let one = |thread: usize| {
        let place = (place + thread as f64 / threads as f64).fract();
        let work = |time| Work {
            draws,
            first: (place * chunks) as usize,
            budget: Budget::Time(time),
            alone: threads == 1,
        };
        contestant.run(&work(time / WARM_UP));
        barrier.wait();
        contestant.run(&work(time))
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect("a contestant panicked")).collect()
    })
}

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of every candidate.
    pub rounds: u32,
    /// The length of a turn.
    pub time: Duration,
}

impl Plan {
    /// What targets are judged by.
    pub const FULL: Plan = Plan { rounds: 7, time: Duration::from_millis(150) };
    /// Enough to see that everything runs.
    pub const QUICK: Plan = Plan { rounds: 2, time: Duration::from_millis(20) };

    /// Whether it is too short to judge by.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.rounds < Self::FULL.rounds || self.time < Self::FULL.time
    }
}

/// What a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Index into [`SCENARIOS`].
    pub scenario: usize,
    /// Threads at once.
    pub threads: usize,
    /// Admitted or denied.
    pub load: Load,
    /// Who.
    pub candidate: Candidate,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Results {
    cells: BTreeMap<Cell, Series>,
    /// Cells whose answers were not the ones they were set up for.
    pub strays: Vec<String>,
}

impl Results {
    /// The figures of a cell, if it was measured.
    #[must_use]
    pub fn get(&self, cell: Cell) -> Option<&Series> {
        self.cells.get(&cell)
    }

    fn record(&mut self, cell: Cell, tallies: &[Tally]) {
        let rate = |tally: &Tally| tally.checks as f64 / tally.elapsed.as_secs_f64();
        self.cells.entry(cell).or_default().push(tallies.iter().map(rate).sum());
        for tally in tallies.iter().filter(|tally| !tally.fits(cell.load)) {
            self.strays.push(format!("{cell:?}: {tally:?}"));
        }
    }
}

type Entrant = (Candidate, Load, Box<dyn Contestant>);

/// Runs every scenario.
///
/// # Errors
/// If a candidate cannot be set up.
pub fn run(plan: Plan) -> Result<Results> {
    let mut results = Results::default();
    let mut entrants: Vec<Entrant> = Vec::new();
    let mut keys = 0;
    for (index, scenario) in SCENARIOS.iter().enumerate() {
        if scenario.keys != keys {
            keys = scenario.keys;
            // The old ones first: two sets of 10^6 keys need not be in memory.
            entrants.clear();
            entrants = enter(keys)?;
        }
        let draws = scenario.draws();
        for threads in THREADS {
            eprintln!("{}, {threads} thread(s)", scenario.name);
            for round in 0..plan.rounds {
                let place = f64::from(round) / f64::from(plan.rounds) / threads as f64;
                for (candidate, load, contestant) in in_turn(&entrants, round) {
                    let tallies = measure(contestant.as_ref(), &draws, threads, place, plan.time);
                    let cell = Cell { scenario: index, threads, load: *load, candidate: *candidate };
                    results.record(cell, &tallies);
                }
            }
        }
    }
    Ok(results)
}

fn enter(keys: u32) -> Result<Vec<Entrant>> {
    eprintln!("setting up {keys} key(s)");
    let mut entrants = Vec::new();
    for load in Load::ALL {
        for candidate in Candidate::ALL {
            let contestant = candidate.build(load, keys)?;
            entrants.extend(contestant.map(|contestant| (candidate, load, contestant)));
        }
    }
    Ok(entrants)
}

/// Forwards in one round and backwards in the next, so that nobody always
/// follows the same neighbour, whose keys fill the caches.
fn in_turn(entrants: &[Entrant], round: u32) -> Box<dyn Iterator<Item = &Entrant> + '_> {
    if round.is_multiple_of(2) { Box::new(entrants.iter()) } else { Box::new(entrants.iter().rev()) }
}
