//! A primary that is replaced while callers ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper::{Check, RedisStore, Reservation, Store, StoreErrorKind};
use ratekeeper_testkit::history::{histories, run};
use ratekeeper_testkit::servers::{Flavour, Trio, TrioOptions};
use ratekeeper_testkit::vectors;
use ratekeeper_testkit::wait::until;
use tokio::runtime::Runtime;

use super::{SECRET, calls, usual};
use crate::engine::{RedisEngine, runtime};
use crate::outages::logs;
use crate::setup::{ask, charge, quota};

const OPTIONS: TrioOptions = TrioOptions {
    password: Some("server-hunter2"),
    sentinel_password: Some("sentinel-hunter2"),
    ways: false,
};
/// Beyond its total, a call may be as late as a busy machine makes a timer. Nobody waits for the new primary, which
/// takes longer.
const LATE_MAX: Duration = Duration::from_secs(5);

/// A store with the usual deadlines, and a caller that asks it again and again.
struct Caller {
    runtime: Runtime,
    store: RedisStore,
    seen: Arc<Seen>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    decided: AtomicU64,
    failed: AtomicU64,
    longest_millis: AtomicU64,
}

impl Caller {
    fn start(trio: &Trio) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = {
            let _inside = runtime.enter();
            usual(&trio.url()).connections(2).build().unwrap()
        };
        let seen = Arc::new(Seen::default());
        let task = runtime.spawn(call(store.clone(), Arc::clone(&seen)));
        Self { runtime, store, seen, task }
    }

    /// Waits until the store has decided more, from now on.
    fn decides(&self) {
        let goal = self.seen.decided.load(Ordering::Relaxed) + 200;
        until("decisions", || self.seen.decided.load(Ordering::Relaxed) >= goal);
    }

    fn used(&self, subject: &str) -> u32 {
        let charge = charge("kept", subject, quota("100/h"));
        let mut used = None;
        until("a peek", || {
            let answer = self.runtime.block_on(self.store.check(&Check::one(&charge).peek()));
            used = answer.ok().map(|decision| 100 - decision.verdicts()[0].remaining());
            used.is_some()
        });
        used.unwrap()
    }

    /// Under an id, because a busy machine may charge a unit and answer too late.
    fn spend(&self, subject: &str, id: &str, units: u32) {
        let charge = charge("kept", subject, quota("100/h")).cost(units.into()).unwrap();
        let once = Reservation::once(id, Duration::from_secs(600)).unwrap();
        until("units", || self.runtime.block_on(self.store.reserve(&Check::one(&charge), &once)).is_ok());
    }

    /// Ends; nobody has waited beyond the total of a call.
    fn stop(self) -> RedisStore {
        self.seen.stop.store(true, Ordering::Relaxed);
        self.runtime.block_on(self.task).unwrap();
        let longest = Duration::from_millis(self.seen.longest_millis.load(Ordering::Relaxed));
        assert!(longest < LATE_MAX, "a call took {longest:?}");
        println!(
            "{} decided, {} not, longest {longest:?}",
            self.seen.decided.load(Ordering::Relaxed),
            self.seen.failed.load(Ordering::Relaxed)
        );
        self.store
    }
}

async fn call(store: RedisStore, seen: Arc<Seen>) {
    while !seen.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = ask(&store, &charge("load", "all", quota("1000000000/h"))).await;
        let took = u64::try_from(began.elapsed().as_millis()).unwrap();
        seen.longest_millis.fetch_max(took, Ordering::Relaxed);
        match answer {
            Ok(_) => seen.decided.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
                seen.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The tables and a few random histories, through the sentinels.
fn decides_as_it_should(trio: &Trio) {
    let (runtime, url) = (runtime(), trio.url());
    assert!(vectors::run_all(|| RedisEngine::new(&url, &runtime)) > 800);
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for _ in 0..10 {
        let history = histories(60).new_tree(&mut runner).unwrap().current();
        run(&mut RedisEngine::new(&url, &runtime), &history).unwrap();
    }
}

fn lines_about(trio: &Trio, skipped: usize) -> Vec<String> {
    let sentinel = format!("127.0.0.1:{}", trio.sentinels[0].port());
    logs::all()[skipped..].iter().filter(|line| line.contains(&sentinel)).cloned().collect()
}

/// An operator's failover, with both servers up all the time.
fn moved_on(flavour: Flavour) {
    let before = logs::begin();
    let trio = Trio::start_with(flavour, OPTIONS);
    decides_as_it_should(&trio);
    let caller = Caller::start(&trio);
    caller.decides();
    trio.fail_over();
    until("a demoted server", || trio.is_demoted(0));
    caller.decides();

    // Nobody asks the one of yesterday any more; the new one had to be sent the script.
    let evaluated = |index| calls(&trio.server(index, &["INFO", "commandstats"]), "evalsha");
    until("the old one is left", || {
        let (old, new) = (evaluated(0), evaluated(1));
        caller.decides();
        evaluated(0) == old && evaluated(1) > new
    });
    let old = evaluated(0);
    decides_as_it_should(&trio);
    caller.decides();
    assert_eq!(evaluated(0), old, "the demoted server was asked again");
    let store = caller.stop();
    assert!(!format!("{store:?}").contains(SECRET), "{store:?}");

    let lines = lines_about(&trio, before);
    for server in &trio.servers {
        let told = format!("primary=\"127.0.0.1:{}\"", server.port());
        assert!(lines.iter().any(|line| line.contains(&told)), "{told}: {lines:#?}");
    }
    logs::all().iter().for_each(|line| assert!(!line.contains(SECRET), "{line}"));
}

#[test]
fn moved_redis_7() {
    moved_on(Flavour::Redis7);
}

#[test]
fn moved_valkey_9() {
    moved_on(Flavour::Valkey9);
}

/// A number of `INFO`.
fn number(info: &str, name: &str) -> u64 {
    let value = info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {info}"))
}

/// The primary dies, and comes back believing that it is one.
fn died_on(flavour: Flavour) {
    let before = logs::begin();
    let mut trio = Trio::start(flavour);
    let caller = Caller::start(&trio);
    caller.decides();
    caller.spend("ann", "before", 5);
    // What the replica has is not lost. (`WAIT` is about the writes of its own connection.)
    let offset = |index, name| number(&trio.server(index, &["INFO", "replication"]), name);
    let written = offset(0, "master_repl_offset");
    until("the replica has it", || offset(1, "slave_repl_offset") >= written);
    trio.servers[0].kill();
    until("an outage", || caller.store.health().by_kind.count(StoreErrorKind::Unavailable) > 0);
    trio.replace_the_dead(0);
    caller.decides();
    assert_eq!(caller.used("ann"), 5, "the replica knew");
    caller.spend("ann", "after", 1);

    trio.servers[0].restart();
    until("a demoted server", || trio.is_demoted(0));
    caller.decides();
    let stats = trio.server(0, &["INFO", "commandstats"]);
    assert_eq!((calls(&stats, "evalsha"), calls(&stats, "eval")), (0, 0), "it was asked when it came back");
    assert_eq!(caller.used("ann"), 6);
    let is_over = || !caller.store.health().by_kind.is_lasting(StoreErrorKind::Unavailable);
    until("the outage over", is_over);
    caller.stop();

    let lines = lines_about(&trio, before);
    let breaker: Vec<&String> = lines.iter().filter(|line| line.contains("circuit breaker")).collect();
    assert!(breaker.len() >= 2 && breaker[0].contains("circuit breaker open"), "{lines:#?}");
    assert!(breaker.last().unwrap().contains("circuit breaker closed"), "{breaker:#?}");
}

#[test]
fn died_redis_7() {
    died_on(Flavour::Redis7);
}

#[test]
fn died_valkey_9() {
    died_on(Flavour::Valkey9);
}
