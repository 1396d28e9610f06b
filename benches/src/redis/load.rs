//! Callers within this process, each a task that asks again as soon as it is answered.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::Result;
use crate::machine::own_cpu;
use crate::redis::contestant::{Contestant, Job, Outcome, Work};
use crate::redis::scenario::Setting;
use crate::scenario::Random;
use crate::series::percentile;

/// How long clients wait for an answer that they can stop waiting for: longer than a busy
/// machine makes them. What is late should show in the figures.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Why a check was not answered.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A client in this process.
pub trait Peer: Send + Sync + 'static {
    /// Whether the key with this number may have `cost` units.
    fn check(&self, index: u32, cost: u32) -> impl Future<Output = Result<bool, Failure>> + Send;
}

/// One thread for callers and connections alike: the clients have one core, and a second
/// thread would only take turns with the first.
///
/// # Errors
/// If the system refuses.
pub fn runtime() -> Result<Arc<Runtime>> {
    Ok(Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?))
}

/// A client in this process and the runtime its connection lives in.
pub struct InProcess<P> {
    runtime: Arc<Runtime>,
    peer: Arc<P>,
    setting: Setting,
    runs: u64,
}

impl<P: Peer> InProcess<P> {
    /// A contestant of a peer that was made in this runtime.
    pub fn new(runtime: &Arc<Runtime>, peer: P, setting: Setting) -> Self {
        Self { runtime: Arc::clone(runtime), peer: Arc::new(peer), setting, runs: 0 }
    }
}

impl<P: Peer> Contestant for InProcess<P> {
    fn run(&mut self, job: Job) -> Result<Outcome> {
        self.runs += 1;
        let seed = self.runs << 32;
        let plan = Plan { job, setting: self.setting, next: AtomicU32::new(0), start: Instant::now() };
        self.runtime.block_on(all_callers(&self.peer, Arc::new(plan), seed))
    }
}

impl<P> fmt::Debug for InProcess<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("setting", &self.setting).finish_non_exhaustive()
    }
}

/// What all callers of a job know.
struct Plan {
    job: Job,
    setting: Setting,
    /// The number of the next check, where their number is given.
    next: AtomicU32,
    start: Instant,
}

impl Plan {
    /// The next key to ask for, at the instant `now`; `None` when there is no more to do.
    fn key(&self, random: &mut Random, now: Instant) -> Option<u32> {
        if let Work::Time(time) = self.job.work {
            return (now < self.start + time).then(|| random.below(self.setting.keys()));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let more = self.job.checks(self.setting).is_some_and(|checks| number < checks);
        more.then(|| number % self.setting.keys())
    }
}

/// What one caller has to tell.
#[derive(Default)]
struct Tally {
    waits: Vec<Duration>,
    admitted: u64,
    failed: u64,
    why: Option<String>,
}

async fn all_callers<P: Peer>(peer: &Arc<P>, plan: Arc<Plan>, seed: u64) -> Result<Outcome> {
    let cpu = own_cpu()?;
    let one = |number: usize| {
        tokio::spawn(caller(Arc::clone(peer), Arc::clone(&plan), Random::new(seed + number as u64)))
    };
    let callers: Vec<_> = (0..plan.job.callers).map(one).collect();
    let mut tallies = Vec::with_capacity(callers.len());
    for caller in callers {
        tallies.push(caller.await?);
    }
    let elapsed = plan.start.elapsed();
    let cpu = own_cpu()?.saturating_sub(cpu);
    let mut waits: Vec<Duration> = tallies.iter().flat_map(|tally| &tally.waits).copied().collect();
    Ok(Outcome {
        checks: waits.len() as u64,
        admitted: tallies.iter().map(|tally| tally.admitted).sum(),
        failed: tallies.iter().map(|tally| tally.failed).sum(),
        why: tallies.into_iter().find_map(|tally| tally.why),
        elapsed,
        p50: percentile(&mut waits, 50),
        p99: percentile(&mut waits, 99),
        cpu,
    })
}

async fn caller<P: Peer>(peer: Arc<P>, plan: Arc<Plan>, mut random: Random) -> Tally {
    let mut tally = Tally::default();
    let cost = plan.job.cost();
    // One look at the clock per check: the end of a wait is the beginning of the next.
    let mut last = Instant::now();
    while let Some(key) = plan.key(&mut random, last) {
        match peer.check(key, cost).await {
            Ok(passed) => tally.admitted += u64::from(passed),
            Err(error) => {
                tally.failed += 1;
                tally.why.get_or_insert_with(|| error.to_string());
            }
        }
        let now = Instant::now();
        tally.waits.push(now - last);
        last = now;
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::scenario::{HOT_ATTEMPTS, HOT_KEYS, Room, Scenario};
    use std::sync::Mutex;

    struct Counts(Mutex<Vec<u32>>);

    impl Peer for Counts {
        async fn check(&self, index: u32, cost: u32) -> Result<bool, Failure> {
            tokio::task::yield_now().await;
            let mut counts = self.0.lock().unwrap();
            counts[index as usize] += cost;
            Ok(counts[index as usize] <= 3)
        }
    }

    #[test]
    fn callers_share_the_work_and_add_up() {
        let setting = Setting { scenario: Scenario::OneQuota, room: Room::Tight };
        let peer = Counts(Mutex::new(vec![0; HOT_KEYS as usize]));
        let mut contestant = InProcess::new(&runtime().unwrap(), peer, setting);
        let outcome = contestant.run(Job { work: Work::Hammer, callers: 7 }).unwrap();
        assert_eq!(outcome.checks, u64::from(HOT_ATTEMPTS));
        assert_eq!((outcome.admitted, outcome.failed), (u64::from(3 * HOT_KEYS), 0));
        let time = Duration::from_millis(5);
        assert!(contestant.run(Job { work: Work::Time(time), callers: 2 }).unwrap().elapsed >= time);
    }
}
