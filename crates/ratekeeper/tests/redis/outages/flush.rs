//! A server that is told to forget the script while batches are on their way to it.

use ratekeeper_testkit::servers::{Flavour, Server};

use super::load::CALLERS;
use super::rig::{Rig, SHARED, calls_of, cli, server};
use super::until;

const LIMIT: u64 = 40_000;

fn flushed_on(flavour: Flavour) {
    let server = server(flavour, &[]);
    let rig = Rig::new(&format!("SCRIPT FLUSH, {flavour}"), &server, LIMIT).connected();
    let (connection, sent_before) = (connections(&server), calls_of(&server, "eval"));
    let log = rig.load(|load| {
        until("a denial for every caller", || {
            assert_eq!(cli(&server, &["-r", "20", "-i", "0.002", "SCRIPT", "FLUSH"]).lines().count(), 20);
            load.denied() == CALLERS
        });
    });
    let (sent_whole, batches) = (calls_of(&server, "eval") - sent_before, rig.health().batches);
    rig.say(&format!("{sent_whole} of {batches} batches met a server that did not know the script"));
    assert!(sent_whole > 0);
    assert_eq!(rig.used(SHARED), LIMIT);
    assert!((LIMIT.saturating_sub(log.unanswered())..=LIMIT).contains(&log.admitted()), "{}", log.admitted());
    log.assert_each_unit_once();
    if log.unanswered() == 0 {
        assert_eq!(connections(&server), connection, "it is no reason to connect again");
    }
    rig.assert_lines();
}

/// The numbers of all connections but the one that asks.
fn connections(server: &Server) -> Vec<String> {
    let clients = cli(server, &["CLIENT", "LIST"]);
    let others = clients.lines().filter(|line| !line.contains("cmd=client"));
    others.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn flushed_redis_7() {
    flushed_on(Flavour::Redis7);
}

#[test]
fn flushed_redis_6_2() {
    flushed_on(Flavour::Redis62);
}

#[test]
fn flushed_valkey_9() {
    flushed_on(Flavour::Valkey9);
}
