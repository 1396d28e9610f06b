//! Calls that are given up: never sent again, never answered to somebody else.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt;
use ratekeeper::{
    BreakerPolicy, BreakerState, Charge, Check, Decision, Key, Name, Quota, RedisStore, Store, StoreError,
    StoreErrorKind,
};
use ratekeeper_testkit::servers::{BlackHole, Flavour};

use super::load::CALLERS;
use super::rig::{PATIENT, RULE, Rig, calls_of, cli, quota, server};
use super::{PATIENCE, until};

/// Never opens.
const NO_BREAKER: (u32, u32) = (u32::MAX, 101);
const TIMED_OUT: u64 = 640;

async fn ask(store: &RedisStore, subject: &str, quota: &Quota) -> Result<Decision, StoreError> {
    let charge = Charge::new(Key::new(Name::new(RULE).unwrap(), subject).unwrap(), quota);
    store.check(&Check::one(&charge)).await
}

/// Every request has a counter of its own, so a second charge would show.
#[test]
fn a_call_without_an_answer_is_not_sent_again() {
    let server = server(Flavour::Redis7, &[]);
    let (consecutive, failure_percent) = NO_BREAKER;
    let policy = BreakerPolicy { consecutive, failure_percent, ..BreakerPolicy::default() };
    let rig = Rig::with("no answer", server.port(), 10, |builder| builder.breaker(policy)).connected();
    let (calls, whole, batches) = (calls_of(&server, "evalsha"), calls_of(&server, "eval"), rig.health());
    server.pause();
    let asked = time_out(&rig);
    server.resume();
    // On the same connection, so after everything that was sent before.
    let mut pings = 0;
    until("an answer", || {
        pings += 1;
        rig.runtime.block_on(rig.store.ping()).is_ok()
    });
    until("as many calls as batches", || {
        calls_of(&server, "evalsha") - calls == rig.health().batches - batches.batches + pings
    });
    let sent = rig.health().batched - batches.batched;
    let charged: HashMap<u64, u64> = asked.iter().fold(HashMap::new(), |mut charged, subject| {
        *charged.entry(rig.used(subject)).or_default() += 1;
        charged
    });
    rig.say(&format!("{} asked, {sent} sent, so many charged: {charged:?}", asked.len()));
    assert!(charged.keys().all(|units| *units <= 1), "nothing twice");
    assert!(sent > 0 && charged.get(&1) == Some(&sent), "all that was sent");
    assert_eq!((calls_of(&server, "eval"), rig.health().breaker_opened), (whole, 0));
}

/// Asks until enough requests have timed out; their subjects.
fn time_out(rig: &Rig) -> Vec<String> {
    let count = Arc::new(AtomicU64::new(0));
    let callers = (0..CALLERS).map(|caller| {
        let (store, quota, count) = (rig.store.clone(), rig.quota, Arc::clone(&count));
        rig.runtime.spawn(async move {
            let mut asked = Vec::new();
            while count.fetch_add(1, Ordering::Relaxed) < TIMED_OUT {
                let subject = format!("{caller}-{}", asked.len());
                let error = ask(&store, &subject, &quota).await.unwrap_err();
                // Unsent by the end of its total, on a machine that is busy with other things.
                let unsent = error.kind() == StoreErrorKind::Overloaded;
                assert!(unsent || error.kind() == StoreErrorKind::Timeout, "{error}");
                asked.push(subject);
            }
            asked
        })
    });
    let callers: Vec<_> = callers.collect();
    callers.into_iter().flat_map(|caller| rig.runtime.block_on(caller).unwrap()).collect()
}

const ROUNDS: u64 = 1_500;

/// Half of the callers drop what they have asked at any point. Everybody counts for
/// itself, and every answer must fit that count: those of others do not.
#[test]
fn an_answer_nobody_waits_for_goes_to_nobody_else() {
    let server = server(Flavour::Redis7, &[]);
    let rig = Rig::new("dropped", &server, 1).connected();
    let stop = Arc::new(AtomicBool::new(false));
    let callers = (0..CALLERS).map(|caller| {
        let (store, stop) = (rig.store.clone(), Arc::clone(&stop));
        rig.runtime.spawn(async move {
            let patient = caller % 2 == 0;
            let count = count_for_itself(&store, caller, patient, &stop).await;
            // The patient ask as long as the others are at it.
            stop.fetch_or(!patient, Ordering::Relaxed);
            count
        })
    });
    let callers: Vec<_> = callers.collect();
    let (mut told, mut unknown) = (0, 0);
    for (caller, task) in callers.into_iter().enumerate() {
        let counts = rig.runtime.block_on(task).unwrap();
        told += counts.0;
        unknown += counts.1;
        let used = rig.used_of(&own_name(caller), &own_quota(caller));
        assert!((counts.0..=counts.0 + counts.1).contains(&used), "{caller}: {used}, {counts:?}");
    }
    rig.say(&format!("{told} answers, {unknown} without"));
    assert!(unknown > ROUNDS && told > ROUNDS);
}

/// So far apart that no caller's counts can be another's.
fn own_quota(caller: usize) -> Quota {
    quota(1_000_000 * (caller as u64 + 1))
}

fn own_name(caller: usize) -> String {
    format!("caller{caller}")
}

/// How often it was told, and how often it does not know.
async fn count_for_itself(store: &RedisStore, caller: usize, patient: bool, stop: &AtomicBool) -> (u64, u64) {
    let (quota, name) = (own_quota(caller), own_name(caller));
    let (mut told, mut unknown, mut used) = (0, 0, 0);
    for round in 0.. {
        if if patient { stop.load(Ordering::Relaxed) } else { round == ROUNDS } {
            break;
        }
        let asked = ask(store, &name, &quota);
        let answer = if patient { Some(asked.await) } else { perhaps(asked).await };
        let Some(Ok(decision)) = answer else {
            unknown += 1;
            continue;
        };
        told += 1;
        let now = u64::from(quota.limit() - decision.verdicts()[0].remaining());
        // What was dropped may be charged at any later time, but only once.
        assert!(
            now > used && (told..=told + unknown).contains(&now),
            "{caller}: {used}, then {now} ({told} told)"
        );
        used = now;
    }
    (told, unknown)
}

/// The answer, or nothing if something else was sooner.
async fn perhaps<T>(answer: impl Future<Output = T>) -> Option<T> {
    let elsewhere = async {
        for _ in 0..fastrand::u32(0..100) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = elsewhere => None,
    }
}

/// Two batches on their way, four checks that wait: more are refused at once.
#[test]
fn the_queue_has_a_bound() {
    let server = server(Flavour::Redis7, &[]);
    let settings = |builder: ratekeeper::RedisStoreBuilder| builder.queue_max(4).deadline(PATIENCE);
    let rig = Rig::with("queue", server.port(), 10, settings).connected();
    server.pause();
    let waiting: Vec<_> = (0..6)
        .map(|_| {
            let (store, quota) = (rig.store.clone(), rig.quota);
            rig.runtime.spawn(async move { ask(&store, "queued", &quota).await })
        })
        .collect();
    until("a full queue", || rig.health().waiting == 4);
    for _ in 0..3 {
        let _inside = rig.runtime.enter();
        let refusal = ask(&rig.store, "queued", &rig.quota).now_or_never().expect("an answer at once");
        let error = refusal.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Overloaded, "{error}");
    }
    let failures = rig.health().failures;
    server.resume();
    let mut left: Vec<u32> = Vec::new();
    for task in waiting {
        left.push(rig.runtime.block_on(task).unwrap().unwrap().verdicts()[0].remaining());
    }
    left.sort_unstable();
    assert_eq!(left, [4, 5, 6, 7, 8, 9]);
    assert_eq!((rig.used("queued"), failures), (6, 3));
    assert_eq!(rig.health().breaker, BreakerState::Closed);
}

/// A refund that the server never got, or did nothing about, can be made again.
#[test]
fn a_refund_that_did_not_happen_is_not_counted() {
    let server = server(Flavour::Redis7, &[]);
    let breaker = BreakerPolicy { consecutive: 1, ..BreakerPolicy::default() };
    let settings = |builder: ratekeeper::RedisStoreBuilder| builder.deadline(PATIENT).breaker(breaker);
    let rig = Rig::with("refunds", server.port(), 10, settings).connected();
    let charge = Charge::new(Key::new(Name::new(RULE).unwrap(), "refund").unwrap(), &rig.quota);
    let charge = charge.cost(6).unwrap();
    let check = Check::one(&charge);
    let decision = rig.runtime.block_on(rig.store.check(&check)).unwrap();
    let refund = |units| rig.runtime.block_on(rig.store.refund(&check, &decision, units));

    let master = BlackHole::start();
    let port = master.port().to_string();
    let _ = cli(&server, &["REPLICAOF", "127.0.0.1", &port]);
    assert_eq!(refund(6).unwrap_err().kind(), StoreErrorKind::ReadOnly);
    let _ = cli(&server, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(refund(2).unwrap(), 2);

    server.pause();
    until("an open breaker", || {
        let _ = rig.ask("asked by hand", false);
        rig.health().breaker == BreakerState::Open
    });
    // The keeper may be looking whether the server is back, but no call gets through.
    assert_eq!(refund(6).unwrap_err().kind(), StoreErrorKind::Unavailable);
    server.resume();
    rig.breaker_is(BreakerState::Closed);
    assert_eq!(refund(6).unwrap(), 4, "what is left of the charge");
    assert_eq!(rig.used("refund"), 0);
}
