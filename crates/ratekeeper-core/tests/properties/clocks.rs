//! Clocks that jitter and jump: time does not run backwards for a counter,
//! and looking at one that has to be healed does not heal it.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof};
use proptest::test_runner::TestCaseResult;
use ratekeeper_core::{
    Algorithm, Charge, Charges, Check, Decision, Key, Model, Name, Override, OverrideScope, Quota, Timestamp,
};

use crate::layers::{Request, layers, requests};
use crate::support::{Counter, START, Step, histories, hold, quotas};

/// What was admitted while the clock jittered.
struct Admission {
    units: i128,
    /// The instant at which it was judged.
    at: i128,
    /// The instant that its receipt names.
    receipt: i128,
    /// How far the clock had run forwards by then, in all.
    forwards: i128,
}

/// Steps of a history, each after the clock has stepped back by so many
/// thousandths of the window; mostly by nothing.
fn jitter() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let back = prop_oneof![4 => Just(0), 1 => 0..=1_000u64];
    (histories(40), vec(back, 40)).prop_map(|(history, back)| history.into_iter().zip(back).collect())
}

fn admissions(quota: Quota, history: &[(Step, u64)]) -> Vec<Admission> {
    let mut counter = Counter::new(quota);
    let (mut now, mut newest, mut forwards) = (START, START, 0);
    let mut admitted = Vec::new();
    for (step, permille) in history {
        // Never more than a window behind: counters are re-based beyond that.
        let window = quota.window_micros();
        now = (now - window / 1_000 * permille).max(newest - window);
        let (next, cost) = counter.follow(*step, now);
        forwards += next - now;
        now = next;
        newest = newest.max(now);
        let answer = counter.ask(now, cost);
        admitted.extend(answer.receipt.map(|receipt| Admission {
            units: cost.into(),
            at: answer.at.into(),
            receipt: receipt.at.into(),
            forwards: forwards.into(),
        }));
    }
    admitted
}

fn jitter_keeps(algorithm: Algorithm, bound: impl Fn(&Quota, &[Admission]) -> TestCaseResult) {
    hold(2_000, (quotas(algorithm), jitter()), |(quota, history)| {
        bound(&quota, &admissions(quota, &history))
    });
}

#[test]
fn a_clock_that_jitters_opens_no_window_twice() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        jitter_keeps(algorithm, |quota, admitted| {
            let window = i128::from(quota.window_micros());
            for one in admitted {
                // The receipt names the window, by its end or its start; nothing
                // is judged at an instant before it.
                let start = one.receipt - if algorithm == Algorithm::FixedWindow { window } else { 0 };
                prop_assert!((start..start + window).contains(&one.at));
                let same = admitted.iter().filter(|other| other.receipt == one.receipt);
                prop_assert!(same.map(|other| other.units).sum::<i128>() <= quota.limit().into());
            }
            // Those of a calendar may be cut, none overlaps the next.
            let apart = |[one, next]: &[&Admission; 2]| {
                let apart = next.receipt - one.receipt;
                apart == 0 || apart >= window
            };
            let pairs = admitted.iter().zip(admitted.iter().skip(1)).map(|(one, next)| [one, next]);
            prop_assert!(pairs.into_iter().all(|pair| apart(&pair)));
            Ok(())
        });
    }
}

#[test]
fn a_clock_that_jitters_leaves_a_log_exact_and_in_order() {
    jitter_keeps(Algorithm::SlidingLog, |quota, admitted| {
        prop_assert!(admitted.iter().is_sorted_by_key(|one| one.at));
        for one in admitted {
            let window = 0..i128::from(quota.window_micros());
            let held = admitted.iter().filter(|other| window.contains(&(one.at - other.at)));
            prop_assert!(held.map(|other| other.units).sum::<i128>() <= quota.limit().into());
        }
        Ok(())
    });
}

/// The counters of a check share an instant: no counter may be left ahead of
/// the one that another brings in.
#[test]
fn a_log_beside_a_longer_window_stays_exact_when_the_clock_steps_back() {
    let quotas: [Quota; 2] = ["9/10s fixed_window", "2/1s sliding_log"].map(|text| text.parse().unwrap());
    let names = ["window", "log"].map(|name| Name::new(name).unwrap());
    let charge = |index: usize| Charge::new(Key::new(names[index], "subject").unwrap(), &quotas[index]);
    let (window, log) = (charge(0), charge(1));
    let mut both = Charges::new();
    both.push(window).unwrap();
    both.push(log).unwrap();

    let mut model = Model::default();
    let mut passes = |check: Check<'_>, millis: u64| {
        model.check(&check, Timestamp::from_micros(START + millis * 1_000)).expect("few windows").is_allowed()
    };
    assert!(passes(Check::one(&window), 9_000));
    assert!(passes(Check::one(&log), 10_000), "the log is at 10 s from here on");
    // The clock is set back by ten seconds: too far for the log to stand by its
    // instant, but the window brings in 9 s, and that is not too far.
    assert!(passes(both.check().unwrap(), 0));
    assert!(!passes(Check::one(&log), 10_500), "two were admitted at 10 s");
}

/// A bucket keeps no instant of its own. If the clock steps back while it owes
/// all it can, it forgets by how much, and time that comes again refills it
/// again: so what counts here is how far the clock ran forwards in all.
#[test]
fn a_clock_that_jitters_refills_a_token_bucket_only_while_it_runs_forwards() {
    jitter_keeps(Algorithm::TokenBucket, |quota, admitted| {
        let (limit, window) = (i128::from(quota.limit()), i128::from(quota.window_micros()));
        for (last, to) in admitted.iter().enumerate() {
            let mut units = 0;
            for from in admitted[..=last].iter().rev() {
                units += from.units;
                let most = i128::from(quota.capacity()) * window + (to.forwards - from.forwards) * limit;
                prop_assert!(units * window <= most);
            }
        }
        Ok(())
    });
}

/// Where the clock stands: ordinary instants, and both ends of time.
fn instants() -> impl Strategy<Value = u64> {
    let max = Timestamp::MAX.as_micros();
    prop_oneof![
        6 => START..=START + 5_000_000,
        1 => START..=START + 366 * 86_400_000_000,
        1 => 0..=5_000_000u64,
        1 => max - 5_000_000..=max,
    ]
}

/// Sets the same override on both models, or takes it away.
fn set_override(models: [&mut Model; 2], scope: OverrideScope<'_>, to: (u64, Option<u64>)) {
    let (limit, millis) = to;
    let window = millis.map(Duration::from_millis);
    let found = (limit > 0).then(|| Override { window, ..Override::limit(limit) });
    for model in models {
        model.set_override(scope, found.clone()).expect("numbers in range");
    }
}

fn is_sound(decision: &Decision, now: Timestamp) -> TestCaseResult {
    prop_assert!(decision.at() >= now);
    for verdict in decision.verdicts() {
        prop_assert!(verdict.remaining() <= verdict.quota().capacity());
    }
    Ok(())
}

/// Two models live through the same; one of them is looked at all the time.
#[test]
fn peeks_leave_no_trace_even_on_counters_that_must_be_healed() {
    let scope = OverrideScope::project("/search", "1", "42").expect("a short scope");
    let change = weighted(0.2, (0..=12u64, proptest::option::of(1..=5_000u64)));
    let happenings = vec((instants(), weighted(0.3, instants()), change), 25);
    hold(1_500, (layers(), requests(25), happenings), |(layers, requests, happenings)| {
        let layers = layers.overridable(scope);
        let (mut alone, mut watched) = (Model::default(), Model::default());
        for (Request { costs, .. }, (now, look, change)) in requests.into_iter().zip(happenings) {
            if let Some(to) = change {
                set_override([&mut alone, &mut watched], scope, to);
            }
            let charges = layers.charges(&costs);
            let check = charges.check().expect("at least one layer");
            for now in look.into_iter().chain([now]).map(Timestamp::from_micros) {
                let seen = watched.check(&check.peek(), now);
                seen.iter().try_for_each(|seen| is_sound(seen, now))?;
                prop_assert_eq!(watched.check(&check.peek(), now), seen);
            }
            let now = Timestamp::from_micros(now);
            let [decision, other] = [&mut alone, &mut watched].map(|model| model.check(&check, now));
            decision.iter().try_for_each(|decision| is_sound(decision, now))?;
            prop_assert_eq!(decision, other);
        }
        Ok(())
    });
}
