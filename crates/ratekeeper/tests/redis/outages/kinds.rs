//! Every kind of failure is logged and counted, and what can go on goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratekeeper::{Algorithm, BreakerState, Clock, Key, Name, Origin, Store, StoreErrorKind, Timestamp};
use ratekeeper_testkit::servers::{Flavour, Server, SlowWay};

use super::rig::{RULE, Rig, cli, server};
use super::{PATIENCE, until};

const LIMIT: u64 = 1_000_000;

/// Something that is not ours is at the key of a counter.
#[test]
fn an_unreadable_counter_is_logged_and_only_a_reset_deletes_it() {
    for flavour in [Flavour::Redis7, Flavour::Redis62, Flavour::Valkey9] {
        let server = server(flavour, &[]);
        let rig = Rig::patient("unreadable", &server, LIMIT).connected();
        let key = format!("rk:c:{RULE}:secret-subject");
        let _ = cli(&server, &["RPUSH", &key, "x"]);
        let error = rig.ask("secret-subject", false).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unreadable);
        assert!(error.to_string().contains(&format!("the key rk:c:{RULE}:...")), "{error}");
        assert!(!error.to_string().contains("secret-subject"), "{error}");
        assert!(rig.ask("another", false).is_ok());
        assert_eq!(cli(&server, &["LRANGE", &key, "0", "-1"]), "x", "a check leaves it alone");

        let name = Name::new(RULE).unwrap();
        let reset = rig.store.reset(Key::new(name, "secret-subject").unwrap(), Algorithm::FixedWindow);
        assert!(rig.runtime.block_on(reset).unwrap(), "{flavour}");
        assert_eq!(cli(&server, &["EXISTS", &key]), "0");
        assert!(rig.ask("secret-subject", false).unwrap().is_allowed());
        rig.assert_logged(StoreErrorKind::Unreadable, &format!("rk:c:{RULE}:..."));
    }
}

#[test]
fn a_user_who_may_not_write_is_logged() {
    let server = server(Flavour::Redis7, &[]);
    let rig = Rig::patient("NOPERM", &server, LIMIT).connected();
    assert!(rig.ask("ann", false).is_ok());
    let _ = cli(&server, &["ACL", "SETUSER", "default", "-set"]);
    until("a refusal", || {
        rig.ask("ben", false).is_err_and(|error| error.kind() == StoreErrorKind::Permission)
    });
    let _ = cli(&server, &["ACL", "SETUSER", "default", "+set"]);
    until("an answer", || rig.ask("ben", false).is_ok());
    rig.assert_logged(StoreErrorKind::Permission, "");
}

#[test]
fn a_node_of_a_cluster_is_refused_when_it_is_connected_to() {
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        let server = server(flavour, &[("cluster-enabled", "yes")]);
        let rig = Rig::patient("cluster", &server, LIMIT);
        rig.breaker_is(BreakerState::Open);
        let error = rig.ask("ann", false).unwrap_err();
        assert!(error.to_string().contains("node of a cluster"), "{error}");
        let lines = rig.lines();
        assert!(
            lines[0].contains("node of a cluster: name the cluster, with redis+cluster://"),
            "{lines:#?}"
        );
    }
}

/// A user who may not ask whether it is a node of a cluster is let in. What it then refuses is heard.
#[test]
fn keys_in_several_slots_of_a_cluster_are_logged() {
    let server = server(Flavour::Redis7, &[("cluster-enabled", "yes")]);
    let _ = cli(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let _ = cli(&server, &["ACL", "SETUSER", "default", "-info"]);
    let rig = Rig::patient("CROSSSLOT", &server, LIMIT).connected();
    // The node must have noticed that it has all slots.
    until("an answer", || rig.ask("ann", false).is_ok());
    let name = Name::new(RULE).unwrap();
    let mut charges = ratekeeper::Charges::new();
    for subject in ["ann", "ben"] {
        charges.push(ratekeeper::Charge::new(Key::new(name, subject).unwrap(), &rig.quota)).unwrap();
    }
    let check = charges.check().unwrap();
    let error = rig.runtime.block_on(rig.store.check(&check)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Protocol, "{error}");
    assert!(rig.health().by_kind.is_lasting(StoreErrorKind::Protocol));
    assert_eq!(rig.used("ann"), 1, "nothing was charged");
    rig.assert_logged(StoreErrorKind::Protocol, "CrossSlot");
}

/// A server on which the name of our command means another one: it takes any number of words and answers a number.
#[test]
fn answers_that_make_no_sense_are_logged() {
    const NONSENSE: &str = "rename-command EVALSHA \"\"\nrename-command DEL EVALSHA\n";
    let mut server = server(Flavour::Redis7, &[]);
    let rig = Rig::patient("nonsense", &server, LIMIT).connected();
    assert!(rig.ask("ann", false).unwrap().is_allowed());
    let file = server.dir().join("redis.conf");
    let sensible = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{sensible}{NONSENSE}")).unwrap();
    server.restart();
    until("an answer without sense", || {
        rig.ask("ann", false).is_err_and(|error| error.kind() == StoreErrorKind::Protocol)
    });
    let decision = rig.runtime.block_on(rig.limiter.check("ann")).unwrap();
    assert!(decision.is_allowed() && decision.origin() == Origin::Outage, "{decision:?}");
    let by_kind = rig.health().by_kind;
    assert!(by_kind.is_lasting(StoreErrorKind::Protocol) && by_kind.count(StoreErrorKind::Protocol) >= 2);

    std::fs::write(&file, sensible).unwrap();
    server.restart();
    until("an answer", || rig.ask("ann", false).is_ok());
    rig.assert_logged(StoreErrorKind::Protocol, "makes no sense");
}

/// One of four connections is cut off: the others are used.
#[test]
fn a_connection_that_is_down_leaves_its_checks_to_the_others() {
    /// Five of them pass before the breaker opens. A busy machine may need one for an answer.
    const DEADLINE: Duration = Duration::from_secs(2);
    let server = server(Flavour::Redis7, &[]);
    let way = SlowWay::to(server.port(), Duration::ZERO);
    let settings = |builder: ratekeeper::RedisStoreBuilder| builder.connections(4).deadline(DEADLINE);
    let rig = Rig::with("four connections", way.port(), LIMIT, settings).connected();
    until("four connections", || way.connections() >= 4);
    way.cut_off(1);
    // The first to miss its answer is the last: the breaker would let five of them fail.
    until("a failure", || rig.ask("ann", false).is_err());
    let failures = (0..1_000).filter(|_| rig.ask("ann", false).is_err()).count();
    assert_eq!(failures, 0, "{:?}", rig.lines());
    until("a breaker that opened", || rig.health().breaker_opened > 0);
    // The probe of the breaker makes a new connection, which is not cut off.
    rig.breaker_is(BreakerState::Closed);
}

/// A store whose runtime is gone fails at once, and does not fill up a queue that has no task.
#[test]
fn a_store_without_its_runtime_fails_at_once() {
    let server = Server::start_with(Flavour::Redis7, &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = {
        let _inside = runtime.enter();
        ratekeeper::RedisStore::builder(&server.url()).deadline(PATIENCE).build().unwrap()
    };
    until("a connection", || runtime.block_on(store.ping()).is_ok());
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    let quota = super::rig::quota(LIMIT);
    let charge = ratekeeper::Charge::new(Key::new(Name::new(RULE).unwrap(), "ann").unwrap(), &quota);
    let check = ratekeeper::Check::one(&charge);
    let began = std::time::Instant::now();
    for _ in 0..10 {
        let error = other.block_on(store.check(&check)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(store.health().waiting, 0);
}

/// A clock that panics a few times.
#[derive(Debug)]
struct Faulty(AtomicU32);

impl Clock for Faulty {
    fn now(&self) -> Timestamp {
        let left = self.0.load(Ordering::Relaxed);
        if left > 0 {
            self.0.store(left - 1, Ordering::Relaxed);
            panic!("as the test wants it");
        }
        Timestamp::from_micros(1_700_000_000_000_000)
    }
}

#[test]
fn a_task_that_dies_takes_no_place_with_it() {
    let server = Server::start_with(Flavour::Redis7, &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let clock = Arc::new(Faulty(AtomicU32::new(0)));
    let store = {
        let _inside = runtime.enter();
        ratekeeper::RedisStore::builder(&server.url())
            .clock(clock.clone())
            .deadline(PATIENCE)
            .build()
            .unwrap()
    };
    until("a connection", || runtime.block_on(store.ping()).is_ok());
    let quota = super::rig::quota(LIMIT);
    let charge = ratekeeper::Charge::new(Key::new(Name::new(RULE).unwrap(), "ann").unwrap(), &quota);
    let check = ratekeeper::Check::one(&charge);
    clock.0.store(4, Ordering::Relaxed);
    for _ in 0..4 {
        let error = runtime.block_on(store.check(&check)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "at once, and not after the deadline: {error}");
    }
    until("an answer", || runtime.block_on(store.check(&check)).is_ok());
}
