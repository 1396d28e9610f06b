//! The metrics as data: their names, what they mean, their values.

use crate::engine::Outages;
use crate::store::{DataHealth, Health};

/// Rules, or combinations of rule and plan, that are told apart at most.
pub const SERIES_MAX: usize = 10_000;

/// A metric: its name, what it means, and its values.
#[derive(Clone, Debug)]
pub struct Family {
    /// Without the ending that the kind gives it.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its values.
    pub samples: Vec<Sample>,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

/// A value of a metric.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What tells it from the others.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number.
    Whole(u64),
    /// A sum, and counts by the upper ends of buckets.
    Buckets(f64, Vec<(f64, u64)>),
}

impl Family {
    /// One without values yet.
    #[must_use]
    pub fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    /// Adds a number.
    pub fn add(&mut self, labels: &[(&'static str, &str)], value: u64) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.samples.push(Sample { labels, value: Value::Whole(value) });
    }

    /// One with a single number, which has no labels.
    #[must_use]
    pub fn of(name: &'static str, kind: Kind, help: &'static str, value: u64) -> Self {
        let mut family = Self::new(name, kind, help);
        family.add(&[], value);
        family
    }
}

/// What a store has to show, and what was decided without it.
#[must_use]
pub fn of_store(health: &Health, outages: Outages) -> Vec<Family> {
    let mut families = vec![without_store(outages)];
    families.extend(store(health));
    families.extend(data(health.data.as_ref()));
    families
}

fn without_store(outages: Outages) -> Family {
    let mut family = Family::new(
        "ratekeeper_outage_decisions",
        Kind::Counter,
        "Requests that were decided without the store, by what was decided: allowed is failing open",
    );
    family.add(&[("outcome", "allowed")], outages.allowed);
    family.add(&[("outcome", "denied")], outages.denied);
    family.add(&[("outcome", "local")], outages.local);
    family
}

/// How a store is doing.
fn store(health: &Health) -> Vec<Family> {
    use Kind::{Counter, Gauge};
    let mut families = failures(health);
    families.extend([
        Family::of(
            "ratekeeper_store_failures",
            Counter,
            "Checks that the store could not answer",
            health.failures,
        ),
        Family::of(
            "ratekeeper_store_timeouts",
            Counter,
            "Calls to the store that took too long",
            health.timeouts,
        ),
        Family::of(
            "ratekeeper_store_overloads",
            Counter,
            "Checks that waited too long for a store that answers, or found too many waiting",
            health.overloads,
        ),
        Family::of("ratekeeper_store_full", Counter, "Checks that the store had no room for", health.full),
        Family::of(
            "ratekeeper_store_evicted",
            Counter,
            "Live counters that a store in memory forgot at its bound",
            health.evicted,
        ),
        Family::of(
            "ratekeeper_store_evicted_exhausted",
            Counter,
            "Exhausted counters among them: limits that were lifted early",
            health.evicted_exhausted,
        ),
        Family::of(
            "ratekeeper_store_refunds_refused",
            Counter,
            "Charges that a store in memory did not give back, because it can remember no more receipts",
            health.refunds_refused,
        ),
        Family::of(
            "ratekeeper_store_breaker_state",
            Gauge,
            "The circuit breaker: 0 closed, 1 probing, 2 open",
            health.breaker as u64,
        ),
        Family::of(
            "ratekeeper_store_breaker_opened",
            Counter,
            "How often the circuit breaker opened",
            health.breaker_opened,
        ),
        Family::of("ratekeeper_store_calls", Counter, "Calls to the store", health.batches),
        Family::of("ratekeeper_store_call_items", Counter, "Checks that travelled in them", health.batched),
        Family::of(
            "ratekeeper_store_waiting",
            Gauge,
            "Checks that wait for a connection",
            health.waiting as u64,
        ),
    ]);
    families.extend(spanning(health));
    families
}

/// How the data directory of a store in memory is doing; without one, no values.
fn data(health: Option<&DataHealth>) -> Vec<Family> {
    use Kind::{Counter, Gauge};
    let family = |name, kind, help, value: &dyn Fn(&DataHealth) -> u64| {
        let mut family = Family::new(name, kind, help);
        health.into_iter().for_each(|health| family.add(&[], value(health)));
        family
    };
    vec![
        family("ratekeeper_data_bytes", Gauge, "How large the file of the data directory is", &|data| {
            data.bytes
        }),
        family(
            "ratekeeper_data_age_seconds",
            Gauge,
            "How long ago counters were saved in the data directory; a crash loses what came after",
            &|data| data.age.as_secs(),
        ),
        family(
            "ratekeeper_data_failures",
            Counter,
            "How often the data directory could not be read or written",
            &|data| data.failures,
        ),
        family(
            "ratekeeper_data_failing",
            Gauge,
            "Whether the data directory cannot be written: overrides and switches are refused",
            &|data| data.is_failing.into(),
        ),
        family(
            "ratekeeper_data_damaged",
            Gauge,
            "Whether the file of the data directory was damaged at the start, and was set aside",
            &|data| data.was_damaged.into(),
        ),
        family(
            "ratekeeper_data_unreadable",
            Gauge,
            "Records of the data directory that could not be read at the start, and were left out",
            &|data| data.unreadable,
        ),
    ]
}

/// Checks whose counters are on several servers.
fn spanning(health: &Health) -> [Family; 3] {
    use Kind::Counter;
    [
        Family::of(
            "ratekeeper_store_spanning_checks",
            Counter,
            "Checks whose counters are on several servers or slots",
            health.spanning,
        ),
        Family::of(
            "ratekeeper_store_spanning_refunds",
            Counter,
            "Charges that one of several servers or slots gave back, because another denied",
            health.spanning_refunds,
        ),
        Family::of(
            "ratekeeper_store_spanning_refunds_failed",
            Counter,
            "Such charges that could not be given back, so that they stay until their windows end",
            health.spanning_refunds_failed,
        ),
    ]
}

/// Failures of the store by kind.
fn failures(health: &Health) -> Vec<Family> {
    use Kind::{Counter, Gauge};
    let mut by_kind = Family::new(
        "ratekeeper_store_failed_checks",
        Counter,
        "Checks that the store could not answer, by the kind of failure",
    );
    let mut failing = Family::new(
        "ratekeeper_store_failing",
        Gauge,
        "Whether checks have failed so within the last seconds",
    );
    for (kind, count, is_lasting) in health.by_kind.iter() {
        by_kind.add(&[("kind", kind.name())], count);
        failing.add(&[("kind", kind.name())], u64::from(is_lasting));
    }
    vec![by_kind, failing]
}
