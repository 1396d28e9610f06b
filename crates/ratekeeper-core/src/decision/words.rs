//! Decisions in words.

use std::fmt;

use super::{Decision, Origin, Outcome, Verdict};
use crate::check::Level;
use crate::time::write_micros;

/// The names that a caller gave to its raw charges, by [`Verdict::index`]. None for decisions of rules,
/// which have names of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels<'a>(pub &'a [&'a str]);

impl<'a> Labels<'a> {
    /// What people call the quota of a verdict.
    #[must_use]
    pub fn of(&self, verdict: &Verdict) -> &'a str {
        self.0.get(verdict.index()).copied().unwrap_or_else(|| verdict.name.label())
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.labelled(Labels::default()).fmt(f)
    }
}

pub(super) struct Sentence<'d> {
    pub(super) decision: &'d Decision,
    pub(super) labels: Labels<'d>,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { origin, outcome, verdicts, .. } = self.decision;
        match (origin, outcome) {
            (Origin::Outage, Outcome::Allow) => {
                return f.write_str("allowed without counting: the store did not answer");
            }
            (Origin::Outage, Outcome::Deny) => {
                return f.write_str("denied: the store did not answer, and the rule denies then");
            }
            (Origin::Budget, Outcome::Deny) => {
                return f
                    .write_str("denied: the conditions of the policy are more work than one request may be");
            }
            (Origin::Repeat, _) => f.write_str("repeated, charged once: ")?,
            (Origin::Store | Origin::Unlimited | Origin::Budget, _) => {}
        }
        match (outcome, self.decision.strictest()) {
            (Outcome::Allow, None) if verdicts.is_empty() => f.write_str("allowed: no limit applies"),
            (Outcome::Allow, None) => f.write_str("allowed: every limit that applies only watches"),
            (Outcome::Allow, Some(verdict)) => allowed(f, self, verdict),
            (Outcome::Deny, Some(verdict)) => denied(f, self, verdict),
            (Outcome::Deny, None) => f.write_str("denied"),
        }
    }
}

fn allowed(f: &mut fmt::Formatter<'_>, sentence: &Sentence<'_>, verdict: &Verdict) -> fmt::Result {
    let (decision, name) = (sentence.decision, sentence.labels.of(verdict));
    if verdict.level == Level::Emergency {
        let by = if verdict.is_admitted() { "lifted" } else { "blocked" };
        return write!(f, "allowed: {name} is {by} by an operator");
    }
    write!(
        f,
        "allowed: {name} has {} of {} left ({}{})",
        verdict.remaining,
        verdict.quota.capacity(),
        verdict.quota,
        By(verdict.level),
    )?;
    if verdict.reset_after > 0 {
        f.write_str(", full again in ")?;
        write_micros(f, verdict.reset_after)?;
    }
    if decision.proceed_after > 0 {
        f.write_str("; proceed in ")?;
        write_micros(f, decision.proceed_after)?;
    }
    Ok(())
}

fn denied(f: &mut fmt::Formatter<'_>, sentence: &Sentence<'_>, verdict: &Verdict) -> fmt::Result {
    let (decision, name) = (sentence.decision, sentence.labels.of(verdict));
    if !verdict.is_denied() {
        return write!(f, "given up: {name} would let it proceed in {}", decision.retry_after);
    }
    let Verdict { quota, cost, remaining, level, .. } = verdict;
    if *level == Level::Emergency {
        return write!(f, "denied: {name} is blocked by an operator");
    }
    if verdict.retry_after.is_never() {
        return write!(f, "denied by {name}: a cost of {cost} can never pass {quota}{}", By(*level));
    }
    write!(
        f,
        "denied by {name}: {} of {} left ({quota}{}), {cost} asked for",
        remaining,
        quota.capacity(),
        By(*level),
    )?;
    let others = decision.verdicts.iter().filter(|other| other.is_denied()).count().saturating_sub(1);
    match others {
        0 => {}
        1 => f.write_str(", and 1 other limit denies too")?,
        _ => write!(f, ", and {others} other limits deny too")?,
    }
    let (at_latest, wait) = (verdict.is_at_latest(), decision.retry_after);
    if wait.is_never() {
        return f.write_str("; it can never pass");
    }
    write!(f, "; the same request passes in {}{wait}", if at_latest { "at most " } else { "" })
}

/// Says who set a quota, where it was not the rule itself.
struct By(Level);

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Level::Default | Level::Emergency => Ok(()),
            Level::Plan => f.write_str(", set by the plan"),
            Level::Custom => f.write_str(", set for this key"),
            Level::Organisation => f.write_str(", overridden for the organisation"),
            Level::Project => f.write_str(", overridden for the project"),
        }
    }
}
