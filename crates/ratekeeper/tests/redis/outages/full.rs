//! A server without memory for another counter.

use ratekeeper::{BreakerState, Origin, StoreErrorKind};
use ratekeeper_testkit::servers::{Flavour, Server};

use super::rig::{Rig, cli, info, server};
use super::until;

const LIMIT: u64 = 100;
const SOME: u64 = 1_000;
/// Checks a lost connection may take with it: two batches.
const LOST_MAX: u64 = 2 * 64;
/// Writes far beyond any bound: a script that began may go on.
const FILL: &str = "for i = 1, 200 do redis.call('SET', 'fill' .. i, string.rep('x', 100000)) end";

/// A third of the callers each: a counter that is used up, one that is not, none yet.
fn subject(caller: usize) -> String {
    match caller % 3 {
        0 => "spent".to_owned(),
        1 => "half".to_owned(),
        _ => format!("new{caller}"),
    }
}

fn full_on(flavour: Flavour) {
    let server = server(flavour, &[("maxmemory-policy", "noeviction")]);
    let rig = Rig::patient(&format!("full, {flavour}"), &server, LIMIT).connected();
    rig.spend("spent", LIMIT);
    rig.spend("half", LIMIT / 2);
    fill(&server);

    let timeouts = rig.health().timeouts;
    let log = rig.load_of(subject, |load| {
        load.outage_decides(SOME);
        load.store_decides(SOME);
        // A new connection finds the same server.
        assert_ne!(cli(&server, &["CLIENT", "KILL", "TYPE", "normal"]), "0");
        load.outage_decides(SOME);
        load.store_decides(SOME);
    });
    assert_eq!(log.admitted(), 0, "what could not be counted");
    let denied = log.count(|seen| seen.origin == Origin::Store);
    assert_eq!(log.count(|seen| seen.caller % 3 == 0 && seen.origin == Origin::Store), denied);
    let unanswered = log.count(|seen| seen.caller % 3 == 0 && seen.origin == Origin::Outage);
    let lost = rig.health().timeouts - timeouts;
    rig.say(&format!("{denied} denied, {unanswered} not answered, {lost} timeouts"));
    assert!(unanswered <= LOST_MAX + lost, "only what went down with the connection");

    assert!(!rig.ask("spent", false).unwrap().is_allowed(), "what is used up stays so");
    for subject in ["half", "new"] {
        let error = rig.ask(subject, false).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Capacity, "{error}");
        assert!(error.is_transient() && error.to_string().contains("OOM"), "{error}");
    }
    // Peeks write nothing, so they go on.
    assert_eq!((rig.used("spent"), rig.used("half"), rig.used("new")), (LIMIT, LIMIT / 2, 0));

    let _ = cli(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    until("room", || rig.ask("new", false).is_ok_and(|decision| decision.is_allowed()));
    assert_eq!((rig.used("spent"), rig.used("half")), (LIMIT, LIMIT / 2));
    rig.breaker_is(BreakerState::Closed);
    rig.assert_logged(StoreErrorKind::Capacity, "OOM");
    rig.assert_lines();
}

fn fill(server: &Server) {
    let used: u64 = info(server, "memory", "used_memory").unwrap().parse().unwrap();
    let _ = cli(server, &["CONFIG", "SET", "maxmemory", &(used + (4 << 20)).to_string()]);
    let _ = cli(server, &["EVAL", FILL, "0"]);
}

#[test]
fn full_redis_7() {
    full_on(Flavour::Redis7);
}

#[test]
fn full_redis_6_2() {
    full_on(Flavour::Redis62);
}

#[test]
fn full_valkey_9() {
    full_on(Flavour::Valkey9);
}
