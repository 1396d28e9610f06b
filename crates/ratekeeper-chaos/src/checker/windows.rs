//! Windows that begin with a call: each admits at most the limit, and they do not overlap.

use super::{Decided, Findings, GRAIN_MICROS, History};

/// A window, as those that were decided in it named its end.
struct Window<'h> {
    end: u64,
    admitted: Vec<&'h Decided>,
    denied: usize,
}

pub(super) fn check(history: &History<'_>, findings: &mut Findings) {
    let (limit, length) = (history.limit.limit, history.limit.window_micros);
    let windows = windows(history);
    for window in &windows {
        let (from, to) = (window.end.saturating_sub(length), window.end);
        let admitted = window.admitted.len() as u64;
        findings.excess.extend(history.excess(admitted, limit, from, to));
        let is_torn = history.losses(from, to).0 > 0;
        if window.denied > 0 && !is_torn && admitted + history.unknown(from, to) < limit {
            let text = format!("{}: denied at {admitted} of {limit} in the window to {to}", history.name);
            findings.false_denials.push(text);
        }
    }
    // Where ends are not known to the microsecond, windows that seem to overlap need not.
    let exact = if history.is_parted { &[][..] } else { &windows[..] };
    for pair in exact.windows(2) {
        let [before, after] = pair else { continue };
        if after.end - before.end + GRAIN_MICROS < length {
            // The second began before the first was over: what it admitted until then adds up with that.
            let early = after.admitted.iter().filter(|decided| decided.at < before.end).count();
            let together = (before.admitted.len() + early) as u64;
            let from = before.end.saturating_sub(length);
            findings.excess.extend(history.excess(together, limit, from, before.end));
        }
    }
}

/// All windows by their end. Each counter of a check in several places is charged at its node's own instant, and a decision
/// has the latest, so ends in one window differ by what lies between these. True ends are a window apart, so half of one
/// is enough to tell them from each other.
fn windows<'h>(history: &'h History<'_>) -> Vec<Window<'h>> {
    let grain = if history.is_parted { history.limit.window_micros / 2 } else { GRAIN_MICROS };
    let admitted = history.admitted.iter().map(|decided| (decided, true));
    let mut all: Vec<_> = admitted.chain(history.denied.iter().map(|decided| (decided, false))).collect();
    all.sort_by_key(|(decided, _)| (decided.window_end, decided.at));
    let mut windows: Vec<Window<'h>> = Vec::new();
    for (decided, is_admitted) in all {
        if windows.last().is_none_or(|last| decided.window_end > last.end + grain) {
            windows.push(Window { end: decided.window_end, admitted: Vec::new(), denied: 0 });
        }
        let Some(window) = windows.last_mut() else { continue };
        if is_admitted {
            window.admitted.push(decided);
        } else {
            window.denied += 1;
        }
    }
    windows
}
