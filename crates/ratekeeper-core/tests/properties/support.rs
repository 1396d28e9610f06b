//! What the properties share: quotas, histories, and a counter to run them on.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};
use ratekeeper_core::{
    Algorithm, Calendar, CalendarUnit, ENTRIES_MAX, LIMIT_MAX, Quota, Receipt, State, Status, Wait,
};

/// An instant in 2023, far from both ends of time.
pub(crate) const START: u64 = 1_700_000_000_000_000;
/// Milliseconds of a day.
pub(crate) const DAY: u64 = 86_400_000;

/// Makes a test of `$property` for each algorithm.
macro_rules! for_each_algorithm {
    ($test:ident: $property:ident) => {
        mod $test {
            use ratekeeper_core::Algorithm;

            #[test]
            fn fixed_window() {
                super::$property(Algorithm::FixedWindow);
            }

            #[test]
            fn sliding_window() {
                super::$property(Algorithm::SlidingWindow);
            }

            #[test]
            fn sliding_log() {
                super::$property(Algorithm::SlidingLog);
            }

            #[test]
            fn token_bucket() {
                super::$property(Algorithm::TokenBucket);
            }

            #[test]
            fn leaky_bucket() {
                super::$property(Algorithm::LeakyBucket);
            }

            #[test]
            fn concurrency() {
                super::$property(Algorithm::Concurrency);
            }
        }
    };
}

/// Tests a property on `cases` values, the same ones in every run.
pub(crate) fn hold<S: Strategy>(cases: u32, values: S, property: impl Fn(S::Value) -> TestCaseResult) {
    let mut config = Config { failure_persistence: None, cases, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(7);
    }
    if let Err(failure) = TestRunner::new(config).run(&values, property) {
        panic!("{failure}");
    }
}

/// Limits and windows in milliseconds: mostly small and odd, so that things
/// meet; also the extremes that a quota accepts.
pub(crate) fn rates() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        5 => (1..=12u64, 1..=50u64),
        3 => (1..=40u64, 1..=10_000u64),
        1 => Just((7, 3_000)),
        1 => Just((3, 7)),
        1 => Just((700_000, 1_000)),
        1 => Just((1_000_000_000, 31 * DAY)),
        1 => Just((1, 366 * DAY)),
        1 => (1..=u64::from(LIMIT_MAX), 1..=366 * DAY),
    ]
}

/// Quotas of one algorithm; buckets with and without burst or queue.
pub(crate) fn quotas(algorithm: Algorithm) -> BoxedStrategy<Quota> {
    let permille = proptest::option::of(0..=3_000u64);
    let counted = (rates(), permille)
        .prop_map(move |((limit, millis), permille)| quota(algorithm, limit, millis, permille));
    if algorithm == Algorithm::FixedWindow {
        let aligned = rates().prop_map(move |(limit, millis)| {
            quota(algorithm, limit, millis, None).aligned().expect("a fixed window")
        });
        return prop_oneof![3 => counted, 1 => calendar_quotas(), 1 => aligned].boxed();
    }
    counted.boxed()
}

/// A quota whose burst or queue is `permille` of its limit, if it can be.
pub(crate) fn quota(algorithm: Algorithm, limit: u64, millis: u64, permille: Option<u64>) -> Quota {
    let most = match algorithm {
        Algorithm::SlidingLog | Algorithm::Concurrency => ENTRIES_MAX,
        _ => LIMIT_MAX,
    };
    let limit = limit.min(most.into());
    let quota = Quota::new(algorithm, limit, Duration::from_millis(millis)).expect("numbers in range");
    let extra = permille.map(|permille| limit * permille / 1_000);
    match (algorithm, extra) {
        (Algorithm::TokenBucket, Some(burst)) => quota.with_burst(burst.max(1)).unwrap_or(quota),
        (Algorithm::LeakyBucket, Some(queue)) => quota.with_queue(queue).unwrap_or(quota),
        _ => quota,
    }
}

fn calendar_quotas() -> impl Strategy<Value = Quota> {
    let unit = prop_oneof![Just(CalendarUnit::Minute), Just(CalendarUnit::Hour), Just(CalendarUnit::Day)];
    (1..=12u64, unit, -840..=840i16).prop_map(|(limit, unit, offset)| {
        let calendar = Calendar::with_offset(unit, offset).expect("an offset in range");
        Quota::calendar(limit, calendar).expect("a small limit")
    })
}

/// How long a caller waits before it asks, in terms of the counter it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    Micros(u64),
    /// So many thousandths of the window.
    Share(u64),
    /// What so many units take to refill, rounded down, and so much more.
    Units(u64, u64),
    /// Until one unit passes, or just not yet.
    UntilOne {
        early: u64,
    },
    /// Until the quota is full again, or just not yet.
    UntilReset {
        early: u64,
    },
}

/// What a caller asks for, in terms of the counter it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    Units(u32),
    /// So many thousandths of the largest cost.
    Share(u32),
    /// All that remains.
    Rest,
    /// One more than remains.
    RestAndOne,
    /// One more than can ever pass.
    TooMuch,
}

/// A pause and the question after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) pause: Pause,
    pub(crate) cost: Cost,
}

pub(crate) fn pauses() -> impl Strategy<Value = Pause> {
    prop_oneof![
        3 => (0..=2u64).prop_map(Pause::Micros),
        4 => (0..=400u64).prop_map(Pause::Share),
        2 => (0..=2_500u64).prop_map(Pause::Share),
        2 => (0..=3u64, 0..=1u64).prop_map(|(units, more)| Pause::Units(units, more)),
        2 => (0..=1u64).prop_map(|early| Pause::UntilOne { early }),
        1 => (0..=1u64).prop_map(|early| Pause::UntilReset { early }),
    ]
}

pub(crate) fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![
        6 => (1..=3u32).prop_map(Cost::Units),
        4 => (1..=1_000u32).prop_map(Cost::Share),
        2 => Just(Cost::Rest),
        1 => Just(Cost::RestAndOne),
        1 => Just(Cost::TooMuch),
    ]
}

/// Up to `length` questions.
pub(crate) fn histories(length: usize) -> impl Strategy<Value = Vec<Step>> {
    vec((pauses(), costs()).prop_map(|(pause, cost)| Step { pause, cost }), 1..=length)
}

/// One counter under one quota, asked in the order that `algorithm` prescribes.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    pub(crate) quota: Quota,
    pub(crate) state: State,
}

/// What a counter said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) at: u64,
    pub(crate) wait: Wait,
    pub(crate) proceed_after: u64,
    pub(crate) receipt: Option<Receipt>,
    pub(crate) status: Status,
}

impl Answer {
    pub(crate) fn is_admitted(&self) -> bool {
        self.receipt.is_some()
    }
}

impl Counter {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { quota, state: State::vacant(quota.algorithm()) }
    }

    /// Asks for `cost` units and charges them if there is room.
    pub(crate) fn ask(&mut self, now: u64, cost: u32) -> Answer {
        let at = self.state.instant(now);
        self.state.heal(&self.quota, at);
        let wait = self.state.wait(&self.quota, at, cost);
        let admitted = wait.is_none();
        let proceed_after = if admitted { self.state.proceed_after(&self.quota, at) } else { 0 };
        let receipt = admitted.then(|| self.state.charge(&self.quota, at, cost));
        Answer { at, wait, proceed_after, receipt, status: self.state.status(&self.quota, at) }
    }

    /// Gives units of an answered question back.
    pub(crate) fn refund(&mut self, now: u64, units: u32, receipt: Receipt) {
        let now = self.state.instant(now);
        self.state.refund(&self.quota, now, units, receipt);
    }

    /// Looks without leaving a trace: how long `cost` would have to wait.
    pub(crate) fn wait(&self, now: u64, cost: u32) -> Wait {
        let (healed, at) = self.healed(now);
        healed.wait(&self.quota, at, cost)
    }

    /// Looks without leaving a trace: what is left.
    pub(crate) fn status(&self, now: u64) -> Status {
        let (healed, at) = self.healed(now);
        healed.status(&self.quota, at)
    }

    fn healed(&self, now: u64) -> (State, u64) {
        let at = self.state.instant(now);
        let mut state = self.state.clone();
        state.heal(&self.quota, at);
        (state, at)
    }

    /// The status of a counter nobody has used.
    pub(crate) fn full(&self) -> Status {
        Status { remaining: self.quota.capacity(), reset_after: 0 }
    }

    /// The instant of a step and its cost, where the last step was at `now`.
    pub(crate) fn follow(&self, step: Step, now: u64) -> (u64, u32) {
        let now = self.after(step.pause, now);
        (now, self.cost(step.cost, now))
    }

    pub(crate) fn after(&self, pause: Pause, now: u64) -> u64 {
        let window = self.quota.window_micros();
        let pause = match pause {
            Pause::Micros(micros) => micros,
            Pause::Share(permille) => window / 1_000 * permille,
            Pause::Units(units, more) => units * window / u64::from(self.quota.limit().max(1)) + more,
            Pause::UntilOne { .. } if self.quota.is_closed() => 0,
            Pause::UntilOne { early } => {
                self.wait(now, 1).as_micros().expect("one unit passes some day").saturating_sub(early)
            }
            Pause::UntilReset { early } => self.status(now).reset_after.saturating_sub(early),
        };
        now + pause
    }

    pub(crate) fn cost(&self, cost: Cost, now: u64) -> u32 {
        let most = self.quota.cost_max();
        let units = match cost {
            Cost::Units(units) => units,
            Cost::Share(permille) => {
                u32::try_from(u64::from(most) * u64::from(permille) / 1_000).expect("a share")
            }
            Cost::Rest => self.status(now).remaining,
            Cost::RestAndOne => self.status(now).remaining + 1,
            Cost::TooMuch => most + 1,
        };
        units.max(1)
    }
}
