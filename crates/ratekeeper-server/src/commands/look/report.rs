//! What was looked at, for people.

use serde_json::{Value as Json, json};

use crate::commands::operate::report::{shown, table};

fn list<'j>(answer: &'j Json, name: &str) -> impl Iterator<Item = &'j Json> {
    answer[name].as_array().into_iter().flatten()
}

/// A length of time in microseconds, as people say it.
fn in_words(micros: &Json) -> String {
    let Some(micros) = micros.as_u64() else { return "never".to_owned() };
    let seconds = micros.div_ceil(1_000_000);
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// An instant in microseconds since 1970, in UTC.
pub(super) fn instant(micros: &Json) -> String {
    let Some(micros) = micros.as_u64() else { return "never".to_owned() };
    let (days, of_day) = (micros / 86_400_000_000, micros % 86_400_000_000);
    let (year, month, day) = civil(days);
    let seconds = of_day / 1_000_000;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let millis = of_day / 1_000 % 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The date so many days after 1970 began (Hinnant, `days_from_civil` the other way round).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) =
        (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// The limits of rules, a line each.
fn limits<'j>(rules: impl Iterator<Item = &'j Json>) -> Vec<[String; 7]> {
    let rows = rules.flat_map(|rule| {
        list(rule, "limits").map(move |limit| {
            let set_by = match &limit["override"]["author"] {
                Json::String(author) if !author.is_empty() => {
                    format!("{} ({})", shown(&limit["level"]), shown(&json!(author)))
                }
                _ => shown(&limit["level"]),
            };
            [
                shown(&limit["name"]),
                shown(&rule["key"]),
                shown(&limit["used"]),
                shown(&limit["remaining"]),
                shown(&limit["quota"]),
                set_by,
                in_words(&limit["reset_after_us"]),
            ]
        })
    });
    rows.collect()
}

const LIMITS: [&str; 7] = ["LIMIT", "KEY", "USED", "LEFT", "QUOTA", "SET BY", "FULL IN"];

pub(super) fn usage(answer: &Json) -> String {
    let rows = limits(list(answer, "rules"));
    if rows.is_empty() {
        return "no rule counts by this alone".to_owned();
    }
    table(LIMITS, rows.into_iter())
}

pub(super) fn inspected(answer: &Json) -> String {
    let rows = limits(list(answer, "rules"));
    let mut parts = Vec::new();
    if !rows.is_empty() {
        parts.push(table(LIMITS, rows.into_iter()));
    }
    if list(answer, "stored").next().is_some() {
        parts.push(format!("as it is stored:\n{}", stored(list(answer, "stored"))));
    }
    if parts.is_empty() { "nothing is counted under this key".to_owned() } else { parts.join("\n\n") }
}

pub(super) fn forgotten(answer: &Json) -> String {
    match answer["forgotten"].as_u64() {
        Some(0) | None => "nothing was counted under this key".to_owned(),
        Some(count) => format!("counters that were forgotten: {count}"),
    }
}

/// The limits of a policy, a line each, and what became of it.
pub(super) fn policy(answer: &Json) -> String {
    let mut rows = Vec::new();
    for rule in list(answer, "rules") {
        let keys: Vec<String> = list(rule, "keys").map(shown).collect();
        let mut add = |quotas: &Json, of: &str| {
            for (name, quota) in quotas.as_object().into_iter().flatten() {
                rows.push([shown(&json!(name)), of.to_owned(), keys.join(", "), shown(quota)]);
            }
        };
        add(&rule["quotas"], "");
        list(rule, "plans").for_each(|plan| add(&plan["quotas"], &format!("plan {}", shown(&plan["of"]))));
        list(rule, "custom").for_each(|key| add(&key["quotas"], &format!("key {}", shown(&key["of"]))));
    }
    let source = shown(&answer["source"]);
    let from = if source.is_empty() { String::new() } else { format!(", from {source}") };
    let mut parts = vec![format!("service {}{from}", shown(&answer["service"]))];
    parts.push(table(["LIMIT", "OF", "KEYS", "QUOTA"], rows.into_iter()));
    let loads = list(answer, "history").map(|load| {
        let at = load["at_seconds"].as_u64().map(|seconds| seconds.saturating_mul(1_000_000));
        let became = match load["refusal"].as_str() {
            Some(_) => format!("refused: {}", shown(&load["refusal"])),
            None => "in force".to_owned(),
        };
        [instant(&json!(at)), became, shown(&load["digest"]), shown(&load["source"])]
    });
    let loads: Vec<[String; 4]> = loads.collect();
    if !loads.is_empty() {
        parts.push(table(["AT", "BECAME", "DIGEST", "SOURCE"], loads.into_iter()));
    }
    parts.join("\n\n")
}

fn stored<'j>(keys: impl Iterator<Item = &'j Json>) -> String {
    let mut is_spread = false;
    let rows = keys.flat_map(|found| {
        let (rule, key, server) = (shown(&found["rule"]), shown(&found["key"]), shown(&found["server"]));
        is_spread |= !server.is_empty();
        let mut rows: Vec<[String; 8]> = list(found, "counters")
            .map(|counter| {
                let name = match counter["name"].as_str().filter(|name| !name.is_empty()) {
                    Some(name) => format!("{rule}.{}", shown(&json!(name))),
                    None => rule.clone(),
                };
                let limit = format!("{} per {}", shown(&counter["limit"]), shown(&counter["window"]));
                [
                    name,
                    key.clone(),
                    shown(&counter["used"]),
                    shown(&counter["remaining"]),
                    limit,
                    shown(&counter["algorithm"]),
                    in_words(&counter["reset_after_us"]),
                    server.clone(),
                ]
            })
            .collect();
        let quota = shown(&found["quota"]);
        let name = if quota.is_empty() { rule } else { format!("{rule}.{quota}") };
        rows.extend(list(found, "lists").map(|of_window| {
            let window = format!("per {}", shown(&of_window["window"]));
            let (used, algorithm) = (shown(&of_window["used"]), shown(&of_window["algorithm"]));
            let end = in_words(&of_window["ends_after_us"]);
            [name.clone(), key.clone(), used, String::new(), window, algorithm, end, server.clone()]
        }));
        if !rows.is_empty() {
            return rows;
        }
        let end =
            if found["ends_after_us"].is_null() { String::new() } else { in_words(&found["ends_after_us"]) };
        vec![[name, key, shown(&found["used"]), String::new(), String::new(), String::new(), end, server]]
    });
    let rows: Vec<[String; 8]> = rows.collect();
    let of_server = if is_spread { "SERVER" } else { "" };
    table(["LIMIT", "KEY", "USED", "LEFT", "QUOTA", "ALGORITHM", "FULL IN", of_server], rows.into_iter())
}

pub(super) fn counters(answer: &Json) -> String {
    let is_kept = answer["names_are_kept"] == json!(true);
    if list(answer, "counters").next().is_none() {
        let more = if answer["cursor"].is_null() { "" } else { " so far" };
        let why =
            if is_kept { "" } else { ": a store in memory keeps no names, and no key was limited lately" };
        return format!("there are none{more}{why}{}", next(answer));
    }
    if !is_kept {
        let rows = list(answer, "counters")
            .map(|hot| [shown(&hot["rule"]), shown(&hot["key"]), shown(&hot["denied"])]);
        return format!(
            "a store in memory keeps no names; these keys were limited lately\n{}",
            table(["RULE", "KEY", "DENIED"], rows)
        );
    }
    format!("{}{}", stored(list(answer, "counters")), next(answer))
}

fn next(answer: &Json) -> String {
    match &answer["cursor"] {
        Json::Null => String::new(),
        cursor => format!("\nthere are more: --cursor {}", shown(cursor)),
    }
}

pub(super) fn explained(answer: &Json) -> String {
    let mut lines = vec![shown(&answer["explanation"])];
    if answer["allowed"] != json!(true) {
        lines.push(format!("decided by {}", shown(&answer["decided_by"])));
        lines.push(format!("passes again at {}", instant(&answer["passes_at_us"])));
    }
    let rows = limits(list(answer, "rules"));
    if !rows.is_empty() {
        lines.push(String::new());
        lines.push(table(LIMITS, rows.into_iter()));
    }
    for limit in list(answer, "rules").flat_map(|rule| list(rule, "limits")) {
        let of = &limit["override"];
        if !of.is_null() {
            let reason = shown(&of["reason"]);
            let because = if reason.is_empty() { String::new() } else { format!(", because of {reason}") };
            lines.push(format!(
                "{} is overridden on {}{because}",
                shown(&limit["name"]),
                shown(&of["endpoint"])
            ));
        }
    }
    let others: Vec<[String; 2]> =
        list(answer, "not_applied").map(|rule| [shown(&rule["rule"]), shown(&rule["why"])]).collect();
    if !others.is_empty() {
        lines.push(String::new());
        lines.push(table(["DOES NOT APPLY", "BECAUSE"], others.into_iter()));
    }
    lines.join("\n")
}

pub(super) fn audited(answer: &Json) -> String {
    let rows: Vec<[String; 7]> = list(answer, "entries")
        .map(|entry| {
            let short = |value: &Json| match value {
                Json::Null => String::new(),
                value => shown(&json!(value.to_string())).chars().take(80).collect(),
            };
            let call = shown(&entry["call"]);
            let failed = if entry["failed"].is_null() { "" } else { " (failed)" };
            [
                instant(&entry["at_us"]),
                shown(&entry["by"]),
                format!("{}{failed}", call.trim_start_matches("/v1/")),
                short(&entry["about"]),
                short(&entry["before"]),
                short(&entry["after"]),
                shown(&entry["reason"]),
            ]
        })
        .collect();
    if rows.is_empty() {
        return "nothing was changed".to_owned();
    }
    table(["AT", "BY", "CALL", "ABOUT", "BEFORE", "AFTER", "REASON"], rows.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_read_as_calendars_have_them() {
        let cases = [
            (0_u64, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123_456, "2023-11-14T22:13:20.123Z"),
            (4_102_444_799_999_999, "2099-12-31T23:59:59.999Z"),
        ];
        for (micros, text) in cases {
            assert_eq!(instant(&json!(micros)), text);
        }
        assert_eq!(instant(&Json::Null), "never");
    }

    #[test]
    fn no_text_of_others_moves_the_cursor() {
        let evil = "a\u{1b}[2J\r\nx";
        let answer = json!({
            "allowed": false, "explanation": evil, "decided_by": evil, "passes_at_us": 0,
            "rules": [{ "rule": evil, "key": evil, "limits": [{
                "name": evil, "level": evil, "quota": evil,
                "override": { "author": evil, "endpoint": evil, "reason": evil },
            }] }],
            "not_applied": [{ "rule": evil, "why": evil }],
            "stored": [{ "rule": evil, "key": evil, "counters": [{ "name": evil }] }],
            "counters": [{ "rule": evil, "key": evil, "counters": [] }], "names_are_kept": true,
            "service": evil, "source": evil, "history": [{ "at_seconds": 0, "refusal": evil, "source": evil }],
            "entries": [{ "by": evil, "call": evil, "about": { "key": evil }, "reason": evil }],
        });
        for words in [explained, inspected, usage, counters, audited, policy] {
            let text = words(&answer);
            assert!(!text.contains(['\u{1b}', '\r']), "{text:?}");
        }
    }
}
