//! Random histories: what callers, operators and clocks do to a limiter.
//!
//! A history is run on an engine and on the model at once; every answer must be
//! the same. Few keys, small limits and short times, so that things meet. When
//! two answers differ, proptest shrinks the history and prints what is left.

mod plan;
mod stage;

use std::time::Duration;

use ratekeeper_core::{Charges, Decision, Key, Override, Penalty, Reservation, Timestamp};

use self::plan::SUBJECTS;
pub use self::plan::{ChargePlan, CheckPlan, Event, IdUse, PenaltyPlan, histories};
use self::stage::Stage;
use crate::{Engine, ModelEngine};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Runs a history on `engine` and on the model.
///
/// # Errors
/// The first answer in which they differ, and where.
pub fn run(engine: &mut impl Engine, history: &[Event]) -> Result<(), String> {
    let stage = Stage::new();
    let mut model = ModelEngine::default();
    let mut now = START;
    // Ids start anew when the clock steps back: whether one that has expired by
    // then is remembered depends on when a store cleans up.
    let mut epoch = 0u8;
    // Each gives back what it charged itself: a decision has its store's numbers of the counters.
    let [mut past, mut their_past]: [Vec<(Charges<'_>, Decision)>; 2] = Default::default();
    for (index, event) in history.iter().enumerate() {
        if let Event::Clock(step) = event {
            if *step < 0 {
                bury_the_dead(engine, &mut model, &stage)?;
            }
            now = Timestamp::from_micros(now.as_micros().saturating_add_signed(*step));
            epoch = epoch.wrapping_add(u8::from(*step < 0));
        }
        engine.set_now(now);
        model.set_now(now);
        let ours = step(engine, &stage, event, epoch, &past);
        let theirs = step(&mut model, &stage, event, epoch, &their_past);
        if ours != theirs {
            return Err(format!("event {index}, {event:?}:\n  engine: {ours:?}\n  model:  {theirs:?}"));
        }
        remember(&mut past, &stage, event, ours);
        remember(&mut their_past, &stage, event, theirs);
    }
    Ok(())
}

fn remember<'s>(past: &mut Vec<(Charges<'s>, Decision)>, stage: &'s Stage, event: &Event, answer: Answer) {
    let mut keep = |check: &CheckPlan, decision| past.push((stage.charges(&check.charges), decision));
    match (event, answer) {
        (Event::Check { check, .. }, Answer::Decision(Ok(decision))) => keep(check, decision),
        (Event::Burst(checks), Answer::Decisions(decisions)) => {
            let both = checks.iter().zip(decisions);
            both.for_each(|(check, decision)| {
                decision.into_iter().for_each(|decision| keep(check, decision));
            });
        }
        _ => {}
    }
}

/// A store may forget a counter once it is over, or keep it for a while: it is
/// all the same unless the clock then steps back. So before it does, both forget
/// what says nothing any more, and what the same key has in other windows.
fn bury_the_dead(engine: &mut impl Engine, model: &mut ModelEngine, stage: &Stage) -> Result<(), String> {
    for (name, quota) in stage.counters() {
        for subject in SUBJECTS {
            let key = Key::new(*name, subject).expect("a short subject");
            if model.has_expired(key, quota.algorithm()) {
                engine.reset(key, quota.algorithm())?;
                model.reset(key, quota.algorithm())?;
            }
        }
    }
    Ok(())
}

/// Whatever an event answers, for comparing.
#[derive(Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "short-lived, and tests only")]
enum Answer {
    Decision(Result<Decision, String>),
    Decisions(Vec<Result<Decision, String>>),
    Other(String),
}

fn step(
    engine: &mut impl Engine,
    stage: &Stage,
    event: &Event,
    epoch: u8,
    past: &[(Charges<'_>, Decision)],
) -> Answer {
    match event {
        Event::Clock(_) => Answer::Other(String::new()),
        Event::Check { check, peek, id } => {
            let charges = stage.charges(&check.charges);
            let penalties = stage.penalties(check, &charges);
            let check = charges.check().expect("at least one charge");
            let check = check.with_penalties(&penalties).expect("penalties of the table");
            let check = if *peek { check.peek() } else { check };
            let Some((id, id_use)) = id else { return Answer::Decision(engine.check(&check)) };
            let id = [epoch, *id];
            let reservation = match id_use {
                IdUse::Once(secs) => Reservation::once(&id, Duration::from_secs(*secs)),
                IdUse::Hold(secs) => Reservation::hold(&id, Duration::from_secs(*secs)),
            };
            Answer::Decision(engine.reserve(&check, &reservation.expect("a short id")))
        }
        Event::Burst(plans) => {
            let charges: Vec<Charges<'_>> = plans.iter().map(|plan| stage.charges(&plan.charges)).collect();
            let penalties: Vec<Vec<Penalty<'_>>> =
                plans.iter().zip(&charges).map(|(plan, charges)| stage.penalties(plan, charges)).collect();
            let checks = charges.iter().zip(&penalties).map(|(charges, penalties)| {
                let check = charges.check().expect("at least one charge");
                check.with_penalties(penalties).expect("penalties of the table")
            });
            Answer::Decisions(engine.check_all(&checks.collect::<Vec<_>>()))
        }
        Event::Settle { id, actual } => Answer::Other(format!("{:?}", engine.settle(&[epoch, *id], *actual))),
        Event::Refund { back, units, told } => {
            let Some((charges, decision)) = past.iter().rev().nth(*back) else {
                return Answer::Other(String::new());
            };
            let check = charges.check().expect("at least one charge");
            // What was told keeps no count: the store has to.
            let mut copy = decision.clone();
            let decision = match told {
                0 => decision,
                // No two decisions have the same, and none has it again after the clock stepped back.
                copies => {
                    let decision = (past.len() - back) as u64;
                    copy.set_nonce(u64::from(epoch) << 32 | decision << 8 | u64::from(*copies));
                    &copy
                }
            };
            Answer::Other(format!("{:?}", engine.refund(&check, decision, *units)))
        }
        Event::Reset { quota, subject } => {
            let (name, quota) = &stage.quotas[*quota];
            let key = Key::new(*name, SUBJECTS[*subject]).expect("a short subject");
            Answer::Other(format!("{:?}", engine.reset(key, quota.algorithm())))
        }
        Event::Pardon { rule, counter, subject } => {
            let Some((name, quota)) = stage.penal[*rule].counters.get(*counter) else {
                return Answer::Other(String::new());
            };
            let key = Key::new(*name, SUBJECTS[*subject]).expect("a short subject");
            Answer::Other(format!("{:?}", engine.reset(key, quota.algorithm())))
        }
        Event::Override { project, to } => {
            let scope = if *project { stage.scope } else { stage.scope.without_project() };
            let now = START;
            let to = to.map(|(limit, window_ms, ttl_secs)| Override {
                window: window_ms.map(Duration::from_millis),
                expires_at: ttl_secs.map(|secs| now.after(Duration::from_secs(secs))),
                ..Override::limit(limit)
            });
            Answer::Other(format!("{:?}", engine.set_override(scope, to)))
        }
    }
}
