//! What a run has shown: a table of faults, and whether it is well.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::RunOptions;
use crate::call::{Call, Origin};
use crate::checker::Findings;
use crate::fault::{Event, Fault};

/// A call is late if it outlives its total bound by more than this beyond a control timer, ...
const LATE_MICROS: u64 = 5_000;
/// ... which one in so many calls may be, ...
const LATE_ONE_IN: u64 = 10_000;
/// ... and none may be as late as this.
const LATE_MAX_MICROS: u64 = 100_000;
/// What callers see of a fault after its end: breakers that are still open.
const AFTER_MICROS: u64 = 2_000_000;
/// So many findings are shown.
const SHOWN_MAX: usize = 20;

/// What was seen on one topology.
pub(crate) struct Outcome {
    pub(crate) calls: Vec<Call>,
    pub(crate) events: Vec<Event>,
    pub(crate) findings: Findings,
}

/// The outcomes of all topologies.
pub(crate) struct Report {
    seed: u64,
    outcomes: Vec<(&'static str, Outcome)>,
}

/// A row of the table.
#[derive(Default)]
struct Row {
    times: u64,
    calls: u64,
    over: u64,
    worst: u64,
    fail_open: u64,
    fail_closed: u64,
    late: u64,
}

impl Row {
    fn count(&mut self, call: &Call) {
        self.calls += 1;
        match (call.origin, call.allowed) {
            (Origin::Store, _) => {}
            (_, true) => self.fail_open += 1,
            (_, false) => self.fail_closed += 1,
        }
        self.late += u64::from(call.late > LATE_MICROS);
    }
}

impl Report {
    pub(crate) const fn new(options: &RunOptions) -> Self {
        Self { seed: options.seed, outcomes: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &'static str, outcome: Outcome) {
        self.outcomes.push((name, outcome));
    }

    pub(crate) fn is_well(&self) -> bool {
        self.outcomes.iter().all(|(_, outcome)| outcome.wrongs().is_empty())
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (name, outcome) in &self.outcomes {
            outcome.write(&mut text, name, self.seed);
        }
        text
    }
}

impl Outcome {
    /// Everything that must not be.
    fn wrongs(&self) -> Vec<String> {
        let beyond = self.findings.excess.iter().filter(|excess| !excess.is_covered);
        let mut wrongs: Vec<String> = beyond
            .map(|excess| {
                format!("{}: {} more than its limit at {}", excess.counter, excess.units, excess.at)
            })
            .collect();
        wrongs.extend(self.findings.false_denials.iter().cloned());
        let calls = self.calls.len() as u64;
        let late = self.calls.iter().filter(|call| call.late > LATE_MICROS).count() as u64;
        if late * LATE_ONE_IN > calls.max(LATE_ONE_IN) {
            wrongs.push(format!("{late} of {calls} calls are more than {LATE_MICROS} us late"));
        }
        let worst = self.worst_late();
        if worst > LATE_MAX_MICROS {
            wrongs.push(format!("a call is {worst} us late"));
        }
        wrongs
    }

    fn worst_late(&self) -> u64 {
        self.calls.iter().map(|call| call.late).max().unwrap_or_default()
    }

    fn rows(&self) -> (BTreeMap<Fault, Row>, Row) {
        let (mut rows, mut quiet) = (BTreeMap::<Fault, Row>::new(), Row::default());
        for event in &self.events {
            rows.entry(event.fault).or_default().times += 1;
        }
        for call in &self.calls {
            let during =
                |event: &&Event| call.answered >= event.start && call.sent <= event.end + AFTER_MICROS;
            let row = self.events.iter().rev().find(during).and_then(|event| rows.get_mut(&event.fault));
            row.unwrap_or(&mut quiet).count(call);
        }
        for excess in &self.findings.excess {
            let fault = excess.event.and_then(|index| self.events.get(index)).map(|event| event.fault);
            let row = fault.and_then(|fault| rows.get_mut(&fault)).unwrap_or(&mut quiet);
            row.over += excess.units;
            row.worst = row.worst.max(excess.units);
        }
        (rows, quiet)
    }

    fn write(&self, text: &mut String, name: &str, seed: u64) {
        let Findings { admissions, denials, .. } = self.findings;
        let calls = self.calls.len();
        let _ = writeln!(
            text,
            "\n{name}, seed {seed}: {calls} calls, {admissions} admissions and {denials} denials of counters checked, \
             the latest call {} us late\n",
            self.worst_late()
        );
        text.push_str("| fault | what happens | times | calls | over-admitted (worst counter) | why | fail-open | fail-closed | late |\n");
        text.push_str("|---|---|---|---|---|---|---|---|---|\n");
        let (rows, quiet) = self.rows();
        for (fault, row) in &rows {
            let why = if row.over == 0 { "" } else { fault.loses().unwrap_or("not explained") };
            row.write(text, fault.name(), fault.what(), why);
        }
        quiet.write(text, "none", "load alone", "");
        let wrongs = self.wrongs();
        for wrong in wrongs.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "WRONG: {wrong}");
        }
        if wrongs.len() > SHOWN_MAX {
            let _ = writeln!(text, "WRONG: and {} more", wrongs.len() - SHOWN_MAX);
        }
    }
}

impl Row {
    fn write(&self, text: &mut String, fault: &str, what: &str, why: &str) {
        let Self { times, calls, over, worst, fail_open, fail_closed, late } = self;
        let _ = writeln!(
            text,
            "| {fault} | {what} | {times} | {calls} | {over} ({worst}) | {why} | {fail_open} | {fail_closed} | {late} |"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(late: &[u64]) -> Outcome {
        let call = |late: &u64| Call {
            sent: 0,
            answered: 0,
            service: 0,
            tenant: 0,
            address: 0,
            allowed: true,
            origin: Origin::Store,
            at: 0,
            window_end: 0,
            late: *late,
        };
        Outcome { calls: late.iter().map(call).collect(), events: Vec::new(), findings: Findings::default() }
    }

    #[test]
    fn one_late_call_in_ten_thousand_is_well_and_a_very_late_one_never() {
        assert!(outcome(&[0, LATE_MICROS]).wrongs().is_empty());
        assert!(outcome(&[0, LATE_MICROS + 1]).wrongs().is_empty());
        assert_eq!(outcome(&[LATE_MICROS + 1; 2]).wrongs().len(), 1);
        assert_eq!(outcome(&[LATE_MAX_MICROS + 1]).wrongs().len(), 1);
    }
}
