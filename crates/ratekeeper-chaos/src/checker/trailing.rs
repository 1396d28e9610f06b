//! At most the limit in any stretch as long as the window.

use std::collections::BTreeMap;

use super::{Decided, Excess, Findings, GRAIN_MICROS, History};

pub(super) fn check(history: &History<'_>, findings: &mut Findings) {
    let (limit, length) = (history.limit.limit, history.limit.window_micros - GRAIN_MICROS);
    // Stretches that exceed the limit overlap: the worst for each fault says what it cost.
    let mut worst: BTreeMap<(Option<usize>, bool), Excess> = BTreeMap::new();
    for (index, decided) in history.admitted.iter().enumerate() {
        let from = decided.at.saturating_sub(length);
        let first = history.admitted.partition_point(|earlier| earlier.at <= from);
        let admitted =
            if history.is_parted { certain(history, decided, length) } else { (index + 1 - first) as u64 };
        let Some(excess) = history.excess(admitted, limit, from, decided.at) else { continue };
        let known = worst.entry((excess.event, excess.is_covered)).or_insert_with(|| excess.clone());
        if excess.units > known.units {
            *known = excess;
        }
    }
    findings.excess.extend(worst.into_values());
    let length = history.limit.window_micros + GRAIN_MICROS;
    for denied in &history.denied {
        let from = denied.at.saturating_sub(length);
        let before = |instant: u64| history.admitted.partition_point(|decided| decided.at <= instant);
        let admitted = (before(denied.at) - before(from)) as u64;
        let is_torn = history.losses(from, denied.at).0 > 0;
        if !is_torn && admitted + history.unknown(from, denied.at) < limit {
            let (name, at) = (&history.name, denied.at);
            findings
                .false_denials
                .push(format!("{name}: denied at {admitted} of {limit} in the window to {at}"));
        }
    }
}

/// How many were certainly admitted in the stretch that ends as a call was answered.
fn certain(history: &History<'_>, last: &Decided, length: u64) -> u64 {
    let from = last.answered.saturating_sub(length);
    let within = |decided: &&Decided| decided.sent > from && decided.answered <= last.answered;
    history.admitted.iter().filter(within).count() as u64
}
