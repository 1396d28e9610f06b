//! The checker can fail: each test injects what it has to find.

use super::*;
use crate::fault::Fault;
use crate::limits::Service;

const START: u64 = 1_800_000_000_000_000;
const SECOND: u64 = 1_000_000;

/// Where all counters of a check are in one place.
fn check(calls: &[Call], events: &[Event]) -> Findings {
    super::check(calls, events, false)
}

fn admitted(service: &str, at: u64, window_end: u64) -> Call {
    let (service, _) = Service::named(service).unwrap();
    Call {
        sent: at,
        answered: at + 500,
        service,
        tenant: 0,
        address: 0,
        allowed: true,
        origin: Origin::Store,
        at,
        window_end,
        late: 0,
    }
}

/// So many admissions in one window, a millisecond apart.
fn window(service: &str, start: u64, count: u64) -> Vec<Call> {
    (0..count).map(|number| admitted(service, start + number * 1_000, start + SECOND)).collect()
}

fn loss(start: u64, end: u64) -> Event {
    Event { fault: Fault::KillPrimary, start, end, is_confirmed: false }
}

fn uncovered(findings: &Findings) -> u64 {
    findings.excess.iter().filter(|excess| !excess.is_covered).map(|excess| excess.units).sum()
}

#[test]
fn what_keeps_its_quota_is_no_finding() {
    for (service, count) in [("windows", 8), ("log", 8), ("bucket", 16)] {
        let calls = [window(service, START, count), window(service, START + 2 * SECOND, count)].concat();
        let findings = check(&calls, &[]);
        assert!(findings.excess.is_empty() && findings.false_denials.is_empty(), "{service}: {findings:?}");
        assert_eq!(findings.admissions, 2 * count, "{service}");
    }
}

#[test]
fn one_unit_too_many_is_found_by_every_algorithm() {
    for (service, count) in [("windows", 9), ("log", 9), ("bucket", 17)] {
        let findings = check(&window(service, START, count), &[]);
        assert_eq!(uncovered(&findings), 1, "{service}: {findings:?}");
    }
}

#[test]
fn both_quotas_of_a_pair_are_looked_at() {
    // 41 admissions from one address by tenants that each keep their own quota.
    let calls: Vec<Call> = (0..41)
        .map(|number| Call {
            tenant: number % 8,
            ..admitted("pair", START + number as u64, START + 2 * SECOND)
        })
        .collect();
    let findings = check(&calls, &[]);
    assert_eq!((uncovered(&findings), findings.excess.len()), (1, 1), "{findings:?}");
    assert!(findings.excess[0].counter.contains("per-address"), "{findings:?}");
}

/// Each counter of a check in several places is charged at its node's own instant, and only the latest is told.
#[test]
fn what_may_have_been_in_time_in_several_places_is_no_finding() {
    let late = |number: usize| {
        let at = START + 2 * SECOND * u64::from(number >= 40) + number as u64;
        Call { sent: at - 100_000, tenant: number % 8, ..admitted("pair", at, START + 2 * SECOND) }
    };
    // The 41st came within two seconds of the first by the instants told, but for what its call took.
    let mut calls: Vec<Call> = (0..41).map(late).collect();
    calls[40].at -= 50_000;
    assert_eq!(uncovered(&check(&calls, &[])), 1);
    assert_eq!(uncovered(&super::check(&calls, &[], true)), 0);
    // One that was certainly sent and answered within them is found.
    calls[40].answered = calls[40].at;
    let certain: Vec<Call> = calls.iter().map(|call| Call { sent: call.at, ..call.clone() }).collect();
    assert_eq!(uncovered(&super::check(&certain, &[], true)), 1);
}

/// In a window of several places, ends are as far apart as the instants of the places.
#[test]
fn a_window_of_several_places_admits_its_limit_once() {
    let jittered = |start: u64, number: u64| {
        let at = start + number * 1_000;
        let end = start + 2 * SECOND + (number * 7_919) % 9_000;
        // From other addresses, so that the tenant's window alone is at its limit.
        Call { address: usize::try_from(number).unwrap(), ..admitted("pair", at, end) }
    };
    let one_too_many: Vec<Call> = (0..17).map(|number| jittered(START, number)).collect();
    assert_eq!(uncovered(&super::check(&one_too_many, &[], true)), 1);
    let window = |start| (0..16).map(move |number| jittered(start, number));
    let two_windows: Vec<Call> = window(START).chain(window(START + 2 * SECOND + 10_000)).collect();
    assert_eq!(uncovered(&super::check(&two_windows, &[], true)), 0);
}

#[test]
fn windows_that_overlap_are_found_although_each_keeps_the_limit() {
    let calls = [window("windows", START, 8), window("windows", START + SECOND / 2, 8)].concat();
    assert_eq!(uncovered(&check(&calls, &[])), 8);
    let restart = [loss(START + SECOND / 4, START + SECOND / 3)];
    let findings = check(&calls, &restart);
    assert_eq!((uncovered(&findings), findings.excess[0].units), (0, 8), "{findings:?}");
}

#[test]
fn a_loss_covers_the_limit_once_and_no_more() {
    let lost = [loss(START, START + 1_000)];
    for (service, limit) in [("windows", 8), ("log", 8), ("bucket", 16)] {
        let twice = check(&window(service, START, 2 * limit), &lost);
        assert_eq!(uncovered(&twice), 0, "{service}: {twice:?}");
        assert!(!twice.excess.is_empty(), "{service}: it is counted all the same");
        assert!(uncovered(&check(&window(service, START, 2 * limit + 1), &lost)) > 0, "{service}");
        let elsewhere = [loss(START + 20 * SECOND, START + 21 * SECOND)];
        assert!(uncovered(&check(&window(service, START, 2 * limit), &elsewhere)) > 0, "{service}");
    }
}

#[test]
fn a_fault_that_loses_nothing_covers_nothing() {
    let pause = [Event { fault: Fault::Pause, start: START, end: START + SECOND, is_confirmed: false }];
    assert_eq!(uncovered(&check(&window("log", START, 9), &pause)), 1);
    // Nor does the death of a primary whose replica had all that was admitted.
    let confirmed = [Event { is_confirmed: true, ..loss(START, START + SECOND) }];
    assert_eq!(uncovered(&check(&window("log", START, 9), &confirmed)), 1);
}

#[test]
fn what_the_failure_policy_admits_is_not_the_stores() {
    let mut calls = window("windows", START, 8);
    calls.extend(window("windows", START, 8).into_iter().map(|call| Call { origin: Origin::Outage, ..call }));
    assert!(check(&calls, &[]).excess.is_empty());
}

/// A unit that was charged without an answer stays missing while all that is filled in is spent at once.
#[test]
fn a_bucket_that_is_never_full_misses_what_was_charged_without_an_answer() {
    let end = START + 20 * SECOND;
    let one_at = |at| admitted("bucket", at, end);
    let unanswered = Call { origin: Origin::None, ..one_at(START + 20_000) };
    // Of the eighths of a second, the first is the unanswered call's.
    let steady = (2..120).map(|eighth| one_at(START + 16_000 + eighth * SECOND / 8));
    let denied = Call { allowed: false, ..one_at(START + 15 * SECOND) };
    let calls = |unanswered: Option<Call>| {
        let burst = window("bucket", START, 16).into_iter();
        // So that the denial has an admission behind it.
        let last = [denied.clone(), one_at(START + 16 * SECOND)];
        burst.chain(unanswered).chain(steady.clone()).chain(last).collect::<Vec<_>>()
    };
    assert_eq!(check(&calls(None), &[]).false_denials.len(), 1);
    let findings = check(&calls(Some(unanswered)), &[]);
    assert!(findings.false_denials.is_empty(), "{findings:?}");
}

#[test]
fn a_denial_with_room_is_found_unless_a_call_may_have_been_charged() {
    for service in ["windows", "log", "bucket"] {
        let mut calls = window(service, START, 3);
        calls.push(Call { allowed: false, ..admitted(service, START + 5_000, START + SECOND) });
        // So that the bucket's denial has an admission behind it.
        calls.push(admitted(service, START + 6_000, START + SECOND));
        assert_eq!(check(&calls, &[]).false_denials.len(), 1, "{service}");
        let unknown = Call { origin: Origin::Outage, ..admitted(service, START + 3_500, 0) };
        calls.extend(vec![unknown; 5]);
        assert!(check(&calls, &[]).false_denials.is_empty(), "{service}");
    }
}

#[test]
fn a_step_of_the_clock_is_taken_off_before_anything_is_compared() {
    let step = u64::try_from(STEP.as_micros()).unwrap();
    let ahead =
        window("log", START + 3 * SECOND, 8).into_iter().map(|call| Call { at: call.at + step, ..call });
    let after = window("log", START + 3 * SECOND + SECOND / 2, 8);
    let calls: Vec<Call> = ahead.chain(after).collect();
    assert_eq!(uncovered(&check(&calls, &[])), 8);
    let stepped = [Event {
        fault: Fault::StepClock,
        start: START + 2 * SECOND,
        end: START + 4 * SECOND,
        is_confirmed: false,
    }];
    assert_eq!(uncovered(&check(&calls, &stepped)), 0);
}

/// A clock that was set back leaves a bucket empty, and strict by less than a burst until it is full again.
#[test]
fn a_bucket_may_be_emptied_by_a_fault_and_by_nothing_else() {
    let stepped =
        [Event { fault: Fault::StepClock, start: START, end: START + SECOND / 2, is_confirmed: false }];
    // Steady traffic at the bucket's rate, which begins a second after the fault; in between somebody is denied.
    let mut calls: Vec<Call> =
        (0..40).map(|number| admitted("bucket", START + 2 * SECOND + number * SECOND / 8, 0)).collect();
    let early = Call { allowed: false, ..admitted("bucket", START + SECOND, 0) };
    let late = Call { allowed: false, ..admitted("bucket", START + 5 * SECOND + 10, 0) };
    calls.extend([early, late]);
    calls.sort_by_key(|call| call.at);
    let findings = check(&calls, &stepped);
    assert!(findings.false_denials.is_empty(), "{findings:?}");
    let findings = check(&calls, &[]);
    assert_eq!(findings.false_denials.len(), 2, "{findings:?}");
}
