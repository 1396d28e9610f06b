//! Servers that die, stand still, never answer or hang up.

use std::time::Instant;

use ratekeeper::BreakerState;
use ratekeeper_testkit::servers::{BlackHole, Flavour, Server};

use super::rig::{Rig, SHARED, cli, server};
use super::until;

/// More than the callers use up before the outage is over.
const LIMIT: u64 = 60_000;
/// Decisions to wait for, where there should be some.
const SOME: u64 = 2_000;
/// What the server writes down before it answers.
const DURABLE: [(&str, &str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];

/// Fails under load and comes back knowing what it knew: the callers' admissions and what
/// was charged without an answer come to the limit, and never to more.
fn outage_with_memory(rig: &Rig, server: &mut Server, fail: fn(&mut Server), recover: fn(&mut Server)) {
    let before = rig.load(|load| load.store_decides(SOME));
    let used = rig.used(SHARED);
    assert!((before.admitted()..=before.admitted() + before.unanswered()).contains(&used));

    let during = rig.load(|load| outage(rig, server, load, fail, recover));
    worked_through(server);
    let told = before.admitted() + during.admitted();
    let used = rig.used(SHARED);
    let unanswered = before.unanswered() + during.unanswered();
    assert!((told..=told + unanswered).contains(&used), "{told} told, {used} charged, {unanswered} unknown");
    rig.say(&format!("{} were charged and never told", used - told));

    let after = rig.load(super::load::Load::all_denied);
    let left = LIMIT - used;
    assert!((left.saturating_sub(after.unanswered())..=left).contains(&after.admitted()));
    assert_eq!(rig.used(SHARED), LIMIT);
    let all = before.and(during).and(after);
    all.assert_each_unit_once();
    assert_eq!(rig.limiter.outages().allowed, all.let_through());
    rig.assert_lines();
}

/// The breaker opens, costs nothing while it is open, and closes by itself.
fn outage(
    rig: &Rig,
    server: &mut Server,
    load: &super::load::Load,
    fail: fn(&mut Server),
    recover: fn(&mut Server),
) {
    load.store_decides(SOME);
    let opened = rig.health().breaker_opened;
    fail(server);
    until("an open breaker", || rig.health().breaker_opened > opened);
    rig.assert_refusals_are_cheap();
    load.outage_decides(SOME);
    recover(server);
    rig.breaker_is(BreakerState::Closed);
    load.store_decides(SOME);
}

/// Waits until the server has read what lost connections had sent: then it forgets them.
fn worked_through(server: &Server) {
    until("the store's connection alone", || {
        let clients = cli(server, &["CLIENT", "LIST"]);
        clients.lines().filter(|line| !line.is_empty()).count() == 2
    });
}

fn killed_on(flavour: Flavour) {
    let mut server = server(flavour, &DURABLE);
    let rig = Rig::new(&format!("kill -9, {flavour}"), &server, LIMIT).connected();
    outage_with_memory(&rig, &mut server, Server::kill, Server::restart);
}

#[test]
fn killed_and_restarted_redis_7() {
    killed_on(Flavour::Redis7);
}

#[test]
fn killed_and_restarted_redis_6_2() {
    killed_on(Flavour::Redis62);
}

#[test]
fn killed_and_restarted_valkey_9() {
    killed_on(Flavour::Valkey9);
}

fn stopped_on(flavour: Flavour) {
    let mut server = server(flavour, &[]);
    let rig = Rig::new(&format!("SIGSTOP, {flavour}"), &server, LIMIT).connected();
    outage_with_memory(&rig, &mut server, |server| server.pause(), |server| server.resume());
}

#[test]
fn stopped_and_continued_redis_7() {
    stopped_on(Flavour::Redis7);
}

#[test]
fn stopped_and_continued_redis_6_2() {
    stopped_on(Flavour::Redis62);
}

#[test]
fn stopped_and_continued_valkey_9() {
    stopped_on(Flavour::Valkey9);
}

/// A server that forgets everything admits the limit once more, and not a unit beyond.
#[test]
fn killed_without_a_memory() {
    let mut server = server(Flavour::Redis7, &[]);
    let rig = Rig::new("kill -9, nothing on disk", &server, LIMIT).connected();
    let mut killed = None;
    let log = rig.load(|load| {
        load.store_decides(SOME);
        server.kill();
        killed = Some(Instant::now());
        rig.breaker_is(BreakerState::Open);
        load.outage_decides(SOME);
        server.restart();
        rig.breaker_is(BreakerState::Closed);
        load.all_denied();
    });
    // No answer of the first life took so long that its request began before the kill and
    // was answered by the second.
    let (first, second) = log.split_at(killed.unwrap());
    assert!(first.admitted() >= SOME - super::load::CALLERS as u64 && first.admitted() <= LIMIT);
    assert!((LIMIT.saturating_sub(second.unanswered())..=LIMIT).contains(&second.admitted()));
    first.assert_each_unit_once();
    second.assert_each_unit_once();
    assert_eq!(rig.used(SHARED), LIMIT);
    rig.assert_lines();
}

/// There from the start, and never says a word.
#[test]
fn a_port_that_never_answers() {
    let hole = BlackHole::start();
    let rig = Rig::with("black hole", hole.port(), LIMIT, |builder| builder);
    let log = rig.load(|load| {
        rig.breaker_is(BreakerState::Open);
        rig.assert_refusals_are_cheap();
        load.outage_decides(10 * SOME);
    });
    assert_eq!(log.admitted(), 0);
    assert_eq!(log.let_through(), log.0.len() as u64);
    assert_eq!(rig.limiter.outages().allowed, log.let_through());
    assert!(rig.health().breaker_opened == 1 && rig.health().breaker != BreakerState::Closed);
    rig.assert_lines();
}

/// Hung up on again and again, it connects again, and charges nothing twice.
#[test]
fn hung_up_on() {
    let server = server(Flavour::Redis7, &[]);
    let rig = Rig::new("CLIENT KILL", &server, LIMIT).connected();
    let log = rig.load(|load| {
        for _ in 0..10 {
            load.store_decides(SOME);
            assert!(cli(&server, &["CLIENT", "KILL", "TYPE", "normal"]) != "0");
        }
        load.all_denied();
    });
    let used = rig.used(SHARED);
    assert_eq!(used, LIMIT);
    assert!((LIMIT.saturating_sub(log.unanswered())..=LIMIT).contains(&log.admitted()));
    log.assert_each_unit_once();
    rig.say(&format!("breaker opened {} times", rig.health().breaker_opened));
    rig.assert_lines();
}

/// Nobody notices a connection that is closed while nothing is asked; what is asked next
/// may be lost with it, and nothing after that.
#[test]
fn hung_up_on_while_idle() {
    let server = server(Flavour::Redis7, &[]);
    // Patient: a call that a busy machine does not send in time is lost, too, but by its total.
    let rig = Rig::patient("CLIENT KILL, idle", &server, LIMIT).connected();
    for round in 1..=20 {
        let timeouts = rig.health().timeouts;
        assert_ne!(cli(&server, &["CLIENT", "KILL", "TYPE", "normal"]), "0");
        let mut lost = 0;
        until("an answer", || {
            let answer = rig.ask(SHARED, false);
            lost += u64::from(answer.is_err());
            answer.is_ok()
        });
        assert!(lost <= 1 + rig.health().timeouts - timeouts, "{lost} lost in round {round}");
    }
    rig.assert_lines();
}
