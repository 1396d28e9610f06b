//! Decisions as JSON.

use std::fmt;

use ratekeeper::{Decision, Enforcement, Origin, Verdict, Wait};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// A decision, as callers read it. Times are whole microseconds; `null` is never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'d> {
    pub(super) decision: &'d Decision,
    /// In a batch: the status it would have had alone.
    pub(super) status: Option<u16>,
    /// With the sentence that explains it.
    pub(super) explained: bool,
}

impl<'d> Told<'d> {
    pub(super) fn new(decision: &'d Decision) -> Self {
        Self { decision, status: None, explained: false }
    }
}

impl Serialize for Told<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let decision = self.decision;
        let mut members = serializer.serialize_map(None)?;
        if let Some(status) = self.status {
            members.serialize_entry("status", &status)?;
        }
        members.serialize_entry("allowed", &decision.is_allowed())?;
        members.serialize_entry("origin", origin(decision.origin()))?;
        members.serialize_entry("at_us", &decision.at().as_micros())?;
        members.serialize_entry("retry_after_us", &micros(decision.retry_after()))?;
        members.serialize_entry("proceed_after_us", &(decision.proceed_after().as_micros() as u64))?;
        if self.explained {
            members.serialize_entry("explanation", &Shown(decision))?;
        }
        members.serialize_entry("limits", &Limits(decision.verdicts()))?;
        members.end()
    }
}

fn micros(wait: Wait) -> Option<u64> {
    wait.as_micros()
}

/// The word for where a decision came from.
pub(super) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Store => "store",
        Origin::Repeat => "repeat",
        Origin::Outage => "outage",
        Origin::Unlimited => "unlimited",
    }
}

struct Limits<'d>(&'d [Verdict]);

impl Serialize for Limits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut limits = serializer.serialize_seq(None)?;
        for verdict in self.0 {
            limits.serialize_element(&Limit(verdict))?;
        }
        limits.end()
    }
}

struct Limit<'d>(&'d Verdict);

impl Serialize for Limit<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let verdict = self.0;
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("name", verdict.name().label())?;
        members.serialize_entry("quota", &Shown(verdict.quota()))?;
        members.serialize_entry("level", verdict.level().as_str())?;
        members.serialize_entry("enforced", &(verdict.enforcement() == Enforcement::Enforce))?;
        members.serialize_entry("cost", &verdict.cost())?;
        members.serialize_entry("remaining", &verdict.remaining())?;
        members.serialize_entry("reset_after_us", &(verdict.reset_after().as_micros() as u64))?;
        members.serialize_entry("retry_after_us", &micros(verdict.retry_after()))?;
        if let Some(receipt) = verdict.receipt() {
            members.serialize_entry("receipt", &Shown(format_args!("{}.{}", receipt.at, receipt.detail)))?;
        }
        members.end()
    }
}

/// Something as it prints.
struct Shown<T>(T);

impl<T: fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
