//! Random histories: what callers, operators and clocks do to a limiter.
//!
//! A history is run on an engine and on the model at once; every answer must be
//! the same. Few keys, small limits and short times, so that things meet. When
//! two answers differ, proptest shrinks the history and prints what is left.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use ratekeeper_core::{
    Charge, Charges, Check, Decision, Emergency, Enforcement, Key, Name, Override, OverrideScope, Quota,
    Reservation, Timestamp,
};

use crate::{Engine, ModelEngine};

/// The quotas of a history: all algorithms, round and odd rates.
const QUOTAS: [&str; 16] = [
    "5/10s fixed_window",
    "3/calendar minute",
    "5/10s sliding_window",
    "7/3s sliding_window",
    "5/10s sliding_log",
    "12/1s sliding_log",
    "5/10s",
    "7/3s burst 10",
    "700000/s burst 3",
    "10/s leaky_bucket",
    "7/3s leaky_bucket queue 4",
    "4/10s concurrency",
    "1/1s concurrency",
    "1000000000/31d",
    "6/4s fixed_window",
    "9/2s",
];
/// Quotas that stand alone and that stores may have a short way for.
const PLAIN: [usize; 2] = [14, 15];
/// Quotas that are tiers of one rule, which stores may keep together: token
/// buckets only, and of several algorithms.
const TIERS: [(&str, &[usize]); 2] = [("t", &[6, 7, 8, 13]), ("m", &[0, 2, 9, 10])];
const SUBJECTS: [&str; 3] = ["a", "b", "c"];
const ENDPOINT: &str = "/search";
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time passes, or steps back.
    Clock(i64),
    /// A check, perhaps only a peek, perhaps under an id.
    Check { charges: Vec<ChargePlan>, peek: bool, id: Option<(u8, IdUse)> },
    /// Several checks at once, in this order.
    Burst(Vec<Vec<ChargePlan>>),
    /// A reservation is settled or cancelled.
    Settle { id: u8, actual: Option<u32> },
    /// Units of an earlier check are given back; counted from the latest.
    Refund { back: usize, units: u32 },
    /// A counter is forgotten.
    Reset { quota: usize, subject: usize },
    /// An override appears, changes or goes.
    Override { project: bool, to: Option<(u64, Option<u64>, Option<u64>)> },
}

/// How an id is used.
#[derive(Clone, Copy, Debug)]
pub enum IdUse {
    /// Kept for so many seconds.
    Once(u64),
    /// Held for so many seconds.
    Hold(u64),
}

/// One charge of a check.
#[derive(Clone, Debug)]
pub struct ChargePlan {
    quota: usize,
    subject: usize,
    cost: u64,
    shadow: bool,
    flat: bool,
    emergency: u8,
    overridable: bool,
}

fn charge_plan() -> impl Strategy<Value = ChargePlan> {
    let cost = prop_oneof![6 => Just(1u64), 3 => 2..6u64, 1 => Just(0u64), 1 => Just(11u64)];
    let emergency = prop_oneof![20 => Just(0u8), 1 => Just(1u8), 1 => Just(2u8)];
    let flags = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.2), proptest::bool::weighted(0.5));
    (0..QUOTAS.len(), 0..SUBJECTS.len(), cost, flags, emergency).prop_map(
        |(quota, subject, cost, (shadow, flat, overridable), emergency)| ChargePlan {
            quota,
            subject,
            cost,
            shadow,
            flat,
            emergency,
            overridable,
        },
    )
}

/// All tiers of a rule for one subject, as requests usually ask for them.
fn tiers() -> impl Strategy<Value = Vec<ChargePlan>> {
    (0..TIERS.len(), charge_plan()).prop_map(|(rule, plan)| {
        TIERS[rule].1.iter().map(|quota| ChargePlan { quota: *quota, emergency: 0, ..plan.clone() }).collect()
    })
}

/// What most checks are: nothing unusual, alone or as tiers, on few keys.
fn plain_plans() -> impl Strategy<Value = Vec<ChargePlan>> {
    let kind = (0..4usize, 0..2usize, prop_oneof![4 => Just(1u64), 1 => 2..5u64]);
    kind.prop_map(|(kind, subject, cost)| {
        let quotas = match kind {
            0 => TIERS[0].1,
            1 => &PLAIN[..1],
            2 => &PLAIN[1..],
            _ => &PLAIN[..],
        };
        let plain = |quota: &usize| ChargePlan {
            quota: *quota,
            subject,
            cost,
            shadow: false,
            flat: false,
            emergency: 0,
            overridable: false,
        };
        quotas.iter().map(plain).collect()
    })
}

fn charge_plans(most: usize) -> impl Strategy<Value = Vec<ChargePlan>> {
    prop_oneof![3 => vec(charge_plan(), 1..most), 1 => tiers()]
}

fn event() -> impl Strategy<Value = Event> {
    let jump = prop_oneof![
        6 => 0..2_000_000i64,
        3 => 0..20_000_000i64,
        1 => Just(0i64),
        1 => -20_000_000..0i64,
        1 => 0..90_000_000i64,
        1 => -300_000_000..0i64,
    ];
    let id_use = prop_oneof![(1..40u64).prop_map(IdUse::Once), (1..20u64).prop_map(IdUse::Hold)];
    let id = proptest::option::weighted(0.3, (0..6u8, id_use));
    // Some beyond what a log or a bucket can count.
    let limit = prop_oneof![12 => 1..12u64, 1 => Just(20_000), 1 => Just(1_000_000_000)];
    let window_ms = prop_oneof![12 => 500..30_000u64, 1 => Just(31_622_400_000), 1 => Just(1)];
    let to = (limit, proptest::option::of(window_ms), proptest::option::of(1..60u64));
    prop_oneof![
        6 => jump.prop_map(Event::Clock),
        12 => (charge_plans(6), proptest::bool::weighted(0.1), id)
            .prop_map(|(charges, peek, id)| Event::Check { charges, peek, id }),
        2 => vec(charge_plans(4), 2..12).prop_map(Event::Burst),
        2 => vec(plain_plans(), 2..12).prop_map(Event::Burst),
        2 => (0..6u8, proptest::option::weighted(0.8, 0..12u32)).prop_map(|(id, actual)| Event::Settle { id, actual }),
        3 => (0..6usize, 1..6u32).prop_map(|(back, units)| Event::Refund { back, units }),
        1 => (0..QUOTAS.len(), 0..SUBJECTS.len()).prop_map(|(quota, subject)| Event::Reset { quota, subject }),
        2 => (any::<bool>(), proptest::option::weighted(0.7, to)).prop_map(|(project, to)| Event::Override { project, to }),
    ]
}

/// Histories of up to `length` events.
pub fn histories(length: usize) -> impl Strategy<Value = Vec<Event>> {
    vec(event(), 1..length)
}

/// What a history needs that outlives its checks.
struct Stage {
    quotas: Vec<(Name, Quota)>,
    scope: OverrideScope<'static>,
}

impl Stage {
    fn new() -> Self {
        let quotas = QUOTAS.iter().enumerate().map(|(index, text)| {
            let rule = TIERS.iter().find(|(_, tiers)| tiers.contains(&index));
            let name = format!("q{index}");
            let name = match rule {
                Some((rule, _)) => Name::new(rule).and_then(|rule| Name::joined(rule, &name)),
                None => Name::new(&name),
            };
            (name.expect("a short name"), text.parse().expect("a quota of the table"))
        });
        let scope = OverrideScope::project(ENDPOINT, "1", "42").expect("a short scope");
        Self { quotas: quotas.collect(), scope }
    }

    fn charges(&self, plans: &[ChargePlan]) -> Charges<'_> {
        let mut charges = Charges::new();
        for plan in plans {
            let (name, quota) = &self.quotas[plan.quota];
            let key = Key::new(*name, SUBJECTS[plan.subject]).expect("a short subject");
            let mut charge = Charge::new(key, quota).cost(plan.cost).expect("a small cost");
            if plan.shadow {
                charge = charge.enforcement(Enforcement::Shadow);
            }
            if plan.flat {
                charge = charge.flat();
            }
            charge = charge.emergency(match plan.emergency {
                0 => Emergency::Off,
                1 => Emergency::Lift,
                _ => Emergency::Block,
            });
            if plan.overridable {
                charge = charge.overridable(self.scope);
            }
            // The same key under other terms is refused; then the check does
            // without it.
            let _ = charges.push(charge);
        }
        charges
    }
}

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
    match (event, answer) {
        (Event::Check { charges, .. }, Answer::Decision(Ok(decision))) => {
            past.push((stage.charges(charges), decision));
        }
        (Event::Burst(checks), Answer::Decisions(decisions)) => {
            let both = checks.iter().zip(decisions);
            past.extend(both.filter_map(|(plan, decision)| Some((stage.charges(plan), decision.ok()?))));
        }
        _ => {}
    }
}

/// A store may forget a counter once it is full again, or keep it for a while:
/// it is all the same unless the clock then steps back. So before it does, both
/// forget what says nothing any more.
fn bury_the_dead(engine: &mut impl Engine, model: &mut ModelEngine, stage: &Stage) -> Result<(), String> {
    for (name, quota) in &stage.quotas {
        for subject in SUBJECTS {
            let key = Key::new(*name, subject).expect("a short subject");
            let charge = Charge::new(key, quota);
            let seen = model.check(&Check::one(&charge).peek())?;
            if seen.verdicts()[0].reset_after().is_zero() {
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
        Event::Check { charges, peek, id } => {
            let charges = stage.charges(charges);
            let check = charges.check().expect("at least one charge");
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
            let charges: Vec<Charges<'_>> = plans.iter().map(|plan| stage.charges(plan)).collect();
            let checks: Vec<Check<'_>> =
                charges.iter().map(|charges| charges.check().expect("at least one charge")).collect();
            Answer::Decisions(engine.check_all(&checks))
        }
        Event::Settle { id, actual } => Answer::Other(format!("{:?}", engine.settle(&[epoch, *id], *actual))),
        Event::Refund { back, units } => {
            let Some((charges, decision)) = past.iter().rev().nth(*back) else {
                return Answer::Other(String::new());
            };
            let check = charges.check().expect("at least one charge");
            Answer::Other(format!("{:?}", engine.refund(&check, decision, *units)))
        }
        Event::Reset { quota, subject } => {
            let (name, quota) = &stage.quotas[*quota];
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
