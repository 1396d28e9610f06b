//! What happens to those who are denied again and again.

use std::time::Duration;

use ratekeeper_core::{LIMIT_MAX, Quota};

use super::PenaltySpec;
use super::check::{A_LENGTH_OF_TIME, within};
use super::reader::{Cursor, Reader};
use super::rule::RULE;
use super::shape::Shape;
use crate::policy::problem::Problem;

/// How steeply penalties may grow.
const ESCALATE_MAX: u32 = 100;

const ESCALATE_MISSING: (&str, &str) =
    ("`max` without `escalate`", "`escalate`: how many times as long, such as 2");
const AT_LEAST_DURATION: &str = "at least `duration`";

pub(super) static PENALTY: Shape = Shape {
    what: "a penalty",
    fields: "denials within duration escalate max",
    neighbours: &[(&RULE, "it in the rule itself; in TOML, above [rules.penalty]")],
};

impl Reader {
    pub(super) fn penalty(&mut self, at: &Cursor<'_>) -> Option<PenaltySpec> {
        let fields = self.fields(at, &PENALTY)?;
        let denials = self.required(at, &fields, "denials", "after how many denials");
        let denials = denials.and_then(|at| self.whole(&at, 1, LIMIT_MAX));
        let within = self.required(at, &fields, "within", "in how long, such as \"1min\"");
        let within = within.and_then(|at| self.duration(&at));
        let duration = self.required(at, &fields, "duration", "for how long, such as \"10min\"");
        let duration = duration.and_then(|at| self.duration(&at));
        let escalate = fields.get("escalate").map(|at| self.whole(&at, 2, ESCALATE_MAX));
        let max = fields.get("max").map(|at| (at, self.duration(&at)));
        match (&escalate, &max) {
            (Some(_), None) => {
                self.report(at, "`escalate` without `max`", "`max`: the longest penalty, such as \"1d\"");
            }
            (None, Some((at, _))) => {
                self.report(at, ESCALATE_MISSING.0, ESCALATE_MISSING.1);
                return None;
            }
            (Some(_), Some((at, Some(max)))) if duration.is_some_and(|duration| *max < duration) => {
                return self.unfit(at, AT_LEAST_DURATION);
            }
            _ => {}
        }
        let max = max.and_then(|(_, max)| max).or(duration)?;
        let escalate = escalate.unwrap_or(Some(1))?;
        Some(PenaltySpec { denials: denials?, within: within?, duration: duration?, escalate, max })
    }
}

impl PenaltySpec {
    /// What is right and wrong with its fields.
    pub(super) fn check(&self) -> [(&'static str, Result<(), Problem>); 5] {
        let max = match self.max {
            max if self.escalate == 1 && max != self.duration => {
                Err(Problem::of(ESCALATE_MISSING.0, ESCALATE_MISSING.1))
            }
            max if max < self.duration => Err(Problem::of(format!("{max:?}"), AT_LEAST_DURATION)),
            max => length(max),
        };
        let escalate = if self.escalate == 1 { Ok(()) } else { within(self.escalate, 2, ESCALATE_MAX) };
        [
            ("penalty.denials", within(self.denials, 1, LIMIT_MAX)),
            ("penalty.within", length(self.within)),
            ("penalty.duration", length(self.duration)),
            ("penalty.escalate", escalate),
            ("penalty.max", max),
        ]
    }
}

/// The quota knows the bounds.
fn length(of_time: Duration) -> Result<(), Problem> {
    let quota = Quota::token_bucket(1, of_time);
    quota.map(drop).map_err(|_| Problem::of(format!("{of_time:?}"), A_LENGTH_OF_TIME))
}
