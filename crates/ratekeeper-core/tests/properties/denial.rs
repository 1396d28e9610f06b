//! Nothing is denied that had room, nothing admitted that had not: every
//! answer against the naive model.

use proptest::prelude::{Strategy, prop_assert, prop_assert_eq};
use proptest::test_runner::TestCaseResult;
use proptest::{bool::weighted, collection::vec, option};
use ratekeeper_core::{
    Algorithm, Case, Charge, Decision, Key, Level, Name, State, Timestamp, judge, judge_one,
};

use crate::naive::Naive;
use crate::support::{Counter, START, Step, costs, histories, hold, pauses, quotas};

for_each_algorithm!(a_cost_passes_exactly_when_the_quota_has_room: passes_when_there_is_room);

fn passes_when_there_is_room(algorithm: Algorithm) {
    hold(1_500, (quotas(algorithm), histories(40)), |(quota, history)| {
        let (mut counter, mut naive) = (Counter::new(quota), Naive::new(quota));
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            let answer = counter.ask(now, cost);
            prop_assert_eq!(answer.is_admitted(), naive.fits(now, cost), "{} for {} at {}", cost, quota, now);
            if answer.is_admitted() {
                naive.admit(now, cost);
            }
            remaining_is_true(&naive, now, answer.status.remaining)?;
        }
        Ok(())
    });
}

/// Asked for one by one, exactly what is said to remain can still be had.
fn remaining_is_true(naive: &Naive, now: u64, remaining: u32) -> TestCaseResult {
    let mut naive = naive.clone();
    if remaining > 0 {
        naive.admit(now, remaining - 1);
        prop_assert!(naive.fits(now, 1), "{} were said to remain at {}", remaining, now);
        naive.admit(now, 1);
    }
    prop_assert!(!naive.fits(now, 1), "more than {} remained at {}", remaining, now);
    Ok(())
}

#[test]
fn what_a_holder_gives_back_makes_room_at_once() {
    let step = (pauses(), costs()).prop_map(|(pause, cost)| Step { pause, cost });
    let release = option::of((0..4usize, 1..=4u32));
    let values = (quotas(Algorithm::Concurrency), vec((step, release), 1..=40));
    hold(1_500, values, |(quota, history)| {
        let (mut counter, mut naive) = (Counter::new(quota), Naive::new(quota));
        let mut receipts = Vec::new();
        let mut now = START;
        for (step, release) in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            let answer = counter.ask(now, cost);
            prop_assert_eq!(answer.is_admitted(), naive.fits(now, cost), "{} for {} at {}", cost, quota, now);
            if let Some(receipt) = answer.receipt {
                naive.admit(now, cost);
                receipts.push(receipt);
            }
            let Some((back, units)) = release else { continue };
            let Some(index) = receipts.len().checked_sub(back + 1) else { continue };
            counter.refund(now, units, receipts[index]);
            let held = &mut naive.admitted[index].1;
            *held = (*held - i128::from(units)).max(0);
            remaining_is_true(&naive, now, counter.status(now).remaining)?;
        }
        Ok(())
    });
}

for_each_algorithm!(a_charge_is_judged_alike_alone_and_among_others: judged_alike);

/// Single charges take a shorter way through the code than checks of several.
/// Quotas change and clocks step, so that some states have to be healed; a
/// peek must give them back as they were.
fn judged_alike(algorithm: Algorithm) {
    let name = Name::new("one").expect("a short name");
    let change = option::weighted(0.1, (quotas(algorithm), 0..=10_000_000u64));
    let question = ((pauses(), costs()), weighted(0.2), weighted(0.1), change);
    hold(1_000, (quotas(algorithm), vec(question, 1..=40)), |(quota, history)| {
        let mut counter = Counter::new(quota);
        let (mut alone, mut among) = (counter.state.clone(), counter.state.clone());
        let mut now = START;
        for ((pause, cost), peek, free, change) in history {
            if let Some((quota, back)) = change {
                counter.quota = quota;
                now -= back;
            }
            let quota = counter.quota;
            let (at, mut cost) = counter.follow(Step { pause, cost }, now);
            now = at.min(Timestamp::MAX.as_micros());
            if free {
                cost = 0;
            }
            let key = Key::new(name, "subject").expect("a short subject");
            let charge = Charge::new(key, &quota).cost(cost.into()).unwrap_or(Charge::new(key, &quota));
            let (peek, before) = (peek || cost == 0, alone.clone());
            let (one, many) = both_ways(&charge, [&mut alone, &mut among], now, peek);
            prop_assert_eq!(&one, &many);
            prop_assert_eq!(&alone, &among);
            if peek {
                prop_assert_eq!(&alone, &before);
            } else {
                let answer = counter.ask(now, charge.units());
                if answer.is_admitted() {
                    counter.state.keep_for(quota.window_micros());
                }
                prop_assert_eq!(answer.is_admitted(), one.is_allowed());
                prop_assert_eq!(answer.status.remaining, one.verdicts()[0].remaining());
                prop_assert_eq!(answer.receipt, one.verdicts()[0].receipt());
            }
            prop_assert_eq!(&alone, &counter.state);
        }
        Ok(())
    });
}

fn both_ways(charge: &Charge<'_>, states: [&mut State; 2], now: u64, peek: bool) -> (Decision, Decision) {
    let (now, [alone, among]) = (Timestamp::from_micros(now), states);
    let (mut one, mut many) = (Decision::default(), Decision::default());
    judge_one(charge, (charge.quota(), Level::Default), alone, now, peek, &mut one);
    let mut cases = [Case::new(charge, None, among.clone())];
    judge(&mut cases, now, peek, &mut many);
    *among = cases[0].take_state();
    (one, many)
}
