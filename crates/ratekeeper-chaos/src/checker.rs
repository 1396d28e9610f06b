//! Whether what was admitted kept the quotas. It knows nothing of the engine: only what callers logged, what happened to
//! the servers, and arithmetic of its own.

mod bucket;
mod trailing;
mod windows;

use std::collections::BTreeMap;

use crate::call::{Call, Origin};
use crate::fault::Event;
use crate::limits::{Kind, Limit, SERVICES, Subject};
use crate::topology::STEP;

/// Clocks of processes on one machine agree; instants of a float are good to a microsecond.
const GRAIN_MICROS: u64 = 10;
/// Around a fault: what was sent before it and decided in it.
const MARGIN_MICROS: u64 = 200_000;
/// A call without an answer may be charged as long afterwards as a fault lasts.
const UNKNOWN_MICROS: u64 = 6_000_000;

/// What one counter admitted beyond its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) counter: String,
    pub(crate) units: u64,
    /// When, in microseconds since 1970.
    pub(crate) at: u64,
    /// The index of the fault that explains it.
    pub(crate) event: Option<usize>,
    /// Whether it is no more than the documented bound.
    pub(crate) is_covered: bool,
}

/// What the checker found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) excess: Vec<Excess>,
    /// Denials although there was room.
    pub(crate) false_denials: Vec<String>,
    /// How many admissions were held against a quota.
    pub(crate) admissions: u64,
    /// How many denials were held against one.
    pub(crate) denials: u64,
}

/// What a store decided on one counter, in real time: the machine's, whatever the store's clock was set to.
#[derive(Clone, Copy, Debug)]
struct Decided {
    at: u64,
    /// 0 if the counter has no windows.
    window_end: u64,
    /// By the caller's clock.
    sent: u64,
    answered: u64,
}

/// All that is known of one counter.
struct History<'h> {
    limit: &'h Limit,
    name: String,
    /// Whether its instants are only known to lie between those at which calls were sent and answered: a check of counters
    /// in several places has one instant, and that is the latest of theirs.
    is_parted: bool,
    /// Sorted by instant.
    admitted: Vec<Decided>,
    /// Sorted by instant; empty if another quota of the same check may have denied.
    denied: Vec<Decided>,
    /// When calls were sent that the store may or may not have charged; sorted.
    unknown: Vec<u64>,
    events: &'h [Event],
}

impl History<'_> {
    /// How often the limit may be admitted again between two instants, and the first fault that is why.
    fn losses(&self, from: u64, to: u64) -> (u64, Option<usize>) {
        let touching = self.events.iter().enumerate();
        let touching =
            touching.filter(|(_, event)| event.losses() > 0 && event.touches(from, to, MARGIN_MICROS));
        touching.fold((0, None), |(all, first), (index, event)| (all + event.losses(), first.or(Some(index))))
    }

    /// How many calls may have been charged without an answer that counts at an instant.
    fn unknown(&self, from: u64, to: u64) -> u64 {
        let before = |instant: u64| self.unknown.partition_point(|sent| *sent < instant);
        let earliest = from.saturating_sub(UNKNOWN_MICROS);
        u64::try_from(before(to + MARGIN_MICROS) - before(earliest)).unwrap_or(u64::MAX)
    }

    /// What was admitted beyond `limit` between two instants, if anything was.
    fn excess(&self, admitted: u64, limit: u64, from: u64, to: u64) -> Option<Excess> {
        let units = admitted.checked_sub(limit).filter(|units| *units > 0)?;
        let (losses, event) = self.losses(from, to);
        let is_covered = units <= limit * losses;
        Some(Excess { counter: self.name.clone(), units, at: to, event, is_covered })
    }
}

/// Holds calls against all quotas. Where charges of one check lie on several nodes, a denial that is wrong for
/// a moment is documented; so denials of services with several quotas are not looked at anywhere.
pub(crate) fn check(calls: &[Call], events: &[Event], is_parted: bool) -> Findings {
    let mut findings = Findings::default();
    for (service, rules) in SERVICES.iter().enumerate() {
        for limit in rules.limits {
            let of_service = calls.iter().filter(|call| call.service == service);
            let is_alone = rules.limits.len() == 1;
            for mut history in histories(of_service, limit, is_alone, rules.name, events) {
                history.is_parted = is_parted && !is_alone;
                findings.admissions += history.admitted.len() as u64;
                findings.denials += history.denied.len() as u64;
                match limit.kind {
                    Kind::Windows => windows::check(&history, &mut findings),
                    Kind::Trailing => trailing::check(&history, &mut findings),
                    Kind::Bucket { burst } => bucket::check(&history, burst, &mut findings),
                }
            }
        }
    }
    findings
}

/// The histories of all counters of a quota.
fn histories<'h>(
    calls: impl Iterator<Item = &'h Call>,
    limit: &'h Limit,
    is_alone: bool,
    service: &str,
    events: &'h [Event],
) -> Vec<History<'h>> {
    let mut all: BTreeMap<usize, History<'h>> = BTreeMap::new();
    for call in calls {
        let subject = match limit.subject {
            Subject::Tenant => call.tenant,
            Subject::Address => call.address,
        };
        let history = all.entry(subject).or_insert_with(|| History {
            limit,
            name: format!("{service}/{} of {subject}", limit.rule),
            is_parted: false,
            admitted: Vec::new(),
            denied: Vec::new(),
            unknown: Vec::new(),
            events,
        });
        match (call.origin, call.allowed) {
            (Origin::Store, true) => history.admitted.push(in_real_time(call)),
            (Origin::Store, false) if is_alone => history.denied.push(in_real_time(call)),
            (Origin::Store, false) => {}
            (Origin::Outage | Origin::None, _) => history.unknown.push(call.sent),
        }
    }
    for history in all.values_mut() {
        history.admitted.sort_unstable_by_key(|decided| decided.at);
        history.denied.sort_unstable_by_key(|decided| decided.at);
        history.unknown.sort_unstable();
    }
    all.into_values().collect()
}

/// Takes whole steps of the server's clock off the instants of a decision. No call takes as long as half a step.
fn in_real_time(call: &Call) -> Decided {
    let step = i128::try_from(STEP.as_micros()).unwrap_or(i128::MAX);
    let ahead = i128::from(call.at) - i128::from(call.sent);
    let steps = (ahead + step / 2).div_euclid(step);
    let real = |instant: u64| u64::try_from(i128::from(instant) - steps * step).unwrap_or_default();
    let window_end = if call.window_end == 0 { 0 } else { real(call.window_end) };
    Decided { at: real(call.at), window_end, sent: call.sent, answered: call.answered }
}

#[cfg(test)]
mod tests;
