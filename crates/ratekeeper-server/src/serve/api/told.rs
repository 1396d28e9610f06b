//! Decisions as JSON.

use std::io::Write as _;

use ratekeeper::{Decision, Demand, Enforcement, Labels, Origin, Verdict, Wait};
use smallvec::SmallVec;

/// A decision, and a number for the counter of each verdict that means the same in every process.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    counters: SmallVec<[u64; 4]>,
}

impl Decided {
    pub(super) fn new(decision: Decision, demand: &Demand<'_>) -> Self {
        let mut decided = Self { decision, counters: SmallVec::new() };
        decided.number(demand);
        decided
    }

    /// Finds the numbers for a decision on this demand.
    pub(super) fn number(&mut self, demand: &Demand<'_>) {
        let number = |verdict: &Verdict| verdict.receipt().map_or(0, |_| demand.number_of(verdict));
        self.counters.extend(self.decision.verdicts().iter().map(number));
    }
}

/// A decision, as callers read it. Times are whole microseconds; `null` is never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'d> {
    pub(super) decision: &'d Decision,
    /// In a batch: the status it would have had alone.
    pub(super) status: Option<u16>,
    /// With the sentence that explains it.
    pub(super) explained: bool,
    /// The names that the caller gave to its charges.
    pub(super) labels: Labels<'d>,
    /// The numbers of the counters, for receipts.
    pub(super) counters: &'d [u64],
}

impl<'d> Told<'d> {
    pub(super) fn new(decided: &'d Decided, labels: Labels<'d>) -> Self {
        let Decided { decision, counters } = decided;
        Self { decision, status: None, explained: false, labels, counters }
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
            let counter = self.counters.get(index).copied().unwrap_or_default();
            limit(into, verdict, self.labels.of(verdict), counter);
        }
        into.extend_from_slice(b"]}");
    }
}

fn limit(into: &mut Vec<u8>, verdict: &Verdict, name: &str, counter: u64) {
    into.extend_from_slice(br#"{"name":"#);
    text(into, name);
    // A quota prints as letters, digits and signs that are none of JSON's.
    let _ = write!(into, r#","quota":"{}","level":""#, verdict.quota());
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
    if let Some(receipt) = verdict.receipt() {
        number(into, br#","receipt":""#, receipt.at);
        number(into, b".", receipt.detail.into());
        // Which counter it is of, so that a refund finds it whatever the order.
        into.push(b'.');
        hexadecimal(into, counter);
        into.push(b'"');
    }
    into.push(b'}');
}

/// Sixteen digits. The formatter of the standard library takes four times as long for them.
fn hexadecimal(into: &mut Vec<u8>, number: u64) {
    let digit = |shift: u32| b"0123456789abcdef"[(number >> (60 - 4 * shift) & 15) as usize];
    let digits: [u8; 16] = std::array::from_fn(|place| digit(place as u32));
    into.extend_from_slice(&digits);
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
    }
}
