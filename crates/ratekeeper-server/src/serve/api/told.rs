//! Decisions as JSON.

use std::io::Write as _;
use std::ops::Range;

use ratekeeper::{CounterName, Decision, Demand, Enforcement, Labels, Origin, Verdict, Wait};
use smallvec::SmallVec;

use super::receipt::{About, Override, Pen, Receipts, Signed};

/// A decision, and the counter of each verdict.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    counters: SmallVec<[Counter; 2]>,
}

/// The counter of a verdict that was charged.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter {
    /// A number that means the same in every process.
    number: u64,
    /// What it is called; empty if there is none.
    named: CounterName,
}

impl Decided {
    pub(super) fn new(decision: Decision, demand: &Demand<'_>) -> Self {
        let mut decided = Self { decision, ..Self::default() };
        decided.number(demand);
        decided
    }

    /// Finds the counters of a decision on this demand.
    pub(super) fn number(&mut self, demand: &Demand<'_>) {
        let counter = |verdict: &Verdict| {
            if verdict.receipt().is_none() {
                return Counter::default();
            }
            let number = demand.number_of(verdict);
            // Keys that were made up to look like one another have no receipts.
            let mut named = demand.counters_of(number);
            let named = if named.len() == 1 { named.remove(0) } else { CounterName::default() };
            Counter { number, named }
        };
        self.counters.extend(self.decision.verdicts().iter().map(counter));
    }

    /// Leaves receipts out: what a reservation charged is given back by cancelling it.
    pub(super) fn without_receipts(mut self) -> Self {
        self.counters.clear();
        self
    }
}

/// A decision, as callers read it. Times are whole microseconds; `null` is never.
#[derive(Clone, Debug)]
pub(super) struct Told<'d> {
    pub(super) decision: &'d Decision,
    /// In a batch: the status it would have had alone.
    pub(super) status: Option<u16>,
    /// With the sentence that explains it.
    pub(super) explained: bool,
    /// The names that the caller gave to its charges.
    pub(super) labels: Labels<'d>,
    /// The counters, for receipts.
    pub(super) counters: &'d [Counter],
    /// Signs the receipts; without one, there are none.
    pub(super) pen: Option<Pen>,
}

impl<'d> Told<'d> {
    pub(super) fn new(decided: &'d Decided, labels: Labels<'d>, receipts: &Receipts) -> Self {
        let Decided { decision, counters } = decided;
        let is_charged = counters.iter().any(|counter| !counter.named.name.is_empty());
        let nonce = decision.verdicts().first().map_or(0, Verdict::nonce);
        let pen = if is_charged { receipts.pen(nonce) } else { None };
        Self { decision, status: None, explained: false, labels, counters, pen }
    }
}

impl Told<'_> {
    /// Appends it as JSON. By hand, because every answer has it: most of it are names of
    /// members, and to look for what must be escaped in them took a sixth of a call.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        let decision = self.decision;
        into.push(b'{');
        if let Some(status) = self.status {
            number(into, b"\"status\":", status.into());
            into.push(b',');
        }
        into.extend_from_slice(if decision.is_allowed() {
            br#""allowed":true,"origin":""#
        } else {
            br#""allowed":false,"origin":""#
        });
        into.extend_from_slice(origin(decision.origin()).as_bytes());
        if let Some(reason) = decision.reason() {
            into.extend_from_slice(br#"","reason":""#);
            into.extend_from_slice(reason.as_bytes());
        }
        number(into, br#"","at_us":"#, decision.at().as_micros());
        wait(into, br#","retry_after_us":"#, decision.retry_after());
        number(into, br#","proceed_after_us":"#, decision.proceed_after().as_micros() as u64);
        if self.explained {
            into.extend_from_slice(br#","explanation":"#);
            text(into, &decision.labelled(self.labels).to_string());
        }
        into.extend_from_slice(br#","limits":["#);
        for (index, verdict) in decision.verdicts().iter().enumerate() {
            if index > 0 {
                into.push(b',');
            }
            let quota = limit(into, verdict, self.labels.of(verdict));
            let counter = self.counters.get(index).filter(|counter| !counter.named.name.is_empty());
            if let (Some(pen), Some(receipt), Some(counter)) = (&self.pen, verdict.receipt(), counter) {
                let signed = Signed { receipt, counter: counter.number, at: decision.at(), nonce: pen.nonce };
                let quota: SmallVec<[u8; 32]> = into[quota].into();
                let about = About {
                    origin: decision.origin(),
                    quota: &quota,
                    cost: verdict.cost(),
                    counter: &counter.named.name,
                    is_own: counter.named.is_own,
                    under: Override::of(verdict.level(), &counter.named),
                };
                into.extend_from_slice(br#","receipt":""#);
                pen.write(into, &signed, about);
                into.push(b'"');
            }
            into.push(b'}');
        }
        into.extend_from_slice(b"]}");
    }
}

/// Appends what one quota said, all but the end; returns where the quota stands.
fn limit(into: &mut Vec<u8>, verdict: &Verdict, name: &str) -> Range<usize> {
    into.extend_from_slice(br#"{"name":"#);
    text(into, name);
    into.extend_from_slice(br#","quota":""#);
    // A quota prints as letters, digits and signs that are none of JSON's.
    let start = into.len();
    let _ = write!(into, "{}", verdict.quota());
    let quota = start..into.len();
    into.extend_from_slice(br#"","level":""#);
    into.extend_from_slice(verdict.level().as_str().as_bytes());
    into.extend_from_slice(if verdict.enforcement() == Enforcement::Enforce {
        br#"","enforced":true"#
    } else {
        br#"","enforced":false"#
    });
    number(into, br#","cost":"#, verdict.cost().into());
    number(into, br#","remaining":"#, verdict.remaining().into());
    number(into, br#","reset_after_us":"#, verdict.reset_after().as_micros() as u64);
    wait(into, br#","retry_after_us":"#, verdict.retry_after());
    quota
}

/// A member's name, as it is written, and a number. Writing to a vector cannot fail.
fn number(into: &mut Vec<u8>, name: &[u8], number: u64) {
    into.extend_from_slice(name);
    let _ = serde_json::to_writer(into, &number);
}

fn wait(into: &mut Vec<u8>, name: &[u8], wait: Wait) {
    into.extend_from_slice(name);
    let _ = serde_json::to_writer(into, &wait.as_micros());
}

fn text(into: &mut Vec<u8>, text: &str) {
    let _ = serde_json::to_writer(into, text);
}

/// The word for where a decision came from.
fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Store => "store",
        Origin::Repeat => "repeat",
        Origin::Outage => "outage",
        Origin::Unlimited => "unlimited",
        Origin::Budget => "budget",
    }
}
