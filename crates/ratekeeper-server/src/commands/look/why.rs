//! Why something is limited, for people.

use serde_json::{Value as Json, json};

use super::report::{LIMITS, instant, limits, list};
use crate::commands::operate::report::{shown, table};

pub(super) fn explained(answer: &Json) -> String {
    let mut lines = vec![shown(&answer["explanation"])];
    if answer["allowed"] != json!(true) {
        lines.push(format!("decided by {}", shown(&answer["decided_by"])));
        lines.push(match &answer["passes_at_us"] {
            Json::Null => "it never passes".to_owned(),
            at => format!("passes again at {}", instant(at)),
        });
    }
    let rows = limits(list(answer, "rules"));
    if !rows.is_empty() {
        lines.push(String::new());
        lines.push(table(LIMITS, rows.into_iter()));
    }
    lines.extend(overridden(answer));
    lines.extend(switched(answer));
    let others: Vec<[String; 2]> =
        list(answer, "not_applied").map(|rule| [shown(&rule["rule"]), shown(&rule["why"])]).collect();
    if !others.is_empty() {
        lines.push(String::new());
        lines.push(table(["DOES NOT APPLY", "BECAUSE"], others.into_iter()));
    }
    lines.join("\n")
}

/// A line for each limit that is an override's.
fn overridden(answer: &Json) -> Vec<String> {
    let limits = list(answer, "rules").flat_map(|rule| list(rule, "limits"));
    let overridden = limits.filter(|limit| !limit["override"].is_null());
    let line = |limit: &Json| {
        let of = &limit["override"];
        let (name, endpoint) = (shown(&limit["name"]), shown(&of["endpoint"]));
        format!("{name} is overridden on {endpoint}{}", because(of))
    };
    overridden.map(line).collect()
}

/// A line for each switch that operators have set for a rule of the answer.
pub(super) fn switched(answer: &Json) -> Vec<String> {
    let rules = ["rules", "not_applied"].into_iter().flat_map(|of| list(answer, of));
    let mut lines: Vec<String> = Vec::new();
    for of in rules.flat_map(|rule| list(rule, "switches")) {
        let share =
            of["enforce_percent"].as_u64().map(|percent| format!("enforced for {percent} % of the keys"));
        let words = match shown(&of["emergency"]).as_str() {
            "lift" => Some("lifted".to_owned()),
            "block" => Some("blocked".to_owned()),
            _ => None,
        };
        let mode = of["mode"].as_str().map(|mode| format!("switched to {}", shown(&json!(mode))));
        let what: Vec<String> = [words, mode, share].into_iter().flatten().collect();
        let key = of["key"].as_str().map_or_else(String::new, |key| format!(" for {}", shown(&json!(key))));
        let end = match &of["until_us"] {
            Json::Null => "until it is taken back".to_owned(),
            until => format!("until {}", instant(until)),
        };
        let by = if who(of).is_empty() { String::new() } else { format!(" by {}", who(of)) };
        let rule = shown(&of["rule"]);
        let line = format!("{rule} is {}{key}{by} {end}{}", what.join(" and "), because(of));
        // One of a service is behind many rules.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Who set something: as the call said, or else the name of the token.
pub(super) fn who(of: &Json) -> String {
    let author = shown(&of["author"]);
    if author.is_empty() { shown(&of["by"]) } else { author }
}

fn because(of: &Json) -> String {
    let reason = shown(&of["reason"]);
    if reason.is_empty() { reason } else { format!(", because of {reason}") }
}
