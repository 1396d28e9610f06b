//! Penalties in the memory store: many callers at once, and a store that is full.
//! What they do is in the tables.

use std::sync::Arc;

use ratekeeper::{
    Charge, Check, Decision, Key, ManualClock, MemoryStore, Name, Quota, Store, StoreErrorKind, Timestamp,
};
use ratekeeper_testkit::penal::PenalRule;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const SENTENCES: [&str; 2] = ["1/1h fixed_window", "1/1d fixed_window"];

fn store(max_keys: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::starting_at(START);
    (MemoryStore::with_clock(max_keys, Arc::new(clock.clone())), clock)
}

/// Asks for so many units of an ample quota; more than it has are denied without a counter.
fn ask(store: &MemoryStore, rule: &PenalRule, subject: &str, units: u64) -> Decision {
    let quota: Quota = "9/1h fixed_window".parse().unwrap();
    let charge = Charge::new(Key::new(rule.name, subject).unwrap(), &quota).cost(units).unwrap();
    let penalties = [rule.penalty(subject, 0..1)];
    store.decide(&Check::one(&charge).with_penalties(&penalties).unwrap()).unwrap()
}

fn is_penalised(decision: &Decision) -> bool {
    decision.verdicts().len() > 1
}

/// What is left of a counter of a rule's penalties.
fn left(store: &MemoryStore, rule: &PenalRule, counter: usize, subject: &str) -> u32 {
    let (name, quota) = &rule.counters[counter];
    let charge = Charge::new(Key::new(*name, subject).unwrap(), quota);
    // The gate comes first.
    let charge = if counter == 0 { charge.any_window() } else { charge };
    store.decide(&Check::one(&charge).peek()).unwrap().verdicts()[0].remaining()
}

/// Of 64 threads that are denied at once, the third denial is the penalty: one, not two, and
/// from then on no denial is counted.
#[test]
fn many_at_once_are_one_offence() {
    let rule = PenalRule::new("many", "3/1h fixed_window", &SENTENCES, Some("4/1h"));
    for round in 0..50 {
        let (store, _) = store(100_000);
        let barrier = std::sync::Barrier::new(64);
        let decisions: Vec<Decision> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..64)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        [ask(&store, &rule, "ann", 10), ask(&store, &rule, "ann", 10)]
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(decisions.iter().all(|decision| !decision.is_allowed()));
        let tipped: usize = decisions.iter().map(|decision| decision.tipped().len()).sum();
        assert_eq!(tipped, 1, "round {round}");
        let before = decisions.iter().filter(|decision| !is_penalised(decision)).count();
        assert_eq!(before, 2, "the third is told of the gate that it shut, as all others are");
        assert_eq!([1, 2].map(|counter| left(&store, &rule, counter, "ann")), [3, 3], "strikes, offences");
    }
}

/// A decision is written over the caller's, of which nothing is left.
#[test]
fn a_decision_says_nothing_of_the_one_before() {
    let rule = PenalRule::new("over", "1/1h fixed_window", &SENTENCES, None);
    let ((store, _), quota) = (store(100_000), "1/1h fixed_window".parse::<Quota>().unwrap());
    let denied = Charge::new(Key::new(rule.name, "ann").unwrap(), &quota).cost(2).unwrap();
    let penalties = [rule.penalty("ann", 0..1)];
    let mut decision = Decision::default();
    let mut ask = |check: &Check<'_>| {
        store.try_check(check, &mut decision).unwrap().unwrap();
        (decision.tipped().len(), decision.verdicts().len())
    };
    assert_eq!(ask(&Check::one(&denied).with_penalties(&penalties).unwrap()), (1, 2));
    assert_eq!(ask(&Check::one(&denied)), (0, 1));
    assert_eq!(ask(&Check::one(&denied).with_penalties(&penalties).unwrap()), (0, 2));
}

/// The counters of a penalty may share a place of a store that is far too small.
#[test]
fn a_gate_is_shut_whole_or_not_at_all() {
    let (store, _) = store(256);
    let rule = PenalRule::new("half", "2/1h fixed_window", &SENTENCES, Some("4/1h"));
    let (mut tipped, mut not) = (0, 0);
    for subject in 0..10_000 {
        let subject = subject.to_string();
        let first = ask(&store, &rule, &subject, 10);
        assert!(first.tipped().is_empty() && !is_penalised(&first));
        assert_eq!(left(&store, &rule, 1, &subject), 1, "there is a place for the strike");
        let refused = store.health().full;
        let second = ask(&store, &rule, &subject, 10);
        let is_shut = left(&store, &rule, 0, &subject) == 0;
        assert_eq!((!second.tipped().is_empty(), is_penalised(&second)), (is_shut, is_shut));
        assert!(!second.is_allowed(), "the denial stands");
        if is_shut {
            assert_eq!([1, 2].map(|counter| left(&store, &rule, counter, &subject)), [2, 3]);
            tipped += 1;
        } else {
            assert_eq!([0, 1, 2].map(|counter| left(&store, &rule, counter, &subject)), [1, 1, 4]);
            assert_eq!(store.health().full - refused, 1, "it is told");
            not += 1;
        }
    }
    assert!(tipped > 20 && not > 20, "{tipped} and {not} of 10,000");
    assert!(store.len() <= 256);
}

/// What has no room for its own counter fails, and strikes nothing on the way.
#[test]
fn a_check_that_fails_for_want_of_room_is_no_strike() {
    let (store, _) = store(256);
    let rule = PenalRule::new("watched", "1/1h fixed_window", &SENTENCES, None);
    let (one, ample): (Quota, Quota) =
        ("1/1d fixed_window".parse().unwrap(), "9/1d fixed_window".parse().unwrap());
    let name = Name::new("crowd").unwrap();
    let mut failed = 0;
    for subject in 0..10_000 {
        let subject = subject.to_string();
        let mut charges = ratekeeper::Charges::new();
        let watched = Charge::new(Key::new(rule.name, &subject).unwrap(), &one).cost(2).unwrap();
        charges.push(watched.enforcement(ratekeeper::Enforcement::Shadow)).unwrap();
        charges.push(Charge::new(Key::new(name, &subject).unwrap(), &ample).cost(9).unwrap()).unwrap();
        let penalties = [rule.penalty(&subject, 0..1)];
        let check = charges.check().unwrap().with_penalties(&penalties).unwrap();
        match store.decide(&check) {
            Ok(decision) => assert!(decision.is_allowed()),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Capacity);
                assert_eq!(left(&store, &rule, 0, &subject), 1, "the gate is open");
                failed += 1;
            }
        }
    }
    assert!(failed > 0, "two counters share one of 256 places now and then");
}
