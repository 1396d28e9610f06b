//! States that no history makes: counts, instants and fractions of any size, in any order. A server's memory can hold
//! them, so everything that takes a state must survive one.

mod draw;
pub mod stored;

use std::collections::VecDeque;

use ratekeeper_core::algorithm::{
    Bucket, Concurrency, FixedWindow, Holder, LeakyBucket, Receipt, SlidingLog, SlidingWindow, TokenBucket,
};
use ratekeeper_core::{
    Algorithm, Case, Charge, Check, Decision, Enforcement, Key, Level, Name, PenaltyCase, Quota, State,
    Timestamp, judge, judge_one, judge_penal,
};

pub use self::draw::Draw;
use crate::penal::PenalRule;

/// Entries or holders of one state.
const ENTRIES_MAX: u8 = 6;
/// Quotas of every algorithm, some with odd rates.
const QUOTAS: [&str; 16] = [
    "10/s",
    "10/s burst 1000",
    "1/s",
    "700000/s",
    "999999937/31d",
    "1000000000/s",
    "3/min leaky_bucket",
    "7/s leaky_bucket queue 100",
    "10/h fixed_window",
    "10 per calendar day",
    "1/366d fixed_window",
    "10/s sliding_window",
    "1000000000/366d sliding_window",
    "10/min sliding_log",
    "10000/366d sliding_log",
    "5/min concurrency",
];

impl Draw<'_> {
    /// An instant: mostly near `now`, or anything.
    fn instant(&mut self, now: u64, window: u64) -> u64 {
        match self.byte() % 6 {
            0 => now,
            1 => now.saturating_sub(window),
            2 => now.saturating_add(window),
            3 => now.saturating_add(window.saturating_mul(3)),
            4 => now.saturating_sub(u64::from(self.byte())),
            _ => self.number(),
        }
    }

    fn count(&mut self) -> u32 {
        // The low half of what is drawn will do.
        self.number() as u32
    }

    fn quota(&mut self) -> Quota {
        let text = QUOTAS[usize::from(self.byte()) % QUOTAS.len()];
        let quota: Quota = text.parse().expect("a quota");
        if self.byte().is_multiple_of(8) { quota.overridden(u64::from(self.byte() % 2), None) } else { quota }
    }

    fn state(&mut self, quota: &Quota, now: u64) -> State {
        let any = Algorithm::ALL[usize::from(self.byte()) % Algorithm::ALL.len()];
        let algorithm = if self.byte().is_multiple_of(16) { any } else { quota.algorithm() };
        let window = if self.byte().is_multiple_of(2) { self.number() } else { quota.window_micros() };
        let mut at = || self.instant(now, quota.window_micros());
        match algorithm {
            Algorithm::FixedWindow => {
                State::FixedWindow(FixedWindow { end: at(), length: window, count: self.count() })
            }
            Algorithm::SlidingWindow => State::SlidingWindow(SlidingWindow {
                start: at(),
                window,
                previous: self.count(),
                current: self.count(),
            }),
            Algorithm::TokenBucket => State::TokenBucket(TokenBucket(self.bucket(quota, now))),
            Algorithm::LeakyBucket => State::LeakyBucket(LeakyBucket(self.bucket(quota, now))),
            Algorithm::SlidingLog => {
                let entries: VecDeque<(u64, u32)> = (0..self.byte() % ENTRIES_MAX)
                    .map(|_| (self.instant(now, window), self.count()))
                    .collect();
                State::SlidingLog(Box::new(SlidingLog { entries, window, own_window: window }))
            }
            Algorithm::Concurrency => {
                let holder = |_| Holder {
                    since: self.instant(now, window),
                    number: self.count(),
                    units: self.count(),
                };
                let holders: VecDeque<Holder> = (0..ENTRIES_MAX).map(holder).collect();
                let (next, last) = (self.count(), self.instant(now, window));
                let leases = Concurrency { holders, next, last, window, own_window: window };
                State::Concurrency(Box::new(leases))
            }
        }
    }

    fn bucket(&mut self, quota: &Quota, now: u64) -> Bucket {
        let denominator = if self.byte().is_multiple_of(2) { self.count() } else { quota.limit() };
        let full_at = self.instant(now, quota.window_micros());
        Bucket {
            full_at,
            remainder: self.count(),
            denominator,
            ahead: self.instant(now, quota.window_micros()),
        }
    }

    fn cost(&mut self) -> u64 {
        self.number() % 1_000_000_001
    }
}

/// Draws states from `bytes` and does everything with them that the core can do.
///
/// # Panics
/// If the core does, or if it leaves more of a quota than there is.
pub fn states(bytes: &[u8]) {
    let draw = &mut Draw::new(bytes);
    let now = Timestamp::from_micros(draw.instant(1_700_000_000_000_000, 1_000_000));
    let quotas = [draw.quota(), draw.quota(), draw.quota()];
    let states = quotas.each_ref().map(|quota| draw.state(quota, now.as_micros()));
    for (quota, state) in quotas.iter().zip(&states) {
        each_verb(draw, quota, state, now.as_micros());
    }
    let name = Name::new("poisoned").expect("a short name");
    let subjects = ["a", "b", "c"];
    let charges: Vec<Charge<'_>> = quotas
        .iter()
        .zip(subjects)
        .map(|(quota, subject)| {
            let charge = Charge::new(Key::new(name, subject).expect("a short key"), quota);
            let charge = charge.cost(draw.cost()).expect("within bounds");
            if draw.byte().is_multiple_of(4) { charge.enforcement(Enforcement::Shadow) } else { charge }
        })
        .collect();
    judged_alone(&charges[0], &states[0], now);
    judged_together(draw, &charges, &states, now);
}

/// Every function of a state by itself, as settling and refunds call them.
fn each_verb(draw: &mut Draw<'_>, quota: &Quota, state: &State, now: u64) {
    let cost = draw.count().clamp(1, 1_000_000_000);
    let receipt = Receipt { at: draw.instant(now, quota.window_micros()), detail: draw.count() };
    let at = state.instant(now);
    let looked = |state: &State| {
        let _ = (state.is_unwell(quota, at), state.wait(quota, at, cost), state.proceed_after(quota, at));
        let _ = (state.status(quota, at), state.expires_at(), state.instant(now));
    };
    looked(state);
    let changes: [&dyn Fn(&mut State); 5] = [
        &|state| state.heal(quota, at),
        &|state| {
            let _ = state.refund(quota, at, cost, receipt);
        },
        &|state| state.top_up(quota, at, cost),
        &|state| {
            let _ = state.charge(quota, at, cost);
        },
        &|state| {
            state.heal(quota, at);
            let receipt = state.charge(quota, at, cost);
            state.refund(quota, at, cost, receipt);
        },
    ];
    for change in changes {
        let mut state = state.clone();
        change(&mut state);
        looked(&state);
        // What it made can be changed again.
        change(&mut state);
        looked(&state);
    }
}

fn judged_alone(charge: &Charge<'_>, state: &State, now: Timestamp) {
    for peek in [true, false] {
        let (mut state, mut decision) = (state.clone(), Decision::default());
        for _ in 0..2 {
            judge_one(charge, (charge.quota(), Level::Default), &mut state, now, peek, &mut decision);
            sane(&decision);
        }
    }
}

fn judged_together(draw: &mut Draw<'_>, charges: &[Charge<'_>], states: &[State], now: Timestamp) {
    let rule = PenalRule::new(
        "poisoned",
        "3/1h fixed_window",
        &["1/1h fixed_window", "1/1d fixed_window"],
        Some("4/30d"),
    );
    let penal = [0, 1, 2].map(|counter| draw.state(&rule.counters[counter].1, now.as_micros()));
    let penalty = rule.penalty("a", 0..1);
    for peek in [true, false] {
        let cases = || -> Vec<Case<'_>> {
            charges.iter().zip(states).map(|(charge, state)| Case::new(charge, None, state.clone())).collect()
        };
        let (mut judged, mut decision) = (cases(), Decision::default());
        judge(&mut judged, now, peek, &mut decision);
        sane(&decision);
        judge(&mut judged, now, peek, &mut decision);
        sane(&decision);
        let (mut judged, mut penalties) = (cases(), vec![PenaltyCase::new(&penalty, penal.clone())]);
        judge_penal(&mut judged, &mut penalties, now, peek, &mut decision);
        sane(&decision);
        let strike = penalties[0].strike(&decision);
        let _ = penalties[0].changes(strike.as_ref());
        if let Some(strike) = strike {
            decision.struck(&penalties[0], &strike);
        }
    }
    let _ = Check::one(&charges[0]).digest();
}

/// A decision promises no more than its quotas have.
fn sane(decision: &Decision) {
    for verdict in decision.verdicts() {
        // Of another algorithm, a state may count by the limit where the quota has a queue or burst.
        let most = verdict.quota().capacity().max(verdict.quota().limit());
        assert!(verdict.remaining() <= most.saturating_add(1), "{verdict:?}");
        assert!(!verdict.is_admitted() || verdict.cost() <= verdict.quota().cost_max().max(1), "{verdict:?}");
    }
}
