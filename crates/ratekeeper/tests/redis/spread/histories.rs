//! Checks over several servers against the model, which is one place: without others at work, both say the same.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use ratekeeper::{Charges, Decision, Quota, Timestamp};
use ratekeeper_testkit::servers::{Cluster, Flavour};
use ratekeeper_testkit::{Engine, ModelEngine};

use super::rig::servers;
use crate::engine::{RedisEngine, runtime, urls_of};
use crate::setup::{charge, quota};

/// A fixed window off the calendar is not among them: one that a denied check began keeps its end, which is the one
/// trace of a denial that spans servers (docs/redis.md).
const QUOTAS: [&str; 6] = [
    "4/calendar minute fixed_window",
    "4/10s sliding_window",
    "4/10s sliding_log",
    "4/10s",
    "4/10s leaky_bucket queue 3",
    "3/10s concurrency",
];
const SUBJECTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

#[derive(Clone, Debug)]
struct Step {
    millis: u64,
    /// Quota, subject, cost, whether it only watches.
    charges: Vec<(usize, usize, u64, bool)>,
    peek: bool,
    /// Gives so many units of the decision before the last back.
    back: Option<u32>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let charge = (0..QUOTAS.len(), 0..SUBJECTS.len(), 0..4_u64, proptest::bool::weighted(0.2));
    let step = (
        0..3_000_u64,
        vec(charge, 1..5),
        proptest::bool::weighted(0.1),
        proptest::option::weighted(0.2, 1..4_u32),
    );
    vec(step.prop_map(|(millis, charges, peek, back)| Step { millis, charges, peek, back }), 1..40)
}

/// The charges of a step, without those that cannot be in one check.
fn charges<'q>(step: &Step, quotas: &'q [&'static Quota]) -> Charges<'q> {
    let mut charges = Charges::new();
    for (index, subject, cost, shadow) in &step.charges {
        let own = charge(&format!("history{index}"), SUBJECTS[*subject], quotas[*index]).cost(*cost).unwrap();
        let own = if *shadow { own.enforcement(ratekeeper::Enforcement::Shadow) } else { own };
        // The same counter enforced and not is no check.
        let _ = charges.push(own);
    }
    charges
}

/// All of a decision but its receipts: a holder that was given back has used up a number.
fn shown(decision: &Decision) -> String {
    let verdicts = decision.verdicts().iter().map(|verdict| {
        let left = (verdict.remaining(), verdict.reset_after(), verdict.retry_after());
        (verdict.name(), left, verdict.is_denied(), verdict.cost(), verdict.receipt().is_some())
    });
    let whole = (decision.outcome(), decision.origin(), decision.at());
    let waits = (decision.retry_after(), decision.proceed_after());
    format!("{whole:?} {waits:?} {:?}", verdicts.collect::<Vec<_>>())
}

fn compare(engine: &mut impl Engine, steps: &[Step]) -> Result<(), String> {
    let quotas: Vec<&'static Quota> = QUOTAS.into_iter().map(quota).collect();
    let (mut model, mut now) = (ModelEngine::default(), START);
    let mut past: Vec<(Charges<'_>, Decision, Decision)> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        now = Timestamp::from_micros(now.as_micros() + step.millis * 1_000);
        engine.set_now(now);
        model.set_now(now);
        let charges = charges(step, &quotas);
        let check = charges.check().map_err(|error| error.to_string())?;
        let check = if step.peek { check.peek() } else { check };
        let (ours, theirs) = (engine.check(&check)?, model.check(&check)?);
        if shown(&ours) != shown(&theirs) {
            return Err(format!("step {number}, {step:?}:\n  servers: {ours:?}\n  model:   {theirs:?}"));
        }
        past.push((charges.clone(), ours, theirs));
        if let (Some(units), Some((charges, ours, theirs))) = (step.back, past.iter().rev().nth(1)) {
            let check = charges.check().map_err(|error| error.to_string())?;
            let (ours, theirs) = (engine.refund(&check, ours, units)?, model.refund(&check, theirs, units)?);
            if ours != theirs {
                return Err(format!("step {number}: {ours} given back, by the model {theirs}"));
            }
        }
    }
    Ok(())
}

fn agree_with_the_model(urls: &str) {
    let runtime = runtime();
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&steps(), |steps| {
        compare(&mut RedisEngine::spread(urls, &runtime), &steps).map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|difference| panic!("{urls} and the model differ: {difference}"));
}

#[test]
fn checks_over_servers_agree_with_the_model() {
    agree_with_the_model(&urls_of(&servers()));
}

#[test]
fn checks_over_slots_agree_with_the_model() {
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        agree_with_the_model(&Cluster::start(flavour).url());
    }
}
