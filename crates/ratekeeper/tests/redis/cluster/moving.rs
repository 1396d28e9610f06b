//! Slots that move and primaries that are replaced while callers ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, TestRunner};
use ratekeeper::{
    Algorithm, Check, Decision, Key, Override, OverrideScope, Quota, Reservation, Settled, Store, Timestamp,
};
use ratekeeper_testkit::Engine;
use ratekeeper_testkit::history::{histories, run};
use ratekeeper_testkit::servers::Cluster;

use super::{FLAVOURS, store};
use crate::engine::{RedisEngine, builder, fresh_prefix, runtime};
use crate::setup::{ask, charge, is_allowed, left, quota, until};

/// Callers that ask for a thousand units of each of these, over and over.
const SUBJECTS: u32 = 12;

/// While a slot moves key by key, and when it has moved: ASK, TRYAGAIN and MOVED.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_unit_is_lost_or_charged_twice_while_slots_move() {
    for flavour in FLAVOURS {
        let cluster = Arc::new(Cluster::start(flavour));
        let store = store(&cluster).await;
        let (stop, admitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let callers: Vec<_> = (0..SUBJECTS)
            .map(|number| {
                let (store, stop, admitted) = (store.clone(), Arc::clone(&stop), Arc::clone(&admitted));
                tokio::spawn(async move {
                    let (subject, quota): (_, Quota) =
                        (format!("s{number}"), "1000000/366d".parse().unwrap());
                    while !stop.load(Ordering::Relaxed) {
                        // What is not decided was not charged: slots move, nothing is lost.
                        assert!(is_allowed(&store, &charge("moving", &subject, &quota)).await);
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let moved = Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || {
            for number in 0..SUBJECTS {
                let slot = moved.slot_of(format!("{{s{number}}}").as_bytes());
                let to = (moved.owner(slot).unwrap() + 1) % 3;
                let moving = moved.begin_move(slot, to);
                moved.move_keys(&moving, 1);
                moved.end_move(moving);
            }
        })
        .await
        .unwrap();
        let before = admitted.load(Ordering::Relaxed);
        until("decisions after the moves", async || admitted.load(Ordering::Relaxed) > before + 200).await;
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.unwrap();
        }
        let quota = quota("1000000/366d");
        let mut charged = 0;
        for number in 0..SUBJECTS {
            charged += 1_000_000 - left(&store, &charge("moving", &format!("s{number}"), quota)).await;
        }
        let admitted = admitted.load(Ordering::Relaxed);
        // What comes back of a bucket meanwhile is less than one unit for each subject.
        assert!(
            charged <= admitted && charged + SUBJECTS >= admitted,
            "{charged} of {admitted} on {flavour}"
        );
    }
}

/// A store that is used first while keys are in between: the script is new to both nodes.
#[tokio::test]
async fn a_slot_that_is_moving_is_asked_for_where_it_is() {
    for flavour in FLAVOURS {
        let cluster = Cluster::start(flavour);
        let store = store(&cluster).await;
        let hour = quota("5/h");
        let (old, new) = (charge("old", "s", hour), charge("new", "s", hour));
        assert!(is_allowed(&store, &old).await);
        let slot = cluster.slot_of(b"{s}");
        let from = cluster.owner(slot).unwrap();
        let to = (from + 1) % 3;
        let moving = cluster.begin_move(slot, to);
        cluster.flush_scripts();
        // The first is still here, the second is asked for at the other node.
        let both = tokio::join!(ask(&store, &old), ask(&store, &new));
        assert!(both.0.unwrap().is_allowed() && both.1.unwrap().is_allowed(), "{flavour}");
        assert_eq!(cluster.ask(from, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]), "1", "{flavour}");
        cluster.end_move(moving);
        assert_eq!((left(&store, &old).await, left(&store, &new).await), (3, 4), "{flavour}");
    }
}

/// Histories go on as if nothing had happened while their slot moves between them.
#[test]
fn random_histories_while_slots_move() {
    for flavour in FLAVOURS {
        let (cluster, runtime) = (Cluster::start(flavour), runtime());
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let slot = cluster.slot_of(b"{all}");
        for _ in 0..8 {
            let history = histories(40).new_tree(&mut runner).unwrap().current();
            let engine = RedisEngine::with(builder(&cluster.url()).one_tag("all"), &runtime);
            run(&mut Moving { engine, cluster: &cluster, slot, asked: 0 }, &history).unwrap();
        }
    }
}

/// A store whose slot moves to the next node every few calls, as it learns from the nodes.
struct Moving<'c> {
    engine: RedisEngine,
    cluster: &'c Cluster,
    slot: u16,
    asked: u32,
}

impl Moving<'_> {
    fn moved(&mut self) -> &mut RedisEngine {
        self.asked += 1;
        if self.asked.is_multiple_of(8) {
            self.cluster.move_slot(self.slot, (self.cluster.owner(self.slot).unwrap() + 1) % 3);
        }
        &mut self.engine
    }
}

impl Engine for Moving<'_> {
    fn set_now(&mut self, now: Timestamp) {
        self.engine.set_now(now);
    }

    fn check(&mut self, check: &Check<'_>) -> Result<Decision, String> {
        self.moved().check(check)
    }

    fn reserve(&mut self, check: &Check<'_>, reservation: &Reservation<'_>) -> Result<Decision, String> {
        self.moved().reserve(check, reservation)
    }

    fn settle(&mut self, id: &[u8], actual: Option<u32>) -> Result<Settled, String> {
        self.moved().settle(id, actual)
    }

    fn refund(&mut self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, String> {
        self.moved().refund(check, decision, units)
    }

    fn reset(&mut self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, String> {
        self.moved().reset(key, algorithm)
    }

    fn set_override(&mut self, scope: OverrideScope<'_>, to: Option<Override>) -> Result<(), String> {
        self.moved().set_override(scope, to)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_primary_stops_only_its_own_keys_until_its_replica_takes_over() {
    for flavour in FLAVOURS {
        let mut cluster = Cluster::start(flavour);
        let usual = ratekeeper::RedisStore::builder(&cluster.url()).prefix(&fresh_prefix());
        let store = usual.build().unwrap();
        let hour = quota("1000000/h");
        let subjects: Vec<String> = (0..30).map(|number| format!("s{number}")).collect();
        let owner = |cluster: &Cluster, subject: &str| {
            cluster.owner(cluster.slot_of(format!("{{{subject}}}").as_bytes())).unwrap()
        };
        let owners: Vec<usize> = subjects.iter().map(|subject| owner(&cluster, subject)).collect();
        for subject in &subjects {
            until("a first decision", async || ask(&store, &charge("q", subject, hour)).await.is_ok()).await;
        }
        let dead = owners[0];
        cluster.nodes[dead].kill();
        until("a breaker that opens", async || {
            let _ = ask(&store, &charge("q", &subjects[0], hour)).await;
            store.health().nodes_up == 2
        })
        .await;
        let others = subjects.iter().zip(&owners).filter(|(_, owner)| **owner != dead);
        for (subject, _) in others {
            until("others that go on", async || ask(&store, &charge("q", subject, hour)).await.is_ok()).await;
        }
        let heir = cluster.replace_the_dead(dead);
        assert_ne!(heir, dead);
        for subject in &subjects {
            until("decisions after the failover", async || {
                ask(&store, &charge("q", subject, hour)).await.is_ok()
            })
            .await;
        }
        until("three nodes again", async || store.health().nodes_up == 3).await;
    }
}

/// Only the node that does not know the script is sent it, so replicas that are down hold up nobody.
#[tokio::test]
async fn dead_replicas_do_not_hold_up_the_script() {
    for flavour in FLAVOURS {
        let mut cluster = Cluster::start(flavour);
        (3..6).for_each(|replica| cluster.nodes[replica].kill());
        let first = store(&cluster).await;
        cluster.flush_scripts();
        let late = store(&cluster).await;
        cluster.flush_scripts();
        for (name, store) in [("first", &first), ("late", &late)] {
            for number in 0..20 {
                let subject = format!("s{number}");
                assert!(is_allowed(store, &charge(name, &subject, quota("1/h"))).await, "{flavour}");
            }
            let health = store.health();
            assert_eq!((health.failures, health.nodes_up), (0, 3), "{flavour}");
        }
    }
}

/// A replica that takes over has no script; a switch of roles cuts no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_change_while_callers_ask() {
    for flavour in FLAVOURS {
        let cluster = Arc::new(Cluster::start(flavour));
        let store = store(&cluster).await;
        let (stop, decided) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let caller = tokio::spawn({
            let (store, stop, decided) = (store.clone(), Arc::clone(&stop), Arc::clone(&decided));
            async move {
                let quota: Quota = "1000000/h".parse().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if ask(&store, &charge("q", "s", &quota)).await.is_ok() {
                        decided.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        let slot = cluster.slot_of(b"{s}");
        for _ in 0..2 {
            let of = Arc::clone(&cluster);
            let primary = cluster.owner(slot).unwrap();
            tokio::task::spawn_blocking(move || {
                of.fail_over(primary);
                of.until_settled();
                of.flush_scripts();
            })
            .await
            .unwrap();
            let before = decided.load(Ordering::Relaxed);
            until("decisions", async || decided.load(Ordering::Relaxed) > before + 50).await;
        }
        stop.store(true, Ordering::Relaxed);
        caller.await.unwrap();
    }
}
