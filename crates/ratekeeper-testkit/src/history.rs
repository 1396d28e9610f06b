//! Random histories: what callers, operators and clocks do to a limiter.
//!
//! A history is run on an engine and on the model at once; every answer must be
//! the same. Few keys, small limits and short times, so that things meet. When
//! two answers differ, proptest shrinks the history and prints what is left.

mod plan;
mod prepared;
mod stage;

use std::time::Duration;

use ratekeeper_core::{Charges, Decision, Key, Override, Timestamp};

use self::plan::SUBJECTS;
pub use self::plan::{ChargePlan, CheckPlan, Event, IdUse, PenaltyPlan, histories};
use self::prepared::Prepared;
use self::stage::Stage;
use crate::{Engine, ModelEngine, Told};

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
    let Answer::Told(told) = answer else { return };
    let events = match event {
        Event::Burst(events) => events.as_slice(),
        event => std::slice::from_ref(event),
    };
    for pair in events.iter().zip(told) {
        if let (Event::Check { check, .. }, Told::Decision(Ok(decision))) = pair {
            past.push((stage.charges(&check.charges), decision));
        }
    }
}

/// A store may forget a counter once it is over, or keep it for a while: it is
/// all the same unless the clock then steps back. So before it does, both forget
/// what says nothing any more, and what the same key has in other windows.
fn bury_the_dead(engine: &mut impl Engine, model: &mut ModelEngine, stage: &Stage) -> Result<(), String> {
    for (name, algorithm) in stage.counters() {
        for subject in SUBJECTS {
            let key = Key::new(name, subject).expect("a short subject");
            if model.has_expired(key, algorithm) {
                engine.reset(key, algorithm)?;
                model.reset(key, algorithm)?;
            }
        }
    }
    Ok(())
}

/// Whatever an event answers, for comparing.
#[derive(Debug, PartialEq)]
enum Answer {
    Told(Vec<Told>),
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
        Event::Burst(events) => {
            let prepared: Vec<Prepared<'_, '_>> =
                events.iter().map(|event| Prepared::of(stage, event, epoch, past)).collect();
            Answer::Told(engine.together(&prepared.iter().map(Prepared::asked).collect::<Vec<_>>()))
        }
        Event::Settle { id, actual } => Answer::Other(format!("{:?}", engine.settle(&[epoch, *id], *actual))),
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
        Event::Check { .. } | Event::Refund { .. } | Event::Reset { .. } | Event::Pardon { .. } => {
            let prepared = Prepared::of(stage, event, epoch, past);
            Answer::Told(vec![engine.answer(&prepared.asked())])
        }
    }
}
