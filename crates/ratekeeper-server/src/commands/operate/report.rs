//! Answers, for people.

use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper::printable;
use serde_json::Value as Json;

/// How much of a text that others wrote is shown.
const SHOWN_CHARS_MAX: usize = 512;

/// What ends with a line.
pub(in crate::commands) fn text(words: &str) -> io::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "{}", words.trim_end())?;
    out.flush()
}

/// An object on a line of its own.
pub(in crate::commands) fn line(json: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{json}")
}

/// Texts that others wrote must not move the cursor.
pub(in crate::commands) fn shown(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => printable(text, SHOWN_CHARS_MAX),
        other => other.to_string(),
    }
}

pub(super) fn owner_in_words(of: &Json) -> String {
    let organisation = format!("organisation {}", shown(&of["organisation"]));
    match &of["project"] {
        Json::Null => organisation,
        project => format!("project {} of {organisation}", shown(project)),
    }
}

pub(super) fn override_set(answer: &Json) -> String {
    let relieved = answer["relieved"].as_u64();
    let relieved = relieved.map_or_else(String::new, |count| format!("; counters that were reset: {count}"));
    format!("set: {}{relieved}", in_words(answer))
}

pub(super) fn one_override(answer: &Json) -> String {
    if answer["limit"].is_null() {
        return shown(&answer["detail"]);
    }
    in_words(answer)
}

fn in_words(of: &Json) -> String {
    let limit = limit(of);
    let mut words = format!("{} has {limit} on {}, {}", owner_in_words(of), shown(&of["endpoint"]), end(of));
    for (name, before) in [("reason", "because of"), ("author", "by")] {
        let text = shown(&of[name]);
        if !text.is_empty() {
            words.push_str(&format!(", {before} {text}"));
        }
    }
    words
}

fn limit(of: &Json) -> String {
    match &of["window"] {
        Json::Null => shown(&of["limit"]),
        window => format!("{} per {}", shown(&of["limit"]), shown(window)),
    }
}

pub(super) fn overrides(answer: &Json) -> String {
    let rows = answer["overrides"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return "there are none".to_owned();
    }
    // A store on one server does not say where they are.
    let of_server = if rows.iter().any(|row| !row["server"].is_null()) { "SERVER" } else { "" };
    let rows = rows.iter().map(|row| {
        let text = |name: &str| shown(&row[name]);
        let owner = [text("endpoint"), text("organisation"), text("project")];
        let [endpoint, organisation, project] = owner;
        let (limit, end) = (limit(row), end(row));
        [endpoint, organisation, project, limit, end, text("reason"), text("author"), text("server")]
    });
    table(["ENDPOINT", "ORGANISATION", "PROJECT", "LIMIT", "END", "REASON", "AUTHOR", of_server], rows)
}

pub(super) fn deleted(answer: &Json) -> String {
    match answer["deleted"].as_u64() {
        Some(0) => "there was none".to_owned(),
        Some(1) => "deleted".to_owned(),
        count => format!("deleted {}", count.unwrap_or_default()),
    }
}

pub(super) fn cleared(answer: &Json) -> String {
    if answer["cleared"] == Json::Bool(true) { "cleared".to_owned() } else { "none was set".to_owned() }
}

pub(super) fn switch_set(answer: &Json) -> String {
    format!("set: {} {}, {}; every server follows within a second", rule(answer), what(answer), end(answer))
}

fn rule(switch: &Json) -> String {
    match &switch["key"] {
        Json::Null => shown(&switch["rule"]),
        key => format!("{} for {}", shown(&switch["rule"]), shown(key)),
    }
}

fn what(switch: &Json) -> String {
    let share = switch["enforce_percent"].as_u64().map(|percent| format!("for {percent} % of the keys"));
    let words = [Some(shown(&switch["mode"])), Some(shown(&switch["emergency"])), share];
    let words: Vec<String> = words.into_iter().flatten().filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

pub(super) fn switches(answer: &Json) -> String {
    let kinds = [("emergency", &answer["emergencies"]), ("mode", &answer["modes"])];
    let rows: Vec<[String; 4]> = kinds
        .into_iter()
        .flat_map(|(kind, list)| list.as_array().into_iter().flatten().map(move |switch| (kind, switch)))
        .map(|(kind, switch)| [rule(switch), kind.to_owned(), what(switch), end(switch)])
        .collect();
    if rows.is_empty() {
        return "nothing is set: every rule does what its policy says".to_owned();
    }
    table(["RULE", "KIND", "WHAT", "END"], rows.into_iter())
}

/// When something ends, as the time that is left.
fn end(of: &Json) -> String {
    let Some(until) = of["until_us"].as_u64() else { return "until it is taken back".to_owned() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
    let seconds = u128::from(until).saturating_sub(now).div_ceil(1_000_000);
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("for {seconds} s"),
        (0, 0, minutes, _) => format!("for {minutes} min"),
        (0, hours, minutes, _) => format!("for {hours} h {minutes} min"),
        (days, hours, ..) => format!("for {days} d {hours} h"),
    }
}

pub(in crate::commands) fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut all = vec![head.map(str::to_owned)];
    all.extend(rows);
    let widths: [usize; N] =
        std::array::from_fn(|column| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let lines = all.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_line_up_and_nobody_writes_beyond_a_cell() {
        let list = json!({ "overrides": [
            { "endpoint": "a", "organisation": "7", "limit": 5, "window": null, "until_us": null, "reason": "x\u{1b}[2J\ny", "author": "" },
            { "endpoint": "long/endpoint", "organisation": "7", "project": "42", "limit": 10, "window": "60s", "until_us": 1, "reason": "", "author": "ann" },
        ] });
        let words = overrides(&list);
        let lines: Vec<&str> = words.lines().collect();
        assert_eq!(lines.len(), 3, "{words}");
        assert!(lines[0].starts_with("ENDPOINT       ORGANISATION  PROJECT  LIMIT       END"), "{words}");
        assert!(
            lines[1].starts_with("a              7                      5           until it is taken back"),
            "{words}"
        );
        assert!(lines[2].starts_with("long/endpoint  7             42       10 per 60s  for 0 s"), "{words}");
        assert!(!words.contains('\u{1b}'), "{words}");
        assert!(lines[0].ends_with("AUTHOR"), "{words}");
    }

    #[test]
    fn of_several_servers_each_override_says_where_it_is() {
        let of = |organisation: &str, server: &str| {
            json!({
                "endpoint": "a", "organisation": organisation, "project": null, "limit": 5, "window": null,
                "until_us": null, "reason": "", "author": "ann", "server": server,
            })
        };
        let list = json!({ "overrides": [of("7", "redis://a:6379"), of("8", "redis://b:6379")] });
        let words = overrides(&list);
        let ends: Vec<&str> = words.lines().filter_map(|line| line.rsplit("  ").next()).collect();
        assert_eq!(ends, ["SERVER", "redis://a:6379", "redis://b:6379"], "{words}");
    }
}
