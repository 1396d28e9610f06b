//! What happens to those who are denied again and again.

use ratekeeper_core::LIMIT_MAX;

use super::PenaltySpec;
use super::reader::{Cursor, Reader};
use super::rule::RULE;
use super::shape::Shape;

/// How steeply penalties may grow.
const ESCALATE_MAX: u32 = 100;

pub(super) static PENALTY: Shape = Shape {
    what: "a penalty",
    fields: &["denials", "within", "duration", "escalate", "max"],
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
                self.report(at, "`max` without `escalate`", "`escalate`: how many times as long, such as 2");
            }
            (Some(_), Some((at, Some(max)))) if duration.is_some_and(|duration| *max < duration) => {
                self.wrong(at, "at least `duration`");
            }
            _ => {}
        }
        let max = max.and_then(|(_, max)| max).or(duration)?;
        let escalate = escalate.flatten().unwrap_or(1);
        Some(PenaltySpec { denials: denials?, within: within?, duration: duration?, escalate, max })
    }
}
