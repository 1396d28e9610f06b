//! Checks of several charges: all or nothing, in any order, and no trace of
//! what was only looked at.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use ratekeeper_core::{
    Algorithm, Charge, Charges, Check, Decision, Emergency, Enforcement, Key, Model, Name, OverrideScope,
    Quota, Timestamp, Verdict, Wait,
};

use crate::support::{Counter, START, hold, quota};

/// The most layers of a check.
const LAYERS_MAX: usize = 6;

/// The quotas that one check is held against, each on a key of its own.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(crate) quotas: Vec<(Name, Quota)>,
    shadow: Vec<bool>,
    emergency: Vec<Emergency>,
    /// Whose overrides all of them follow, if any.
    scope: Option<OverrideScope<'static>>,
}

/// Two to six quotas over all algorithms, small enough that they all bind.
pub(crate) fn layers() -> impl Strategy<Value = Layers> {
    let rate = prop_oneof![6 => (1..=8u64, 1..=2_000u64), 1 => Just((7, 3_000)), 1 => Just((700_000, 1_000))];
    let permille = proptest::option::of(0..=2_000u64);
    let layer = (proptest::sample::select(&Algorithm::ALL[..]), rate, permille);
    vec(layer, 2..=LAYERS_MAX).prop_map(|layers| {
        let quotas = layers.into_iter().enumerate().map(|(index, (algorithm, (limit, millis), permille))| {
            let name = Name::new(&format!("layer-{index}")).expect("a short name");
            (name, quota(algorithm, limit, millis, permille))
        });
        Layers { quotas: quotas.collect(), shadow: Vec::new(), emergency: Vec::new(), scope: None }
    })
}

impl Layers {
    /// The same, all under the overrides of `scope`.
    pub(crate) fn overridable(self, scope: OverrideScope<'static>) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// The charges of one request; `costs` has one for each layer and more.
    pub(crate) fn charges(&self, costs: &[u64]) -> Charges<'_> {
        let mut charges = Charges::new();
        for (index, cost) in costs.iter().enumerate().take(self.quotas.len()) {
            charges.push(self.charge(index, *cost)).expect("few charges on different keys");
        }
        charges
    }

    fn charge(&self, index: usize, cost: u64) -> Charge<'_> {
        let (name, quota) = &self.quotas[index];
        let key = Key::new(*name, "subject").expect("a short subject");
        let shadow = self.shadow.get(index).copied().unwrap_or_default();
        let charge = Charge::new(key, quota);
        self.scope
            .map_or(charge, |scope| charge.overridable(scope))
            .cost(cost)
            .expect("a small cost")
            .enforcement(if shadow { Enforcement::Shadow } else { Enforcement::Enforce })
            .emergency(self.emergency.get(index).copied().unwrap_or_default())
    }

    /// What each layer says to one unit now and later: all that callers can
    /// learn of a counter's state.
    fn seen(&self, model: &mut Model, now: u64) -> Vec<Decision> {
        let mut seen = Vec::new();
        for (name, quota) in &self.quotas {
            let key = Key::new(*name, "subject").expect("a short subject");
            let charge = Charge::new(key, quota);
            let window = quota.window_micros();
            for later in [0, 1, window / 3, window - 1, window, window + window / 2, 2 * window] {
                let check = Check::one(&charge).peek();
                seen.push(model.check(&check, Timestamp::from_micros(now + later)).expect("few windows"));
            }
        }
        seen
    }
}

/// How long until the next request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gap {
    Micros(u64),
    /// Until the last denied one would have passed.
    UntilRetry,
}

impl Gap {
    pub(crate) fn micros(self, retry_after: u64) -> u64 {
        match self {
            Gap::Micros(micros) => micros,
            Gap::UntilRetry => retry_after,
        }
    }
}

/// One request: what it costs at each layer, and whether it only looks.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) pause: Gap,
    pub(crate) costs: Vec<u64>,
    pub(crate) peek: bool,
}

pub(crate) fn requests(length: usize) -> impl Strategy<Value = Vec<Request>> {
    let pause = prop_oneof![
        2 => Just(Gap::Micros(0)),
        2 => (0..=1_000u64).prop_map(Gap::Micros),
        4 => (0..=300_000u64).prop_map(Gap::Micros),
        1 => (0..=4_000_000u64).prop_map(Gap::Micros),
        3 => Just(Gap::UntilRetry),
    ];
    let cost = prop_oneof![12 => Just(1u64), 3 => 2..=4u64, 2 => Just(0), 1 => 5..=20u64];
    let request = (pause, vec(cost, LAYERS_MAX), proptest::bool::weighted(0.15));
    vec(request.prop_map(|(pause, costs, peek)| Request { pause, costs, peek }), 1..=length)
}

/// Each layer also alone, as a counter of its own: what the check as a whole
/// says must follow from what each of them says.
#[test]
fn a_check_charges_every_layer_or_none() {
    hold(1_500, (layers(), requests(25)), |(layers, requests)| {
        let mut model = Model::default();
        let mut alone: Vec<Counter> = layers.quotas.iter().map(|(_, quota)| Counter::new(*quota)).collect();
        let (mut now, mut retry_after) = (START, 0);
        for Request { pause, costs, .. } in requests {
            now += pause.micros(retry_after);
            let charges = layers.charges(&costs);
            let check = charges.check().expect("at least one layer");
            let decision = model.check(&check, Timestamp::from_micros(now)).expect("few windows");
            let units = |index: usize| check.charges()[index].units();
            let waits = alone.iter().enumerate().filter(|(index, _)| units(*index) > 0);
            let wait =
                waits.map(|(index, counter)| counter.wait(now, units(index))).max().unwrap_or(Wait::NONE);
            prop_assert_eq!(decision.retry_after(), wait);
            prop_assert_eq!(decision.is_allowed(), wait.is_none());
            if decision.is_allowed() {
                let charged = alone.iter_mut().enumerate().filter(|(index, _)| units(*index) > 0);
                let waits = charged.map(|(index, counter)| counter.ask(now, units(index)).proceed_after);
                prop_assert_eq!(decision.proceed_after().as_micros(), u128::from(waits.max().unwrap_or(0)));
            }
            for (counter, verdict) in alone.iter().zip(decision.verdicts()) {
                let status = counter.status(now);
                prop_assert_eq!(verdict.remaining(), status.remaining, "{}", verdict.quota());
                prop_assert_eq!(verdict.reset_after().as_micros(), u128::from(status.reset_after));
            }
            retry_after = decision.retry_after().as_micros().unwrap_or(0);
        }
        Ok(())
    });
}

#[test]
fn a_denied_check_a_peek_and_a_cost_of_nothing_leave_no_trace() {
    hold(1_000, (layers(), requests(20)), |(layers, requests)| {
        let mut model = Model::default();
        let (mut now, mut retry_after) = (START, 0);
        for Request { pause, costs, peek } in requests {
            now += pause.micros(retry_after);
            let at = Timestamp::from_micros(now);
            let before = layers.seen(&mut model, now);
            let free = layers.charges(&[0; LAYERS_MAX]);
            let nothing = model.check(&free.check().expect("layers"), at).expect("few windows");
            prop_assert!(nothing.is_allowed());
            prop_assert_eq!(&layers.seen(&mut model, now), &before);

            let charges = layers.charges(&costs);
            let check = charges.check().expect("at least one layer");
            let foreseen = model.check(&check.peek(), at).expect("few windows");
            prop_assert_eq!(&layers.seen(&mut model, now), &before);
            if peek {
                continue;
            }
            let decision = model.check(&check, at).expect("few windows");
            prop_assert_eq!(decision.outcome(), foreseen.outcome());
            prop_assert_eq!(decision.retry_after(), foreseen.retry_after());
            if !decision.is_allowed() {
                prop_assert!(decision.verdicts().iter().all(|verdict| verdict.receipt().is_none()));
                prop_assert_eq!(&layers.seen(&mut model, now), &before);
            }
            retry_after = decision.retry_after().as_micros().unwrap_or(0);
        }
        Ok(())
    });
}

/// The clock steps back, too, because the instant of a check is found among
/// all its charges; some layers only watch, some are lifted or blocked.
#[test]
fn the_order_of_charges_does_not_matter() {
    let emergency =
        prop_oneof![12 => Just(Emergency::Off), 1 => Just(Emergency::Lift), 1 => Just(Emergency::Block)];
    let flags = (vec(proptest::bool::weighted(0.2), LAYERS_MAX), vec(emergency, LAYERS_MAX));
    let order = Just((0..LAYERS_MAX).collect::<Vec<_>>()).prop_shuffle();
    let steps = vec(proptest::option::weighted(0.1, any::<u32>()), 25);
    hold(1_500, (layers(), flags, order, requests(25), steps), |(layers, flags, order, requests, steps)| {
        let layers = Layers { shadow: flags.0, emergency: flags.1, ..layers };
        let order: Vec<usize> = order.into_iter().filter(|index| *index < layers.quotas.len()).collect();
        let (mut straight, mut shuffled) = (Model::default(), Model::default());
        let (mut now, mut retry_after) = (START, 0);
        for (Request { pause, costs, peek }, back) in requests.into_iter().zip(steps) {
            now += pause.micros(retry_after);
            now -= u64::from(back.unwrap_or(0)) % 5_000_000;
            let mut charges = Charges::new();
            for index in &order {
                charges.push(layers.charge(*index, costs[*index])).expect("few charges on different keys");
            }
            let mut decisions = Vec::new();
            for (model, charges) in [(&mut straight, layers.charges(&costs)), (&mut shuffled, charges)] {
                let check = charges.check().expect("at least one layer");
                let check = if peek { check.peek() } else { check };
                decisions.push(model.check(&check, Timestamp::from_micros(now)).expect("few windows"));
            }
            let (one, other) = (&decisions[0], &decisions[1]);
            prop_assert_eq!(one.outcome(), other.outcome());
            prop_assert_eq!(one.at(), other.at());
            prop_assert_eq!(one.retry_after(), other.retry_after());
            prop_assert_eq!(one.proceed_after(), other.proceed_after());
            prop_assert_eq!(by_name(one), by_name(other));
            retry_after = one.retry_after().as_micros().unwrap_or(0);
        }
        Ok(())
    });
}

fn by_name(decision: &Decision) -> Vec<Verdict> {
    let mut verdicts = decision.verdicts().to_vec();
    verdicts.sort_by_key(|verdict| verdict.name().to_string());
    verdicts
}
