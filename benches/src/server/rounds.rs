//! The rounds, in which the servers take turns.

use std::time::Duration;

use ratekeeper_testkit::servers::{Flavour, Server};

use crate::Result;
use crate::machine::{Pinning, cpu_of};
use crate::series::Series;
use crate::server::contestant::{Candidate, Contestant};
use crate::server::load::{Keys, Outcome, Pace};

/// The share of a turn that goes before it to warm the caches.
const WARM_UP: u32 = 8;
/// Open loops, in percent of what the slower of the servers does in a closed loop.
pub const OPEN_PERCENT: [u32; 2] = [50, 80];
/// Single keys have numbers from here on, one for each turn.
const SINGLE_KEYS: u32 = 90_000_000;

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of every row.
    pub rounds: u32,
    /// The length of a turn.
    pub time: Duration,
    /// Keys where there are many.
    pub many: u32,
    /// Whether it is too short to judge by.
    pub quick: bool,
}

impl Plan {
    /// What targets are judged by.
    pub const FULL: Plan =
        Plan { rounds: 7, time: Duration::from_millis(1_500), many: 1_000_000, quick: false };
    /// Enough to see that everything runs.
    pub const QUICK: Plan = Plan { rounds: 2, time: Duration::from_millis(300), many: 20_000, quick: true };
}

/// Where counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In the server's memory.
    Memory,
    /// In Redis, which shares the server's core.
    Redis,
}

/// What is measured together: the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Where counters are.
    pub kept: Kept,
    /// How many keys there are.
    pub keys: u32,
}

impl Setting {
    /// All of them.
    #[must_use]
    pub const fn all(plan: Plan) -> [Setting; 4] {
        let (memory, redis) = (Kept::Memory, Kept::Redis);
        [
            Setting { kept: memory, keys: 1 },
            Setting { kept: memory, keys: plan.many },
            Setting { kept: redis, keys: 1 },
            Setting { kept: redis, keys: plan.many },
        ]
    }

    const fn candidates(self) -> &'static [Candidate] {
        match self.kept {
            Kept::Memory => &[Candidate::Ours, Candidate::Peer],
            // The peer has no other store than its memory.
            Kept::Redis => &[Candidate::Ours],
        }
    }
}

/// How it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// As fast as it answers.
    Closed,
    /// The same by a load that sleeps and is woken by answers.
    Asleep,
    /// At a fixed rate: one of [`OPEN_PERCENT`].
    Open(u32),
}

/// Where a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Of which table.
    pub setting: Setting,
    /// How it is asked.
    pub asked: Loop,
    /// Who.
    pub candidate: Candidate,
}

/// The figures of a cell, one of each per round.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Answers per second.
    pub rate: Series,
    /// The median wait, in microseconds.
    pub p50: Series,
    /// What one wait in a hundred exceeds, in microseconds.
    pub p99: Series,
    /// The server's CPU time per request, in microseconds.
    pub server_cpu: Series,
    /// How busy the load was: near 1, it held the server up.
    pub busy: Series,
    /// Requests that were denied, in all rounds.
    pub denied: u64,
    /// Requests that failed.
    pub failed: u64,
}

impl Figures {
    fn push(&mut self, outcome: &Outcome, server_cpu: Duration) {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        self.rate.push(outcome.answered as f64 / outcome.elapsed.as_secs_f64());
        self.p50.push(micros(outcome.p50));
        self.p99.push(micros(outcome.p99));
        self.server_cpu.push(micros(server_cpu) / outcome.answered as f64);
        self.busy.push(outcome.busy);
        self.denied += outcome.denied;
        self.failed += outcome.failed;
    }
}

/// The memory of a server before and after its keys were made.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// With which store and how many keys.
    pub setting: Setting,
    /// Who.
    pub candidate: Candidate,
    /// Bytes when it had started.
    pub before: u64,
    /// Bytes when all keys were there.
    pub after: u64,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Results {
    /// In the order of measuring.
    pub cells: Vec<(Cell, Figures)>,
    /// What the servers took.
    pub memory: Vec<Memory>,
    /// Why requests failed, the first of each turn.
    pub failures: Vec<String>,
    /// What Redis it was.
    pub redis: String,
}

impl Results {
    /// The figures of a cell, if it was measured.
    #[must_use]
    pub fn get(&self, cell: Cell) -> Option<&Figures> {
        self.cells.iter().find(|(known, _)| *known == cell).map(|(_, figures)| figures)
    }

    fn figures(&mut self, cell: Cell) -> &mut Figures {
        let known = self.cells.iter().position(|(known, _)| *known == cell);
        let place = known.unwrap_or_else(|| {
            self.cells.push((cell, Figures::default()));
            self.cells.len() - 1
        });
        &mut self.cells[place].1
    }
}

/// Measures everything.
///
/// # Errors
/// If a server cannot be started or set up.
pub fn run(plan: Plan, pinning: Pinning) -> Result<Results> {
    let mut results = Results::default();
    for setting in Setting::all(plan) {
        eprintln!("{:?}, {} key(s): setting up", setting.kept, setting.keys);
        let redis = match setting.kept {
            Kept::Memory => None,
            Kept::Redis => Some(start_redis(pinning, &mut results)?),
        };
        let mut stand = Stand { plan, setting, contestants: Vec::new(), turns: 0, results: &mut results };
        stand.set_up(redis.as_ref().map(Server::url).as_deref(), pinning)?;
        stand.rounds(Loop::Closed, Pace::Closed)?;
        stand.rounds(Loop::Asleep, Pace::Asleep)?;
        let slower = stand.slower();
        for percent in OPEN_PERCENT {
            let rate = slower * f64::from(percent) / 100.0;
            stand.rounds(Loop::Open(percent), Pace::Open(rate))?;
        }
        drop(stand);
        // Only now: its clients are gone.
        drop(redis);
    }
    Ok(results)
}

fn start_redis(pinning: Pinning, results: &mut Results) -> Result<Server> {
    let redis = Server::start(Flavour::Redis7);
    pinning.apply(redis.pid())?;
    let version = redis.info("redis_version").unwrap_or_else(|| "unknown".into());
    results.redis = format!("Redis {version} on the server's core, no persistence");
    Ok(redis)
}

/// The servers of a setting, at work.
struct Stand<'a> {
    plan: Plan,
    setting: Setting,
    contestants: Vec<Contestant>,
    /// Turns so far: each has a single key of its own.
    turns: u32,
    results: &'a mut Results,
}

impl Stand<'_> {
    fn set_up(&mut self, store: Option<&str>, pinning: Pinning) -> Result<()> {
        for candidate in self.setting.candidates() {
            let mut contestant = Contestant::start(*candidate, store, pinning)?;
            let before = contestant.memory()?;
            if self.setting.keys > 1 {
                contestant.fill(0..self.setting.keys)?;
            }
            let after = contestant.memory()?;
            let (setting, candidate) = (self.setting, *candidate);
            self.results.memory.push(Memory { setting, candidate, before, after });
            self.contestants.push(contestant);
        }
        Ok(())
    }

    fn rounds(&mut self, asked: Loop, pace: Pace) -> Result<()> {
        for round in 0..self.plan.rounds {
            let Setting { kept, keys } = self.setting;
            eprintln!("{kept:?}, {keys} key(s), {asked:?}: round {} of {}", round + 1, self.plan.rounds);
            // In turn first and second, so that neither has the better place.
            let mut order: Vec<usize> = (0..self.contestants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                self.turn(index, asked, pace)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, index: usize, asked: Loop, pace: Pace) -> Result<()> {
        let contestant = &mut self.contestants[index];
        self.turns += 1;
        let keys = if self.setting.keys > 1 {
            Keys::Below(self.setting.keys)
        } else {
            let key = SINGLE_KEYS + self.turns;
            contestant.fill(key..key + 1)?;
            Keys::One(key)
        };
        contestant.run(keys, pace, self.plan.time / WARM_UP)?;
        let before = cpu_of(contestant.process())?;
        let outcome = contestant.run(keys, pace, self.plan.time)?;
        let server_cpu = cpu_of(contestant.process())?.saturating_sub(before);
        let candidate = contestant.candidate;
        let cell = Cell { setting: self.setting, asked, candidate };
        if let Some(why) = &outcome.why {
            self.results.failures.push(format!("{cell:?}: {why}"));
        }
        self.results.figures(cell).push(&outcome, server_cpu);
        Ok(())
    }

    /// What the slower of the servers does in a closed loop.
    fn slower(&self) -> f64 {
        let rates = self.setting.candidates().iter().filter_map(|candidate| {
            let cell = Cell { setting: self.setting, asked: Loop::Closed, candidate: *candidate };
            self.results.get(cell).map(|figures| figures.rate.median())
        });
        rates.fold(f64::INFINITY, f64::min)
    }
}
