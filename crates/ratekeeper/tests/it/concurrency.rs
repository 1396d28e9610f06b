//! 64 threads: what is admitted is counted, and it is exactly the quota.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper::{
    Charge, Charges, Check, Key, ManualClock, MemoryStore, Name, Quota, Reservation, Store, Timestamp,
};

const THREADS: usize = 64;
const ALGORITHMS: [&str; 6] =
    ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency"];

fn store() -> Arc<MemoryStore> {
    // The clock stands still: nothing comes back while the threads are at it.
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    Arc::new(MemoryStore::with_clock(1_000_000, Arc::new(clock)))
}

fn quota(limit: u64, algorithm: &str) -> Quota {
    let queue = if algorithm == "leaky_bucket" { format!(" queue {}", limit - 1) } else { String::new() };
    format!("{limit}/h {algorithm}{queue}").parse().unwrap()
}

/// Runs `work(thread)` on all threads at once and adds up what it returns.
fn race(work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let (barrier, total) = (Barrier::new(THREADS), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, total, work) = (&barrier, &total, &work);
            scope.spawn(move || {
                barrier.wait();
                total.fetch_add(work(thread), Ordering::Relaxed);
            });
        }
    });
    total.into_inner()
}

#[test]
fn one_key_admits_exactly_its_quota() {
    for algorithm in ALGORITHMS {
        for limit in [1, 5, 1_000] {
            let (store, quota) = (store(), quota(limit, algorithm));
            let key = Key::new(Name::new("one").unwrap(), "key").unwrap();
            let charge = Charge::new(key, &quota);
            let tries = limit / 32 + 3;
            let admitted = race(|_| {
                (0..tries).filter(|_| store.decide(&Check::one(&charge)).unwrap().is_allowed()).count() as u64
            });
            assert_eq!(admitted, limit, "{quota}");
        }
    }
}

/// Thread `t` always takes key `t % 8` and key `(t + 1) % 8` together: a ring
/// in which every key is shared, and a lock order that ran around it would
/// deadlock. No key may be exceeded, and what is left must be out of reach:
/// no two neighbours both have room.
#[test]
fn overlapping_checks_are_all_or_nothing_and_never_deny_falsely() {
    for (algorithm, limit) in ALGORITHMS.into_iter().flat_map(|name| [(name, 1), (name, 5), (name, 1_000)]) {
        let (store, quota) = (store(), quota(limit, algorithm));
        let name = Name::new("ring").unwrap();
        let subjects: Vec<String> = (0..8).map(|n| format!("key-{n}")).collect();
        let charge = |n: usize| Charge::new(Key::new(name, &subjects[n % 8]).unwrap(), &quota);
        let taken: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        race(|thread| {
            let mut charges = Charges::new();
            charges.push(charge(thread)).unwrap();
            charges.push(charge(thread + 1)).unwrap();
            let check = charges.check().unwrap();
            for _ in 0..150 {
                if store.decide(&check).unwrap().is_allowed() {
                    taken[thread % 8].fetch_add(1, Ordering::Relaxed);
                    taken[(thread + 1) % 8].fetch_add(1, Ordering::Relaxed);
                }
            }
            0
        });
        let left = |n: usize| {
            let decision = store.decide(&Check::one(&charge(n)).peek()).unwrap();
            u64::from(decision.verdicts()[0].remaining())
        };
        for (n, taken) in taken.iter().enumerate() {
            assert_eq!(taken.load(Ordering::Relaxed) + left(n), limit, "{quota}, key {n}");
            assert!(left(n) == 0 || left((n + 1) % 8) == 0, "{algorithm}: room for {n} and its neighbour");
        }
    }
}

/// Layers share a global key: the innermost limit binds, and nothing is lost
/// from the outer ones by denials.
#[test]
fn denials_leave_the_other_layers_untouched() {
    let store = store();
    let (global, user) = (quota(1_000, "fixed_window"), quota(5, "token_bucket"));
    let users: Vec<String> = (0..THREADS).map(|n| format!("user-{n}")).collect();
    let admitted = race(|thread| {
        let mut charges = Charges::new();
        charges.push(Charge::new(Key::new(Name::new("global").unwrap(), "all").unwrap(), &global)).unwrap();
        charges
            .push(Charge::new(Key::new(Name::new("user").unwrap(), &users[thread]).unwrap(), &user))
            .unwrap();
        let check = charges.check().unwrap();
        (0..50).filter(|_| store.decide(&check).unwrap().is_allowed()).count() as u64
    });
    assert_eq!(admitted, 5 * THREADS as u64);
    let key = Key::new(Name::new("global").unwrap(), "all").unwrap();
    let left =
        store.decide(&Check::one(&Charge::new(key, &global)).peek()).unwrap().verdicts()[0].remaining();
    assert_eq!(u64::from(left), 1_000 - admitted);
}

#[test]
fn a_repeated_id_is_charged_once_however_many_send_it() {
    let (store, quota) = (store(), quota(1_000, "fixed_window"));
    let charge = Charge::new(Key::new(Name::new("once").unwrap(), "key").unwrap(), &quota);
    let check = Check::one(&charge);
    race(|_| {
        for id in 0..20u8 {
            let id = [id];
            let reservation = Reservation::once(&id, std::time::Duration::from_secs(60)).unwrap();
            assert!(store.reserve(&check, &reservation).now().unwrap().unwrap().is_allowed());
        }
        0
    });
    assert_eq!(store.decide(&check.peek()).unwrap().verdicts()[0].remaining(), 980);
}

/// Taking and giving back at once: at the end everything is there again.
#[test]
fn refunds_and_releases_return_exactly_what_was_taken() {
    for algorithm in ALGORITHMS {
        let (store, quota) = (store(), quota(5, algorithm));
        let charge = Charge::new(Key::new(Name::new("returned").unwrap(), "key").unwrap(), &quota);
        let check = Check::one(&charge);
        race(|_| {
            for _ in 0..200 {
                let decision = store.decide(&check).unwrap();
                if decision.is_allowed() {
                    store.refund(&check, &decision, 1).now().unwrap().unwrap();
                }
            }
            0
        });
        let left = store.decide(&check.peek()).unwrap().verdicts()[0].remaining();
        assert_eq!(left, 5, "{algorithm}");
    }
}
