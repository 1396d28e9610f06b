//! Rules as TOML, for people to go on with.

use std::fmt::Write as _;

use crate::control::Mode;
use crate::policy::problem::Problem;
use crate::policy::spec::{KeySpec, Limits, PolicySpec, RuleSpec};

/// A policy that was imported, in TOML: reading it gives the same policy. Above its rules stand the warnings.
pub(super) fn toml(spec: &PolicySpec, from: &str, warnings: &[Problem]) -> String {
    let mut text = format!("# Converted from {from}.\n");
    for warning in warnings {
        // In one line each: what is in a problem is printable.
        line(&mut text, &format!("# Warning: {warning}"));
    }
    line(&mut text, &format!("service = {}", quoted(&spec.service)));
    spec.rules.iter().for_each(|rule| write_rule(&mut text, rule));
    text
}

/// The fields that imported rules have; every other one says what it says by default.
fn write_rule(text: &mut String, rule: &RuleSpec) {
    let mut field = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            line(text, &format!("{name} = {value}"));
        }
    };
    let quote = |value: &Option<String>| value.as_deref().map(quoted);
    field("\n[[rules]]\nname", Some(quoted(&rule.name)));
    field("when", rule.when.as_ref().map(|when| quoted(when.as_str())));
    field("first_of", quote(&rule.first_of));
    field("any_of", quote(&rule.any_of));
    let replaces: Vec<String> = rule.replaces.iter().map(|name| quoted(name)).collect();
    field("replaces", (!replaces.is_empty()).then(|| format!("[{}]", replaces.join(", "))));
    if let KeySpec::Templates(templates) = &rule.keys {
        let templates: Vec<String> = templates.iter().map(|key| quoted(key.as_str())).collect();
        field(
            "keys",
            Some(if let [key] = &*templates { key.clone() } else { format!("[{}]", templates.join(", ")) }),
        );
    }
    field("quota", Some(quota(&rule.limits)));
    field("mode", rule.mode.map(|mode| quoted(word(mode))));
}

fn quota(limits: &Limits) -> String {
    let Limits::Quotas(quotas) = limits else { return quoted("unlimited") };
    // One is what a limit elsewhere is.
    quotas.first().map_or_else(String::new, |only| quoted(&only.quota.to_string()))
}

fn word(mode: Mode) -> &'static str {
    Mode::NAMES.iter().find(|(_, known)| *known == mode).map_or("on", |(word, _)| word)
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// A text as a string of TOML: literal, if it can be, because conditions and patterns are full of backslashes.
fn quoted(text: &str) -> String {
    let is_plain = |text: &str| !text.contains(|c: char| c.is_control() || c == '\\' || c == '"');
    if is_plain(text) {
        return format!("\"{text}\"");
    }
    if !text.contains(|c: char| c.is_control() || c == '\'') {
        return format!("'{text}'");
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let written = write!(quoted, "\\u{:04X}", u32::from(control));
                debug_assert!(written.is_ok(), "a String takes everything");
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_as_plain_as_they_can_be() {
        let cases = [
            ("a 'b'", r#""a 'b'""#),
            (r"a\b", r"'a\b'"),
            (r#"a "b""#, r#"'a "b"'"#),
            (r#"'\"#, r#""'\\""#),
            ("\u{7}\n", r#""\u0007\u000A""#),
        ];
        for (text, expected) in cases {
            assert_eq!(quoted(text), expected);
        }
    }
}
