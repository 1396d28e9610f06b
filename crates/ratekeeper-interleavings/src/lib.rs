//! The memory store under shuttle: the scheduler of these threads is a random
//! one that switches at every lock, so orders that a real machine shows once a
//! year come up within seconds. Deadlocks are found, too.
//!
//! Run by `make test-interleavings`, which sets `--cfg shuttle`; without it there is
//! nothing here. A package of its own, so that only what it needs is compiled so.

#![cfg(all(test, shuttle))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ratekeeper::{
    Charge, Charges, Check, Enforcement, Key, ManualClock, MemoryStore, Name, Penalty, Quota, Reservation,
    Store, Timestamp,
};

const SCHEDULES: usize = 5_000;
const THREADS: usize = 3;

fn store() -> MemoryStore {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    MemoryStore::with_clock(100_000, Arc::new(clock))
}

fn race(
    work: impl Fn(usize, &MemoryStore) -> u32 + Send + Sync + 'static,
    then: impl Fn(u32, &MemoryStore) + Send + Sync + 'static,
) {
    let work = Arc::new(work);
    shuttle::check_random(
        move || {
            let (store, total) = (Arc::new(store()), Arc::new(AtomicU32::new(0)));
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (store, total, work) = (Arc::clone(&store), Arc::clone(&total), Arc::clone(&work));
                    shuttle::thread::spawn(move || {
                        total.fetch_add(work(thread, &store), Ordering::Relaxed);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
            then(total.load(Ordering::Relaxed), &store);
        },
        SCHEDULES,
    );
}

fn quota() -> Quota {
    "2/h fixed_window".parse().expect("a quota")
}

fn left(store: &MemoryStore, subject: &str) -> u32 {
    let quota = quota();
    let charge = Charge::new(Key::new(Name::new("ring").expect("a name"), subject).expect("a key"), &quota);
    store.decide(&Check::one(&charge).peek()).expect("an answer").verdicts()[0].remaining()
}

#[test]
fn overlapping_checks_neither_deadlock_nor_overcharge() {
    const SUBJECTS: [&str; 3] = ["a", "b", "c"];
    race(
        |thread, store| {
            let (quota, name) = (quota(), Name::new("ring").expect("a name"));
            let mut charges = Charges::new();
            // Each thread names its two keys in another order than its neighbour.
            for place in [thread, (thread + 1) % 3] {
                charges
                    .push(Charge::new(Key::new(name, SUBJECTS[place]).expect("a key"), &quota))
                    .expect("room");
            }
            let check = charges.check().expect("charges");
            (0..2).filter(|_| store.decide(&check).expect("an answer").is_allowed()).count() as u32
        },
        |admitted, store| {
            let left: u32 = SUBJECTS.iter().map(|subject| left(store, subject)).sum();
            assert_eq!(admitted * 2 + left, 6, "every admission took one from each of two keys");
            let open = SUBJECTS.iter().filter(|subject| self::left(store, subject) > 0).count();
            assert!(open < 2, "no two keys have room: any two of them are somebody's");
        },
    );
}

#[test]
fn a_repeated_id_is_charged_once_in_any_order() {
    race(
        |_, store| {
            let quota = quota();
            let charge =
                Charge::new(Key::new(Name::new("ring").expect("a name"), "once").expect("a key"), &quota);
            let reservation = Reservation::hold("id", std::time::Duration::from_secs(60)).expect("an id");
            store.reserve(&Check::one(&charge), &reservation).now().expect("ready").expect("an answer");
            // Whoever settles first settles; the others are told so.
            u32::from(
                store.settle(b"id", Some(1)).now().expect("ready").expect("an answer")
                    == ratekeeper::Settled::Done,
            )
        },
        |settled, store| {
            assert_eq!(settled, 1);
            assert_eq!(left(store, "once"), 1);
        },
    );
}

/// Three threads that are denied twice each: the third denial shuts the gate, in any order.
#[test]
fn a_penalty_is_given_once_in_any_order() {
    fn counters() -> [(Name, Quota); 3] {
        let rule = Name::new("ring").expect("a name");
        let counter =
            |name, quota: &str| (Name::joined(rule, name).expect("a name"), quota.parse().expect("a quota"));
        [
            counter("penalty", "1/h fixed_window"),
            counter("strikes", "3/h fixed_window"),
            counter("offences", "4/1h"),
        ]
    }
    race(
        |_, store| {
            let (quota, [gate, strikes, offences]) = (quota(), counters());
            let key = Key::new(Name::new("ring").expect("a name"), "ann").expect("a key");
            let charge = Charge::new(key, &quota).cost(3).expect("a cost");
            let penalties = [Penalty {
                gate: (gate.0, &gate.1),
                strikes: (strikes.0, &strikes.1),
                offences: Some((offences.0, &offences.1)),
                sentences: std::slice::from_ref(&gate.1),
                subject: b"ann",
                enforcement: Enforcement::Enforce,
                charges: 0..1,
                counts: true,
            }];
            let check = Check::one(&charge).with_penalties(&penalties).expect("a penalty");
            let tipped = (0..2).map(|_| store.decide(&check).expect("an answer").tipped().len());
            tipped.sum::<usize>() as u32
        },
        |tipped, store| {
            assert_eq!(tipped, 1);
            let left = counters().map(|(name, quota)| {
                let charge = Charge::new(Key::new(name, "ann").expect("a key"), &quota);
                let charge = if quota == counters()[0].1 { charge.any_window() } else { charge };
                store.decide(&Check::one(&charge).peek()).expect("an answer").verdicts()[0].remaining()
            });
            assert_eq!(left, [0, 3, 3], "one offence, and the strikes are forgotten");
        },
    );
}

/// Denials are judged on copies without the lock: no order of threads leaves a copy behind that its counter
/// has outlived.
#[test]
fn what_was_given_back_is_denied_to_nobody() {
    fn decided(store: &MemoryStore) -> bool {
        let quota = quota();
        let key = Key::new(Name::new("ring").expect("a name"), "returned").expect("a key");
        let charge = Charge::new(key, &quota).cost(2).expect("a cost");
        let check = Check::one(&charge);
        let decision = store.decide(&check).expect("an answer");
        if decision.is_allowed() {
            let denied = store.decide(&check).expect("an answer");
            assert!(!denied.is_allowed(), "two units are taken by this thread");
            assert_eq!(denied.verdicts()[0].remaining(), 0);
            let back = store.refund(&check, &decision, 2).now().expect("ready").expect("an answer");
            assert_eq!(back, 2);
        }
        decision.is_allowed()
    }
    race(
        |_, store| (0..2).filter(|_| decided(store)).count() as u32,
        |admitted, store| {
            assert!(admitted >= 1, "the first that asks is admitted");
            assert_eq!(left(store, "returned"), 2);
            assert!(decided(store), "all of it was given back");
        },
    );
}
