//! A decision, for people and for programs.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use ratekeeper::{Decision, Enforcement, Verdict, Wait};
use serde::Serialize;

/// A sentence, and where there are several a line for each quota.
pub(super) fn text(decision: &Decision) -> io::Result<()> {
    let mut out = anstream::stdout();
    let style = if decision.is_allowed() { AnsiColor::Green } else { AnsiColor::Red }.on_default();
    let sentence = decision.explain();
    let (word, rest) = sentence.split_at(sentence.find([' ', ':']).unwrap_or(sentence.len()));
    writeln!(out, "{style}{word}{style:#}{rest}")?;
    if decision.verdicts().len() > 1 {
        let dim = Style::new().dimmed();
        for verdict in decision.verdicts() {
            let capacity = verdict.quota().capacity();
            let (name, left) = (verdict.name(), verdict.remaining());
            write!(out, "  {name}: {left} of {capacity} left {dim}({}){dim:#}", verdict.quota())?;
            match (verdict.is_admitted(), verdict.enforcement()) {
                (true, _) => writeln!(out)?,
                (false, Enforcement::Enforce) => {
                    writeln!(out, ", denies: passes in {}", verdict.retry_after())?
                }
                (false, Enforcement::Shadow) => writeln!(out, ", would deny, but only watches")?,
            }
        }
    }
    out.flush()
}

#[derive(Serialize)]
struct JsonDecision<'d> {
    allowed: bool,
    explanation: String,
    /// Seconds until the same check passes; `null` if never, 0 if it did.
    retry_after: Option<f64>,
    proceed_after: f64,
    quotas: Vec<JsonVerdict<'d>>,
}

#[derive(Serialize)]
struct JsonVerdict<'d> {
    name: &'d str,
    quota: String,
    level: &'static str,
    enforced: bool,
    admitted: bool,
    cost: u32,
    limit: u32,
    remaining: u32,
    reset_after: f64,
    retry_after: Option<f64>,
}

fn seconds(wait: Wait) -> Option<f64> {
    wait.duration().map(|duration| duration.as_secs_f64())
}

impl From<&Verdict> for JsonVerdict<'static> {
    fn from(verdict: &Verdict) -> Self {
        Self {
            name: verdict.name().label(),
            quota: verdict.quota().to_string(),
            level: verdict.level().as_str(),
            enforced: verdict.enforcement() == Enforcement::Enforce,
            admitted: verdict.is_admitted(),
            cost: verdict.cost(),
            limit: verdict.quota().limit(),
            remaining: verdict.remaining(),
            reset_after: verdict.reset_after().as_secs_f64(),
            retry_after: seconds(verdict.retry_after()),
        }
    }
}

pub(super) fn json(decision: &Decision) -> io::Result<()> {
    let told = JsonDecision {
        allowed: decision.is_allowed(),
        explanation: decision.explain(),
        retry_after: seconds(decision.retry_after()),
        proceed_after: decision.proceed_after().as_secs_f64(),
        quotas: decision.verdicts().iter().map(Into::into).collect(),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &told)?;
    writeln!(out)
}
