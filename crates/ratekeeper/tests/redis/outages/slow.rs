//! Servers that are slower than the deadline.

use std::time::Duration;

use ratekeeper::{BreakerState, Store};
use ratekeeper_testkit::servers::{Flavour, SlowWay};

use super::rig::{Rig, server};
use super::until;

const LIMIT: u64 = 10_000_000;
const DEADLINE: Duration = Duration::from_millis(25);
/// Beyond the deadline, also where own lateness moves that: at most once over.
const TOO_SLOW: Duration = Duration::from_millis(75);

/// A probe must answer as fast as calls do, or the breaker would close only to open again.
#[test]
fn a_server_slower_than_the_deadline_stays_given_up() {
    let server = server(Flavour::Redis7, &[]);
    let way = SlowWay::to(server.port(), Duration::ZERO);
    let rig = Rig::with("slow", way.port(), LIMIT, |builder| builder.deadline(DEADLINE)).connected();
    let connections = way.connections();
    way.delay(TOO_SLOW);
    until("a breaker that opens", || {
        let _ = rig.ask("ann", false);
        rig.health().breaker != BreakerState::Closed
    });
    // Each probe is a connection. One that this process looks at too late finds its answer, and closes the breaker by
    // right: three in a row that do not are enough.
    let (mut opened, mut first) = (rig.health().breaker_opened, connections);
    until("three probes", || {
        let now = rig.health().breaker_opened;
        if now != opened {
            (opened, first) = (now, way.connections());
        }
        let _ = rig.ask("ann", false);
        way.connections() >= first + 3
    });
    // A probe that takes too long to connect says so instead, until the next one.
    until("what to do", || {
        let error = rig.ask("ann", false).err().map(|error| error.to_string()).unwrap_or_default();
        error.contains("raise that (--store-deadline)") && error.contains("it answers in")
    });
    let lines = rig.lines();
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    let (opens, closes) = (count("circuit breaker open"), count("circuit breaker closed"));
    let slow: Vec<&String> = lines.iter().filter(|line| line.contains("slower than its deadline")).collect();
    assert!((1..=1 + closes).contains(&slow.len()) && (closes..=1 + closes).contains(&opens), "{lines:#?}");
    assert!(slow.iter().all(|line| line.contains("--store-deadline")), "{slow:#?}");

    way.delay(Duration::ZERO);
    rig.breaker_is(BreakerState::Closed);
    until("an answer", || rig.ask("ann", false).is_ok());
}

/// Within the deadline, if not by much: what fails open all the same is logged, with what to do.
#[test]
fn a_server_just_within_the_deadline_fails_no_check_in_silence() {
    let server = server(Flavour::Redis7, &[]);
    let way = SlowWay::to(server.port(), Duration::from_millis(17));
    let rig = Rig::with("just in time", way.port(), LIMIT, |builder| builder.deadline(DEADLINE)).connected();
    let log = rig.load(|load| load.store_decides(10_000));
    let lines = rig.lines();
    rig.say(&format!("{} of {} unanswered: {lines:#?}", log.unanswered(), log.0.len()));
    assert_eq!(log.unanswered(), rig.health().failures);
    assert!(
        log.unanswered() == 0
            || lines.iter().any(|line| line.contains("rules decide by their failure policy"))
    );
}

/// With a round trip of 200 ms, two batches of 64 would be 640 checks in a second.
#[test]
fn what_is_under_way_follows_the_round_trip() {
    const CALLERS: usize = 4_096;
    const FAR: Duration = Duration::from_millis(200);
    let server = server(Flavour::Redis7, &[]);
    let way = SlowWay::to(server.port(), FAR);
    let deadline = Duration::from_secs(10);
    let settings = |builder: ratekeeper::RedisStoreBuilder| builder.deadline(deadline);
    let rig = Rig::with("far away", way.port(), LIMIT, settings).connected();
    let calls = |callers| {
        let began = std::time::Instant::now();
        rig.runtime.block_on(async {
            let all = (0..callers).map(|_| {
                let limiter = rig.limiter.clone();
                tokio::spawn(async move { limiter.check("all").await.unwrap().is_allowed() })
            });
            for call in all.collect::<Vec<_>>() {
                assert!(call.await.unwrap());
            }
        });
        (began, std::time::Instant::now())
    };
    // The first calls find out how far away it is.
    calls(64);
    let health = rig.store.health();
    let (began, end) = calls(CALLERS);
    let took = end - began;
    let batches = rig.store.health().batches - health.batches;
    rig.say(&format!("{CALLERS} checks in {batches} batches took {took:?}"));
    // Two at a time would be 32 round trips.
    let two_by_two = FAR * u32::try_from(CALLERS / 64 / 2).unwrap();
    // A machine that keeps us from a processor keeps the server and the way to it, too.
    let late = rig.control.lateness(began, end);
    assert!(took < two_by_two / 2 + late, "{took:?}, late by {late:?}");
}
