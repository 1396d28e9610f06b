//! What every candidate can be told to do, in this process or another.

use std::time::Duration;

use crate::Result;
use crate::redis::scenario::{FIRST_COST, HOT_ATTEMPTS, Setting};

/// What callers do together.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Make every counter, at [`FIRST_COST`].
    Fill,
    /// Ask for random keys for so long.
    Time(Duration),
    /// Ask [`HOT_ATTEMPTS`] times, for the keys in turn.
    Hammer,
}

/// Work, and how many callers share it, each with one check under way at any time.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// What to do.
    pub work: Work,
    /// How many callers.
    pub callers: usize,
}

impl Job {
    /// What a check costs.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        match self.work {
            Work::Fill => FIRST_COST,
            Work::Time(_) | Work::Hammer => 1,
        }
    }

    /// How many checks there will be, if that is given.
    #[must_use]
    pub const fn checks(&self, setting: Setting) -> Option<u32> {
        match self.work {
            Work::Fill => Some(setting.keys()),
            Work::Time(_) => None,
            Work::Hammer => Some(HOT_ATTEMPTS),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many checks there were.
    pub checks: u64,
    /// How many of them passed.
    pub admitted: u64,
    /// How many were not answered.
    pub failed: u64,
    /// Why the first of those was not.
    pub why: Option<String>,
    /// How long it took.
    pub elapsed: Duration,
    /// The median wait of a caller.
    pub p50: Duration,
    /// What one wait in a hundred exceeds.
    pub p99: Duration,
    /// The time the candidate's process spent on a processor.
    pub cpu: Duration,
}

/// A candidate, set up for a setting.
pub trait Contestant {
    /// Does the job.
    ///
    /// # Errors
    /// If it could not be done at all; single checks that fail are in the outcome.
    fn run(&mut self, job: Job) -> Result<Outcome>;
}
