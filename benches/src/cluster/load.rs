//! Callers within this process, each a task that asks again as soon as it is answered.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ratekeeper::Store;
use tokio::runtime::Runtime;

use crate::Result;
use crate::cluster::shape::{Asked, FIRST_COST};
use crate::machine::own_cpu;
use crate::scenario::Random;
use crate::series::percentile;

/// Callers that make the counters.
const FILLING: usize = 64;

/// What came of a turn.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many checks there were.
    pub checks: u64,
    /// How many of them were not decided as they should have been, ...
    pub strays: u64,
    /// ... and what became of the first.
    pub why: Option<String>,
    /// How long it took.
    pub elapsed: Duration,
    /// The median wait of a caller.
    pub p50: Duration,
    /// What one wait in a hundred exceeds.
    pub p99: Duration,
    /// The time this process spent on a processor.
    pub cpu: Duration,
}

/// A store and what is asked of it.
pub struct Callers {
    store: Arc<dyn Store>,
    asked: Arc<Asked>,
    runs: u64,
}

#[derive(Default)]
struct Tally {
    waits: Vec<Duration>,
    strays: u64,
    why: Option<String>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Callers {
    /// Callers of a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, asked: Asked) -> Self {
        Self { store, asked: Arc::new(asked), runs: 0 }
    }

    /// Makes every counter.
    ///
    /// # Errors
    /// If one could not be made.
    pub fn fill(&self, runtime: &Runtime) -> Result<()> {
        let next = Arc::new(AtomicU32::new(0));
        runtime.block_on(async {
            let callers: Vec<_> = (0..FILLING)
                .map(|_| {
                    let (store, asked, next) =
                        (Arc::clone(&self.store), Arc::clone(&self.asked), Arc::clone(&next));
                    tokio::spawn(async move {
                        loop {
                            let check = next.fetch_add(1, Ordering::Relaxed);
                            if check >= asked.shape.checks() {
                                return Ok(());
                            }
                            if !ask(&*store, &asked, check, FIRST_COST).await? {
                                return Err(format!("check {check} did not pass"));
                            }
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.await??;
            }
            Ok(())
        })
    }

    /// Asks for so long.
    ///
    /// # Errors
    /// If the system does not say how long we were on a processor.
    pub fn run(&mut self, runtime: &Runtime, callers: usize, time: Duration) -> Result<Outcome> {
        self.runs += 1;
        let seed = self.runs << 32;
        runtime.block_on(async {
            let (cpu, start) = (own_cpu()?, Instant::now());
            let one = |number: usize| {
                let (store, asked) = (Arc::clone(&self.store), Arc::clone(&self.asked));
                tokio::spawn(caller(store, asked, Random::new(seed + number as u64), start + time))
            };
            let callers: Vec<_> = (0..callers).map(one).collect();
            let mut tallies = Vec::with_capacity(callers.len());
            for caller in callers {
                tallies.push(caller.await?);
            }
            let (elapsed, cpu) = (start.elapsed(), own_cpu()?.saturating_sub(cpu));
            let mut waits: Vec<Duration> = tallies.iter().flat_map(|tally| &tally.waits).copied().collect();
            Ok(Outcome {
                checks: waits.len() as u64,
                strays: tallies.iter().map(|tally| tally.strays).sum(),
                why: tallies.into_iter().find_map(|tally| tally.why),
                elapsed,
                p50: percentile(&mut waits, 50),
                p99: percentile(&mut waits, 99),
                cpu,
            })
        })
    }
}

async fn caller(store: Arc<dyn Store>, asked: Arc<Asked>, mut random: Random, end: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut last = Instant::now();
    while last < end {
        let answer = ask(&*store, &asked, random.below(asked.shape.checks()), 1).await;
        if answer != Ok(asked.shape.passes()) {
            tally.strays += 1;
            tally.why.get_or_insert_with(|| format!("{answer:?}"));
        }
        let now = Instant::now();
        tally.waits.push(now - last);
        last = now;
    }
    tally
}

async fn ask(store: &dyn Store, asked: &Asked, check: u32, cost: u64) -> Result<bool, String> {
    let of = asked.subjects(check);
    let charges = asked.charges(&of, cost).map_err(|error| error.to_string())?;
    let check = charges.check().map_err(|error| error.to_string())?;
    store.check(&check).await.map(|decision| decision.is_allowed()).map_err(|error| error.to_string())
}
