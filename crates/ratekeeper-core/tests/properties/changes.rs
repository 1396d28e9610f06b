//! Quotas that change and clocks that step, to the ends of time: nothing
//! panics, nothing is given away, nobody waits for ever.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::test_runner::TestCaseResult;
use ratekeeper_core::{Algorithm, Quota, Receipt, State, Timestamp};

use crate::retry::retry_is_exact;
use crate::support::{Answer, Cost, Counter, Pause, START, costs, histories, hold, pauses, quotas, rates};

/// One thing that happens to a counter.
#[derive(Clone, Copy, Debug)]
enum Event {
    Ask(Pause, Cost),
    /// Another limit, perhaps another window, as an override has it.
    Quota {
        limit: u64,
        window_millis: Option<u64>,
    },
    /// The clock steps, either way.
    Step(i64),
    /// The clock is set: so long after 0, or so long before the end of time.
    Early(u64),
    Late(u64),
    /// An earlier charge is given back, counted from the latest.
    Refund {
        back: usize,
        units: u32,
    },
    /// An earlier charge turns out to cost more.
    TopUp {
        back: usize,
        units: u32,
    },
}

/// How far a clock steps: within a window, a few, and out of all proportion.
fn steps() -> impl Strategy<Value = i64> {
    let year = 366 * 86_400_000_000i64;
    prop_oneof![
        3 => -1_000..=1_000i64,
        3 => -60_000_000..=60_000_000i64,
        1 => -50 * year..=50 * year,
    ]
}

fn overrides() -> impl Strategy<Value = Event> {
    let quota = |(limit, window_millis)| Event::Quota { limit, window_millis };
    let usual = (rates(), any::<bool>()).prop_map(|((limit, millis), own)| (limit, own.then_some(millis)));
    // Stored by whoever, so beyond every bound.
    let any_number = || prop_oneof![Just(0), any::<u64>(), (0..40u32).prop_map(|digits| 1 << digits)];
    let wild = (any_number(), proptest::option::of(any_number()));
    prop_oneof![4 => usual, 1 => wild].prop_map(quota)
}

fn events() -> impl Strategy<Value = Event> {
    let units = prop_oneof![5 => 1..=5u32, 1 => 1..=1_000_000_000u32];
    prop_oneof![
        12 => (pauses(), costs()).prop_map(|(pause, cost)| Event::Ask(pause, cost)),
        3 => overrides(),
        2 => steps().prop_map(Event::Step),
        1 => (0..=5_000u64).prop_map(Event::Early),
        1 => (0..=5_000u64).prop_map(Event::Late),
        2 => (0..3usize, units.clone()).prop_map(|(back, units)| Event::Refund { back, units }),
        1 => (0..3usize, units).prop_map(|(back, units)| Event::TopUp { back, units }),
    ]
}

/// A counter, its clock, and what was charged under which quota.
struct Stage {
    first: Quota,
    counter: Counter,
    now: u64,
    charges: Vec<(Quota, Receipt)>,
    /// No quota so far took longer than this to fill.
    longest: u64,
}

impl Stage {
    fn new(quota: Quota, now: u64) -> Self {
        Self {
            first: quota,
            counter: Counter::new(quota),
            now,
            charges: Vec::new(),
            longest: fill_time(&quota),
        }
    }

    fn set_clock(&mut self, to: u64) {
        self.now = Timestamp::from_micros(to).as_micros();
    }

    fn charge(&self, back: usize) -> Option<(Quota, Receipt)> {
        self.charges.iter().rev().nth(back).copied()
    }

    fn apply(&mut self, event: Event) -> TestCaseResult {
        match event {
            Event::Ask(pause, cost) => {
                self.set_clock(self.counter.after(pause, self.now));
                let cost = self.counter.cost(cost, self.now);
                let answer = self.counter.ask(self.now, cost);
                self.charges.extend(answer.receipt.map(|receipt| (self.counter.quota, receipt)));
                self.nobody_waits_for_ever(&answer)?;
            }
            Event::Quota { limit, window_millis } => {
                let window = window_millis.map(Duration::from_millis);
                self.counter.quota = self.first.overridden(limit, window);
                self.longest = self.longest.max(fill_time(&self.counter.quota));
            }
            Event::Step(by) => self.set_clock(self.now.saturating_add_signed(by)),
            Event::Early(micros) => self.set_clock(micros),
            Event::Late(micros) => self.set_clock(Timestamp::MAX.as_micros() - micros),
            // Both as a ledger settles: under the quota of the charge, on a
            // counter that may be unwell.
            Event::Refund { back, units } => {
                let Some((quota, receipt)) = self.charge(back) else { return Ok(()) };
                let at = self.counter.state.instant(self.now);
                self.counter.state.refund(&quota, at, units, receipt);
            }
            Event::TopUp { back, units } => {
                let Some((quota, _)) = self.charge(back) else { return Ok(()) };
                let at = self.counter.state.instant(self.now);
                self.counter.state.top_up(&quota, at, units);
            }
        }
        self.is_sound()
    }

    /// From where the clock stands, not from where the counter says it does.
    fn nobody_waits_for_ever(&self, answer: &Answer) -> TestCaseResult {
        if let Some(wait) = answer.wait.as_micros() {
            let until = answer.at + wait;
            prop_assert!(until <= self.now + self.longest, "{} under {}", wait, self.counter.quota);
        }
        Ok(())
    }

    /// What must be true of any state at any time.
    fn is_sound(&self) -> TestCaseResult {
        let Counter { quota, state } = &self.counter;
        let at = state.instant(self.now);
        let mut healed = state.clone();
        healed.heal(quota, at);
        prop_assert!(!healed.is_unwell(quota, at), "unwell after healing: {:?}", healed);
        let mut twice = healed.clone();
        twice.heal(quota, at);
        prop_assert_eq!(&twice, &healed);
        if !state.is_unwell(quota, at) {
            prop_assert_eq!(state, &healed);
        }
        let status = healed.status(quota, at);
        prop_assert!(status.remaining <= quota.capacity());
        prop_assert!(is_in_order(&healed), "out of order: {:?}", healed);
        Ok(())
    }
}

/// Three times the longest of a window, a burst and a queue, and the longest debt on top: an
/// instant up to one window ahead stands, and from there a sliding window is over after two.
fn fill_time(quota: &Quota) -> u64 {
    let window = u128::from(quota.window_micros());
    let burst = (u128::from(quota.capacity()) * window).div_ceil(quota.limit().max(1).into());
    3 * u64::try_from(burst.max(window)).expect("at most a year") + 12 * quota.window_micros()
}

/// Whether the lists in a state are in the order their documentation says.
fn is_in_order(state: &State) -> bool {
    match state {
        State::SlidingLog(log) => log.entries.iter().is_sorted_by_key(|(at, _)| at),
        State::Concurrency(leases) => leases.holders.iter().is_sorted_by_key(|holder| holder.since),
        _ => true,
    }
}

for_each_algorithm!(no_change_of_quota_or_clock_breaks_a_counter: nothing_breaks);

fn nothing_breaks(algorithm: Algorithm) {
    let max = Timestamp::MAX.as_micros();
    let start = prop_oneof![2 => START..=START + 1_000, 1 => 0..=1_000u64, 1 => max - 1_000..=max];
    hold(2_000, (quotas(algorithm), start, vec(events(), 1..=40)), |(quota, start, events)| {
        let mut stage = Stage::new(quota, start);
        for event in events {
            stage.apply(event)?;
        }
        Ok(())
    });
}

for_each_algorithm!(retry_after_is_exact_also_when_the_clock_has_stepped: exact_after_steps);

fn exact_after_steps(algorithm: Algorithm) {
    let event = prop_oneof![
        4 => (pauses(), costs()).prop_map(|(pause, cost)| Event::Ask(pause, cost)),
        1 => steps().prop_map(Event::Step),
    ];
    exact_after(algorithm, event);
}

for_each_algorithm!(retry_after_is_exact_whatever_happened_before: exact_after_all);

fn exact_after_all(algorithm: Algorithm) {
    exact_after(algorithm, events());
}

fn exact_after(algorithm: Algorithm, event: impl Strategy<Value = Event>) {
    let last = prop_oneof![Just(Cost::Units(1)), costs()];
    hold(2_000, (quotas(algorithm), vec(event, 1..=30), last), |(quota, events, cost)| {
        let mut stage = Stage::new(quota, START);
        for event in events {
            stage.apply(event)?;
        }
        // At the end of time there is no later instant to try.
        if stage.now > Timestamp::MAX.as_micros() / 2 {
            stage.set_clock(START);
        }
        let mut counter = stage.counter;
        let cost = counter.cost(cost, stage.now);
        let answer = counter.ask(stage.now, cost);
        retry_is_exact(&counter, &answer, cost)
    });
}

for_each_algorithm!(a_clock_that_steps_back_gives_no_room: no_room_from_steps);

fn no_room_from_steps(algorithm: Algorithm) {
    hold(1_500, (quotas(algorithm), histories(20), steps()), |(quota, history, by)| {
        let mut counter = Counter::new(quota);
        let mut now = START;
        for step in history {
            let cost;
            (now, cost) = counter.follow(step, now);
            counter.ask(now, cost);
        }
        let before = counter.status(now).remaining;
        let after = counter.status(now.saturating_sub(by.unsigned_abs())).remaining;
        prop_assert!(after <= before, "{} became {}", before, after);
        Ok(())
    });
}
