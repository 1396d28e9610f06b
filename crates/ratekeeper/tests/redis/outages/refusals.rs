//! Servers that answer, but not what was asked.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use ratekeeper::{BreakerState, Origin, StoreErrorKind};
use ratekeeper_testkit::servers::{BlackHole, Flavour, Server};

use super::rig::{PASSWORD, Rig, cli, info, server};
use super::until;

const LIMIT: u64 = 10_000_000;
const SOME: u64 = 500;
const SPENT: &str = "spent";
const FREE: &str = "free";

/// Under load, a server begins to refuse and then stops to. Callers get the failure policy
/// or a right answer; what they were told adds up.
fn refuses(rig: &Rig, (kind, words): (StoreErrorKind, &str), begin: impl FnOnce(), end: impl FnOnce()) {
    rig.spend(SPENT, LIMIT);
    let (mut from, mut to) = (None, None);
    let subject = |caller| if caller % 2 == 0 { SPENT.to_owned() } else { FREE.to_owned() };
    let log = rig.load_of(subject, |load| {
        load.store_decides(SOME);
        begin();
        until(words, || match rig.ask("asked by hand", false) {
            Err(error) if error.kind() == kind => {
                assert!(error.to_string().contains(words), "{error}");
                rig.say(&error.to_string());
                true
            }
            // Not yet, or its processor is busy with something else.
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error}");
                false
            }
            Ok(_) => false,
        });
        from = Some(Instant::now());
        load.outage_decides(SOME);
        to = Some(Instant::now());
        end();
        rig.breaker_is(BreakerState::Closed);
        load.store_decides(SOME);
    });
    let (from, to) = (from.unwrap(), to.unwrap());
    let meanwhile = |seen: &super::load::Seen| seen.start >= from && seen.end <= to;
    let admitted = |seen: &super::load::Seen| seen.allowed && seen.origin == Origin::Store;
    assert_eq!(log.count(|seen| admitted(seen) && meanwhile(seen)), 0, "while it refuses");
    assert_eq!(log.count(|seen| admitted(seen) && seen.caller % 2 == 0), 0, "what is used up stays so");
    assert_eq!(rig.used(SPENT), LIMIT);
    let (used, told) = (rig.used(FREE), log.admitted());
    assert!((told..=told + log.unanswered()).contains(&used), "{told} told, {used} charged");
    log.assert_each_unit_once();
    rig.assert_lines();
    // The others open the breaker, which has lines of its own.
    if kind == StoreErrorKind::ReadOnly {
        rig.assert_logged(kind, words);
    }
}

fn replica_on(flavour: Flavour) {
    let (server, master) = (server(flavour, &[]), BlackHole::start());
    let rig = Rig::patient(&format!("READONLY, {flavour}"), &server, LIMIT).connected();
    let port = master.port().to_string();
    refuses(
        &rig,
        (StoreErrorKind::ReadOnly, "READONLY"),
        || drop(cli(&server, &["REPLICAOF", "127.0.0.1", &port])),
        || drop(cli(&server, &["REPLICAOF", "NO", "ONE"])),
    );
}

#[test]
fn a_replica_of_redis_7() {
    replica_on(Flavour::Redis7);
}

#[test]
fn a_replica_of_redis_6_2() {
    replica_on(Flavour::Redis62);
}

#[test]
fn a_replica_of_valkey_9() {
    replica_on(Flavour::Valkey9);
}

#[test]
fn a_replica_without_its_master() {
    let (server, master) =
        (server(Flavour::Redis7, &[("replica-serve-stale-data", "no")]), BlackHole::start());
    let rig = Rig::patient("MASTERDOWN", &server, LIMIT).connected();
    let port = master.port().to_string();
    refuses(
        &rig,
        (StoreErrorKind::Unavailable, "Link with MASTER is down"),
        || drop(cli(&server, &["REPLICAOF", "127.0.0.1", &port])),
        || drop(cli(&server, &["REPLICAOF", "NO", "ONE"])),
    );
}

#[test]
fn a_master_without_replicas() {
    let server = server(Flavour::Redis7, &[]);
    let rig = Rig::patient("NOREPLICAS", &server, LIMIT).connected();
    let require = |replicas| drop(cli(&server, &["CONFIG", "SET", "min-replicas-to-write", replicas]));
    refuses(&rig, (StoreErrorKind::ReadOnly, "NOREPLICAS"), || require("1"), || require("0"));
}

#[test]
fn a_disk_that_cannot_be_written() {
    let server = server(Flavour::Redis7, &[("save", "3600 1000000")]);
    let rig = Rig::patient("MISCONF", &server, LIMIT).connected();
    // A folder where the file should be.
    let dump = server.dir().join("dump.rdb");
    let save = |status: &str| {
        let _ = cli(&server, &["BGSAVE"]);
        until(status, || info(&server, "persistence", "rdb_last_bgsave_status").as_deref() == Some(status));
    };
    let spoil = || {
        fs::create_dir(&dump).unwrap();
        save("err");
    };
    let repair = || {
        fs::remove_dir(&dump).unwrap();
        save("ok");
    };
    refuses(&rig, (StoreErrorKind::ReadOnly, "MISCONF"), spoil, repair);
}

/// Sends a command that is not answered before something else happens.
fn send(server: &Server, command: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    write!(stream, "AUTH {PASSWORD}\r\n{command}\r\n").unwrap();
    stream
}

#[test]
fn a_script_that_does_not_end() {
    let server = server(Flavour::Redis7, &[("lua-time-limit", "5")]);
    let rig = Rig::patient("BUSY", &server, LIMIT).connected();
    let mut somebody = None;
    refuses(
        &rig,
        (StoreErrorKind::Unavailable, "BUSY"),
        || somebody = Some(send(&server, r#"EVAL "while true do end" 0"#)),
        || drop(cli(&server, &["SCRIPT", "KILL"])),
    );
}

#[test]
fn a_server_that_reads_its_data() {
    let directives = [
        ("enable-debug-command", "yes"),
        ("key-load-delay", "200"),
        ("loading-process-events-interval-bytes", "1024"),
    ];
    let server = server(Flavour::Redis7, &directives);
    let rig = Rig::patient("LOADING", &server, LIMIT).connected();
    let _ = cli(&server, &["DEBUG", "POPULATE", "4000"]);
    let mut somebody = None;
    refuses(
        &rig,
        (StoreErrorKind::Unavailable, "loading the dataset"),
        || somebody = Some(send(&server, "DEBUG RELOAD")),
        || until("all of it read", || info(&server, "persistence", "loading").as_deref() == Some("0")),
    );
}
