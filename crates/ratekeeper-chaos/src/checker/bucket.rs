//! A bucket that is filled evenly and never holds more than its burst.

use std::collections::BTreeMap;

use super::{Excess, Findings, GRAIN_MICROS, History};

/// So long after a fault what it gave a bucket may be spent.
const SPENT_WITHIN_MICROS: u64 = 10_000_000;

/// What is in a bucket, in units times the window in microseconds.
#[derive(Clone)]
struct Bucket {
    level: u64,
    burst: u64,
    rate: u64,
    at: u64,
}

impl Bucket {
    fn fill(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.at);
        self.level = self.burst.min(self.level.saturating_add(elapsed.saturating_mul(self.rate)));
        self.at = self.at.max(now);
    }
}

pub(super) fn check(history: &History<'_>, burst: u64, findings: &mut Findings) {
    let (unit, rate) = (history.limit.window_micros, history.limit.limit);
    let start = history.admitted.first().map_or(0, |decided| decided.at);
    let mut bucket = Bucket { level: burst * unit, burst: burst * unit, rate, at: start };
    // What is in it at least: a fault may have left it empty, for example a clock that was set back.
    let mut least = bucket.clone();
    let mut losses = history.ends_of_losses().peekable();
    // A unit that was charged without an answer is missing until the bucket is full again, which may be never.
    let mut unknown = history.unknown.iter().map(|sent| sent + super::UNKNOWN_MICROS).peekable();
    let mut pass = |least: &mut Bucket, at: u64| {
        while let Some(charged) = unknown.next_if(|charged| *charged <= at) {
            least.fill(charged);
            least.level = least.level.saturating_sub(unit);
        }
        least.fill(at);
        while losses.next_if(|end| *end <= at).is_some() {
            least.level = 0;
        }
    };
    // What was spent of the bucket that each fault may have filled again.
    let mut spent: BTreeMap<Option<usize>, Excess> = BTreeMap::new();
    let mut denied = history.denied.iter().peekable();
    for decided in &history.admitted {
        while let Some(earlier) = denied.next_if(|denied| denied.at < decided.at) {
            pass(&mut least, earlier.at);
            look_at_denial(history, &least, unit, earlier.at, findings);
        }
        bucket.fill(decided.at);
        pass(&mut least, decided.at);
        least.level = least.level.saturating_sub(unit);
        if let Some(rest) = (bucket.level + GRAIN_MICROS * rate).checked_sub(unit) {
            bucket.level = rest.saturating_sub(GRAIN_MICROS * rate);
            continue;
        }
        let event =
            history.last_loss(decided.at, |index| spent.get(&Some(index)).map_or(0, |e| e.units), burst);
        let excess = spent.entry(event).or_insert_with(|| Excess {
            counter: history.name.clone(),
            units: 0,
            at: decided.at,
            event,
            is_covered: event.is_some(),
        });
        excess.units += 1;
    }
    findings.excess.extend(spent.into_values());
}

/// A denial is right if the bucket has less than a unit; what may have been charged without an answer is not in it.
fn look_at_denial(history: &History<'_>, bucket: &Bucket, unit: u64, at: u64, findings: &mut Findings) {
    let from = at.saturating_sub(bucket.burst / bucket.rate);
    let is_known = history.unknown(from, at) == 0 && history.losses(from, at).0 == 0;
    if is_known && bucket.level >= unit + GRAIN_MICROS * bucket.rate {
        let level = bucket.level / unit;
        findings.false_denials.push(format!("{}: denied at {at} with {level} in the bucket", history.name));
    }
}

impl History<'_> {
    /// When decisions are certain to follow a fault that lost something.
    fn ends_of_losses(&self) -> impl Iterator<Item = u64> {
        let lossy = self.events.iter().filter(|event| event.losses() > 0);
        lossy.map(|event| event.end + super::MARGIN_MICROS)
    }

    /// The last fault before an instant that may have filled the bucket again, and of whose fillings not all is spent.
    fn last_loss(&self, at: u64, spent: impl Fn(usize) -> u64, burst: u64) -> Option<usize> {
        let could = |(index, event): &(usize, &crate::fault::Event)| {
            event.losses() > 0
                && event.start <= at + super::MARGIN_MICROS
                && at <= event.end + SPENT_WITHIN_MICROS
                && spent(*index) < burst * event.losses()
        };
        self.events.iter().enumerate().rev().find(could).map(|(index, _)| index)
    }
}
