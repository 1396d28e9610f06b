//! A decision, for people and for programs.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ratekeeper::{Decision, Enforcement, Labels, Origin, Verdict, printable};
use serde::Serialize;

use super::Seen;

/// How much of a key is shown.
const KEY_CHARS_MAX: usize = 256;

/// A sentence, and where there are several a line for each quota.
pub(super) fn text(decision: &Decision, seen: &Seen) -> io::Result<()> {
    let names = seen.names();
    let labels = Labels(&names);
    let mut out = anstream::stdout();
    let style = if decision.is_allowed() { AnsiColor::Green } else { AnsiColor::Red }.on_default();
    let sentence = decision.labelled(labels).to_string();
    let (word, rest) = sentence.split_at(sentence.find([' ', ':']).unwrap_or(sentence.len()));
    writeln!(out, "{style}{word}{style:#}{rest}")?;
    if decision.verdicts().len() > 1 {
        let dim = Style::new().dimmed();
        for verdict in decision.verdicts() {
            let capacity = verdict.quota().capacity();
            let (name, left) = (labels.of(verdict), verdict.remaining());
            write!(out, "  {name}: {left} of {capacity} left {dim}({}){dim:#}", verdict.quota())?;
            match (verdict.is_admitted(), verdict.enforcement()) {
                (true, _) => writeln!(out)?,
                (false, _) if verdict.retry_after().is_never() => writeln!(out, ", which never suffices")?,
                (false, Enforcement::Enforce) => writeln!(out, ", enough in {}", verdict.retry_after())?,
                (false, Enforcement::Shadow) => writeln!(out, ", would deny, but only watches")?,
            }
        }
    }
    for (rule, key) in &seen.keys {
        writeln!(out, "  {rule} counts {}", printable(key, KEY_CHARS_MAX))?;
    }
    for (rule, why) in &seen.not_applied {
        writeln!(out, "  {rule} does not apply: {why}")?;
    }
    out.flush()
}

/// As the HTTP API tells it: times in whole microseconds, `null` is never.
#[derive(Serialize)]
struct JsonDecision<'a> {
    allowed: bool,
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    at_us: u64,
    retry_after_us: Option<u64>,
    proceed_after_us: u64,
    explanation: String,
    limits: Vec<JsonLimit<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<JsonKey>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_applied: Vec<JsonNotApplied>,
}

/// What a rule counts the request under.
#[derive(Serialize)]
struct JsonKey {
    rule: &'static str,
    key: String,
}

#[derive(Serialize)]
struct JsonNotApplied {
    rule: &'static str,
    why: &'static str,
}

#[derive(Serialize)]
struct JsonLimit<'a> {
    name: &'a str,
    quota: String,
    level: &'static str,
    enforced: bool,
    cost: u32,
    remaining: u32,
    reset_after_us: u64,
    retry_after_us: Option<u64>,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl<'a> JsonLimit<'a> {
    fn new(verdict: &Verdict, labels: Labels<'a>) -> Self {
        Self {
            name: labels.of(verdict),
            quota: verdict.quota().to_string(),
            level: verdict.level().as_str(),
            enforced: verdict.enforcement() == Enforcement::Enforce,
            cost: verdict.cost(),
            remaining: verdict.remaining(),
            reset_after_us: micros(verdict.reset_after()),
            retry_after_us: verdict.retry_after().as_micros(),
        }
    }
}

pub(super) fn json(decision: &Decision, seen: &Seen) -> io::Result<()> {
    let keys = seen.keys.iter().map(|(rule, key)| JsonKey { rule, key: key.clone() });
    let others = seen.not_applied.iter().map(|(rule, why)| JsonNotApplied { rule, why });
    let names = seen.names();
    let labels = Labels(&names);
    let told = JsonDecision {
        allowed: decision.is_allowed(),
        origin: match decision.origin() {
            Origin::Store => "store",
            Origin::Repeat => "repeat",
            Origin::Outage => "outage",
            Origin::Unlimited => "unlimited",
            Origin::Budget => "budget",
        },
        reason: decision.reason(),
        at_us: decision.at().as_micros(),
        retry_after_us: decision.retry_after().as_micros(),
        proceed_after_us: micros(decision.proceed_after()),
        explanation: decision.labelled(labels).to_string(),
        limits: decision.verdicts().iter().map(|verdict| JsonLimit::new(verdict, labels)).collect(),
        keys: keys.collect(),
        not_applied: others.collect(),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &told)?;
    writeln!(out)
}
