//! Over random requests: values parse, say what the verdicts say, and whoever
//! believes them comes back at the right time.

use std::cmp::Reverse;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use ratekeeper_core::{
    Algorithm, Decision, Emergency, Enforcement, Level, Model, Name, Override, OverrideScope, Quota,
    Timestamp, Verdict,
};
use ratekeeper_http::{Denial, Draft, HttpOptions, Tally};

use crate::support::{NOW, Plan, Told, by_name, members, plan, with_check};

/// Every algorithm; huge limits, short windows, calendars, bursts and queues.
const QUOTAS: [&str; 18] = [
    "5/10s fixed_window",
    "1/1ms fixed_window",
    "1000000000/366d fixed_window",
    "3/calendar minute",
    "3/calendar week",
    "2/calendar month",
    "5/10s sliding_window",
    "7/3s sliding_window",
    "5/10s sliding_log",
    "3/500ms sliding_log",
    "5/10s",
    "7/3s burst 10",
    "10/s burst 2",
    "1000000000/31d",
    "10/s leaky_bucket",
    "7/3s leaky_bucket queue 4",
    "4/10s concurrency",
    "1/1500ms concurrency",
];
/// As operators should not write them, but may.
const NAMES: [&str; 4] = ["api", r#"a"b"#, r"back\slash", r#""; q=0, "x\"#];

fn plans() -> impl Strategy<Value = Plan> {
    let cost = prop_oneof![6 => Just(1u64), 3 => 2..6u64, 1 => Just(0u64), 1 => Just(20u64), 1 => Just(1_000_000_000u64)];
    let emergency =
        prop_oneof![20 => Just(Emergency::Off), 1 => Just(Emergency::Lift), 1 => Just(Emergency::Block)];
    (0..QUOTAS.len(), 0..NAMES.len(), any::<bool>(), cost, proptest::bool::weighted(0.2), emergency).prop_map(
        |(quota, name, other, cost, shadow, emergency)| {
            // One quota under one name, so that a name is a policy.
            let rule = Name::new(NAMES[name]).unwrap();
            Plan {
                name: Name::joined(rule, &format!("q{quota}")).unwrap(),
                cost,
                emergency,
                enforcement: if shadow { Enforcement::Shadow } else { Enforcement::Enforce },
                ..plan("any", QUOTAS[quota]).subject(if other { "a" } else { "b" })
            }
        },
    )
}

/// Requests, and how long after the one before each comes, in microseconds.
fn histories() -> impl Strategy<Value = Vec<(u64, Vec<Plan>)>> {
    let pause = prop_oneof![3 => Just(0u64), 3 => 0..2_000_000u64, 1 => 0..100_000_000u64];
    let request = prop_oneof![1 => vec(plans(), 1..7), 2 => vec(plans(), 1..3)];
    // The same request again and again, so that limits are met.
    (vec((pause, any::<u8>()), 1..25), vec(request, 1..3)).prop_map(|(pauses, requests)| {
        let pick = |pick: u8| requests[usize::from(pick) % requests.len()].clone();
        pauses.into_iter().map(|(pause, which)| (pause, pick(which))).collect()
    })
}

fn hold(cases: u32, test: impl Fn(&mut Model, &[Plan], Timestamp, &Decision) -> TestCaseResult) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&histories(), |history| {
        let (mut model, mut now) = (Model::default(), NOW);
        for (pause, plans) in history {
            now = now.after(Duration::from_micros(pause));
            let decision = with_check(&plans, |check| model.check(&check, now).unwrap());
            test(&mut model, &plans, now, &decision)?;
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn ceil(micros: u64) -> i64 {
    i64::try_from(micros / 1_000_000 + u64::from(!micros.is_multiple_of(1_000_000))).unwrap()
}

fn policies(verdicts: &[Verdict]) -> Vec<(Name, Quota)> {
    let mut seen = Vec::new();
    for verdict in verdicts {
        if !seen.contains(&(verdict.name(), *verdict.quota())) {
            seen.push((verdict.name(), *verdict.quota()));
        }
    }
    seen
}

fn policy_is_right(told: &Told, quota: &Quota) -> TestCaseResult {
    prop_assert_eq!(told.get("q"), Some(quota.limit().into()));
    if quota.algorithm() == Algorithm::Concurrency {
        prop_assert_eq!((told.unit.as_deref(), told.get("w")), (Some("concurrent-requests"), None));
    } else {
        prop_assert_eq!((told.unit.as_deref(), told.get("w")), (None, Some(ceil(quota.window_micros()))));
        prop_assert!(told.get("w") > Some(0));
    }
    let bursts = quota.algorithm() == Algorithm::TokenBucket && quota.capacity() != quota.limit();
    prop_assert_eq!(told.get("ratekeeper-burst"), bursts.then_some(quota.capacity().into()));
    let queue = Some(i64::from(quota.queue())).filter(|queue| *queue > 0);
    prop_assert_eq!(told.get("ratekeeper-queue"), queue);
    Ok(())
}

/// What a verdict should be told as, as docs/http.md has it: `r` and `t`.
fn status_of(verdict: &Verdict) -> (i64, Option<i64>) {
    let reset = ceil(u64::try_from(verdict.reset_after().as_micros()).unwrap());
    let blocked = verdict.level() == Level::Emergency && verdict.retry_after().is_never();
    match (blocked, verdict.retry_after().as_micros()) {
        (true, _) => (0, None),
        (false, None) if verdict.is_denied() => (verdict.remaining().into(), None),
        (false, None | Some(0)) => (verdict.remaining().into(), Some(reset)),
        (false, Some(wait)) => (verdict.remaining().into(), Some(ceil(wait))),
    }
}

#[test]
fn every_policy_is_told_once_in_order_and_as_its_verdict_says() {
    hold(1_500, |_, _, _, decision| {
        let verdicts = decision.verdicts();
        let expected = policies(verdicts);
        for draft in [Draft::V11, Draft::Next] {
            let fields = by_name(Tally::of(decision).fields(&HttpOptions::default().draft(draft)));
            let (available, window) = if draft == Draft::V11 { ("r", "t") } else { ("a", "w") };
            let stable = members(&fields["ratelimit-policy"]);
            let status = members(&fields["ratelimit"]);
            prop_assert_eq!((fields.len(), stable.len(), status.len()), (2, expected.len(), expected.len()));
            for ((name, quota), (policy, told)) in expected.iter().zip(stable.iter().zip(&status)) {
                prop_assert_eq!(
                    (&policy.name, &told.name),
                    (&name.label().to_owned(), &name.label().to_owned())
                );
                policy_is_right(policy, quota)?;
                // Of several keys under a policy, the worst off.
                let same = verdicts.iter().filter(|v| (v.name(), *v.quota()) == (*name, *quota));
                let harshness = |v: &&Verdict| (v.is_denied(), v.retry_after(), Reverse(status_of(v).0));
                let worst = same.max_by_key(harshness).unwrap();
                prop_assert_eq!((told.get(available).unwrap(), told.get(window)), status_of(worst));
                let cost = (draft == Draft::Next).then_some(i64::from(worst.cost()));
                prop_assert_eq!(told.get("c"), cost);
                prop_assert!(told.partition.is_none() && policy.partition.is_none());
            }
        }
        Ok(())
    });
}

#[test]
fn whoever_waits_as_told_is_let_in_and_not_before() {
    hold(1_500, |model, plans, now, decision| {
        let options = HttpOptions::default();
        let Some(denial) = Denial::of(decision, &options) else { return Ok(()) };
        prop_assert_eq!(denial.status(), 429);
        let told = by_name(denial.fields()).get("retry-after").map(|secs| secs.parse::<u64>().unwrap());
        prop_assert_eq!(told, denial.retry_after());
        let Some(secs) = told else {
            prop_assert!(decision.retry_after().is_never());
            return Ok(());
        };
        prop_assert!(secs > 0);
        let violated: Vec<&str> =
            decision.verdicts().iter().filter(|v| v.is_denied()).map(|v| v.name().label()).collect();
        let fields = by_name(Tally::of(decision).fields(&options));
        for told in members(&fields["ratelimit"]).iter().filter(|told| violated.contains(&told.name.as_str()))
        {
            let after = told.get("t").unwrap().cast_unsigned();
            prop_assert!((1..=secs).contains(&after), "t={after} and {secs} s: {decision}");
        }
        let mut asked_after = |secs| {
            let later = now.after(Duration::from_secs(secs));
            with_check(plans, |check| model.check(&check.peek(), later).unwrap().is_allowed())
        };
        prop_assert!(asked_after(secs), "not let in after {secs} s: {decision}");
        prop_assert!(!asked_after(secs - 1), "let in a second before {secs} s: {decision}");
        Ok(())
    });
}

#[test]
fn bodies_are_json_and_name_what_was_violated() {
    hold(1_000, |_, _, _, decision| {
        let options = HttpOptions::default();
        let Some(denial) = Denial::of(decision, &options) else { return Ok(()) };
        let body: serde_json::Value = serde_json::from_str(&denial.body()).expect("valid JSON");
        let mut violated: Vec<&str> = Vec::new();
        for verdict in decision.verdicts().iter().filter(|verdict| verdict.is_denied()) {
            if !violated.contains(&verdict.name().label()) {
                violated.push(verdict.name().label());
            }
        }
        prop_assert_eq!(&body["violated-policies"], &serde_json::json!(violated));
        let detail = body["detail"].as_str().unwrap();
        prop_assert!(detail.contains(decision.strictest().unwrap().name().label()), "{detail}");
        let grpc = by_name(denial.grpc_fields());
        prop_assert_eq!(grpc["grpc-message"].as_str(), detail.replace('%', "%25"));
        Ok(())
    });
}

#[test]
fn an_override_is_told_as_it_is_in_force() {
    let scope = OverrideScope::project("/search", "1", "42").unwrap();
    for (limit, window) in [(1, None), (1_000_000_000, None), (3, Some(Duration::from_millis(1_001)))] {
        let mut model = Model::default();
        let to = Override { window, ..Override::limit(limit) };
        model.set_override(scope, Some(to)).unwrap();
        let planned = plan("overridden", "10/min fixed_window");
        let key = ratekeeper_core::Key::new(planned.name, "1:42").unwrap();
        let charge = ratekeeper_core::Charge::new(key, &planned.quota).overridable(scope);
        let decision = model.check(&ratekeeper_core::Check::one(&charge), NOW).unwrap();
        let told = by_name(Tally::of(&decision).fields(&HttpOptions::default()));
        let policy = &members(&told["ratelimit-policy"])[0];
        let secs = window.map_or(60, |_| 2);
        assert_eq!((policy.get("q"), policy.get("w")), (Some(limit.cast_signed()), Some(secs)));
        assert_eq!(members(&told["ratelimit"])[0].get("r"), Some(limit.cast_signed() - 1));
    }
}
