//! What can happen in a history, and how likely it is.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};

/// The quotas of a history: all algorithms, round and odd rates.
pub(super) const QUOTAS: [&str; 20] = [
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
    "4/7s fixed_window aligned",
    "0/10s",
    "0/3s leaky_bucket",
    "0/5s sliding_log",
];
/// Quotas that let nothing pass begin here. They are drawn seldom: each denies its whole check.
const CLOSED_FROM: usize = 17;
/// Quotas that stand alone and that stores may have a short way for.
const PLAIN: [usize; 2] = [14, 15];
/// Quotas that are tiers of one rule, which stores may keep together: token
/// buckets only, and of several algorithms.
pub(super) const TIERS: [(&str, &[usize]); 2] = [("t", &[6, 7, 8, 13]), ("m", &[0, 2, 9, 10])];
/// Rules with penalties: tiers in one value, a quota that stands alone, one that is kept in a
/// list. Their strikes, their sentences, and how offences are forgotten.
pub(super) const PENAL: [(&str, &str, &[&str], Option<&str>); 4] = [
    (
        "t",
        "2/10s fixed_window",
        &["1/3s fixed_window", "1/7s fixed_window", "1/20s fixed_window"],
        Some("3/50s"),
    ),
    ("m", "3/4s fixed_window", &["1/5s fixed_window"], None),
    ("q14", "1/1s fixed_window", &["1/2s fixed_window", "1/15s fixed_window"], Some("7/30s")),
    ("q4", "2/20s fixed_window", &["1/1s fixed_window", "1/9s fixed_window"], Some("2/12s burst 3")),
];
/// How many other quotas may stand in the place of each.
pub(super) const OTHERS: usize = 3;
pub(super) const SUBJECTS: [&str; 3] = ["a", "b", "c"];

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time passes, or steps back.
    Clock(i64),
    /// A check, perhaps only a peek, perhaps under an id.
    Check { check: CheckPlan, peek: bool, id: Option<(u8, IdUse)> },
    /// Several checks, refunds and resets at once, in this order.
    Burst(Vec<Event>),
    /// A reservation is settled or cancelled.
    Settle { id: u8, actual: Option<u32> },
    /// Units of an earlier check are given back; counted from the latest. By the decision itself (0), or by
    /// what was told of it (1 and 2: two receipts of one charge).
    Refund { back: usize, units: u32, told: u8 },
    /// A counter is forgotten.
    Reset { quota: usize, subject: usize },
    /// A counter of a penalty is forgotten.
    Pardon { rule: usize, counter: usize, subject: usize },
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

/// What a check asks for.
#[derive(Clone, Debug)]
pub struct CheckPlan {
    pub(super) charges: Vec<ChargePlan>,
    pub(super) penalties: Vec<PenaltyPlan>,
}

/// A penalty of a check.
#[derive(Clone, Debug)]
pub struct PenaltyPlan {
    pub(super) rule: usize,
    pub(super) shadow: bool,
    pub(super) counts: bool,
}

/// One charge of a check.
#[derive(Clone, Debug)]
pub struct ChargePlan {
    pub(super) quota: usize,
    pub(super) subject: usize,
    pub(super) cost: u64,
    pub(super) shadow: bool,
    pub(super) flat: bool,
    pub(super) emergency: u8,
    pub(super) overridable: bool,
    /// Which other quota stands in the place of its own, as when plans change.
    pub(super) other: Option<usize>,
}

fn charge_plan() -> impl Strategy<Value = ChargePlan> {
    let cost = prop_oneof![6 => Just(1u64), 3 => 2..6u64, 1 => Just(0u64), 1 => Just(11u64)];
    let emergency = prop_oneof![20 => Just(0u8), 1 => Just(1u8), 1 => Just(2u8)];
    let flags = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.2), proptest::bool::weighted(0.5));
    let quota = prop_oneof![40 => 0..CLOSED_FROM, 1 => CLOSED_FROM..QUOTAS.len()];
    let other = proptest::option::weighted(0.2, 0..OTHERS);
    (quota, 0..SUBJECTS.len(), cost, flags, emergency, other).prop_map(
        |(quota, subject, cost, (shadow, flat, overridable), emergency, other)| ChargePlan {
            quota,
            subject,
            cost,
            shadow,
            flat,
            emergency,
            overridable,
            other,
        },
    )
}

/// All tiers of a rule for one subject, as requests usually ask for them, or some: rules gain and lose tiers.
fn tiers() -> impl Strategy<Value = Vec<ChargePlan>> {
    let asked = prop_oneof![3 => Just(0b1111u8), 1 => 1..0b1111u8];
    (0..TIERS.len(), charge_plan(), asked).prop_map(|(rule, plan, asked)| {
        let tiers = TIERS[rule].1.iter().enumerate().filter(|(place, _)| asked >> place & 1 == 1);
        tiers.map(|(_, quota)| ChargePlan { quota: *quota, emergency: 0, ..plan.clone() }).collect()
    })
}

/// What most checks are: nothing unusual, alone or as tiers, on few keys.
fn plain_plans() -> impl Strategy<Value = Vec<ChargePlan>> {
    let other = proptest::option::weighted(0.2, 0..OTHERS);
    let kind = (0..4usize, 0..2usize, prop_oneof![4 => Just(1u64), 1 => 2..5u64], other);
    kind.prop_map(|(kind, subject, cost, other)| {
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
            other,
        };
        quotas.iter().map(plain).collect()
    })
}

fn penalty_plan() -> impl Strategy<Value = PenaltyPlan> {
    let flags = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.9));
    (0..PENAL.len(), flags).prop_map(|(rule, (shadow, counts))| PenaltyPlan { rule, shadow, counts })
}

fn check_plan(charges: impl Strategy<Value = Vec<ChargePlan>>) -> impl Strategy<Value = CheckPlan> {
    let penalties = prop_oneof![2 => Just(Vec::new()), 2 => vec(penalty_plan(), 1..4)];
    (charges, penalties).prop_map(|(charges, penalties)| CheckPlan { charges, penalties })
}

fn check_plans(most: usize) -> impl Strategy<Value = CheckPlan> {
    check_plan(prop_oneof![3 => vec(charge_plan(), 1..most), 1 => tiers()])
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
    let limit = prop_oneof![12 => 1..12u64, 1 => Just(0), 1 => Just(20_000), 1 => Just(1_000_000_000)];
    let window_ms = prop_oneof![12 => 500..30_000u64, 1 => Just(31_622_400_000), 1 => Just(1)];
    let to = (limit, proptest::option::of(window_ms), proptest::option::of(1..60u64));
    prop_oneof![
        6 => jump.prop_map(Event::Clock),
        12 => (check_plans(6), proptest::bool::weighted(0.1), id)
            .prop_map(|(check, peek, id)| Event::Check { check, peek, id }),
        2 => burst(check_plans(4).prop_map(plain_check)),
        1 => burst(plain_plans().prop_map(without_penalties).prop_map(plain_check)),
        1 => burst(check_plan(plain_plans()).prop_map(plain_check)),
        2 => burst(in_a_burst()),
        2 => (0..6u8, proptest::option::weighted(0.8, 0..12u32)).prop_map(|(id, actual)| Event::Settle { id, actual }),
        3 => (0..6usize, 1..6u32, 0..3u8).prop_map(|(back, units, told)| Event::Refund { back, units, told }),
        1 => (0..QUOTAS.len(), 0..SUBJECTS.len()).prop_map(|(quota, subject)| Event::Reset { quota, subject }),
        1 => (0..PENAL.len(), 0..3usize, 0..SUBJECTS.len())
            .prop_map(|(rule, counter, subject)| Event::Pardon { rule, counter, subject }),
        2 => (any::<bool>(), proptest::option::weighted(0.7, to)).prop_map(|(project, to)| Event::Override { project, to }),
    ]
}

/// Whatever may travel with others.
fn in_a_burst() -> impl Strategy<Value = Event> {
    let id_use = prop_oneof![(1..40u64).prop_map(IdUse::Once), (1..20u64).prop_map(IdUse::Hold)];
    let id = proptest::option::weighted(0.3, (0..6u8, id_use));
    let check = prop_oneof![check_plans(4).boxed(), plain_plans().prop_map(without_penalties).boxed()];
    prop_oneof![
        6 => (check, proptest::bool::weighted(0.2), id)
            .prop_map(|(check, peek, id)| Event::Check { check, peek, id }),
        2 => (0..6usize, 1..6u32, 0..3u8).prop_map(|(back, units, told)| Event::Refund { back, units, told }),
        1 => (0..QUOTAS.len(), 0..SUBJECTS.len()).prop_map(|(quota, subject)| Event::Reset { quota, subject }),
        1 => (0..PENAL.len(), 0..3usize, 0..SUBJECTS.len())
            .prop_map(|(rule, counter, subject)| Event::Pardon { rule, counter, subject }),
    ]
}

fn burst(of: impl Strategy<Value = Event>) -> impl Strategy<Value = Event> {
    vec(of, 2..12).prop_map(Event::Burst)
}

fn plain_check(check: CheckPlan) -> Event {
    Event::Check { check, peek: false, id: None }
}

fn without_penalties(charges: Vec<ChargePlan>) -> CheckPlan {
    CheckPlan { charges, penalties: Vec::new() }
}

/// Histories of up to `length` events.
pub fn histories(length: usize) -> impl Strategy<Value = Vec<Event>> {
    vec(event(), 1..length)
}
