//! What is wrong with an input, and what would be right.

use std::fmt;

/// An input that cannot be used: which one, what it was, what would be right.
///
/// It is the only error of this crate. A denial is not an error but a
/// [`Decision`](crate::Decision).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: got {got}; expected {expected}")]
#[non_exhaustive]
pub struct InvalidInput {
    /// The field or argument that is wrong.
    pub field: Field,
    /// What was given, shortened and escaped.
    pub got: String,
    /// What would be accepted.
    pub expected: String,
}

/// The inputs that can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// The units of a quota.
    Limit,
    /// The length of a quota's window.
    Window,
    /// The burst of a token bucket.
    Burst,
    /// The queue of a leaky bucket.
    Queue,
    /// The offset of a calendar window from UTC.
    Offset,
    /// A quota written as text.
    QuotaText,
    /// The name of an algorithm.
    Algorithm,
    /// The cost of a charge.
    Cost,
    /// The key of a charge.
    Key,
    /// A name of a rule or a quota.
    Name,
    /// The set of charges of one check.
    Check,
    /// A penalty of a check.
    Penalty,
    /// An override.
    Override,
    /// An idempotency id or how long it is kept.
    Idempotency,
    /// A reservation's id or how long it holds.
    Reservation,
    /// An id that was used for another check: in conflict with what was decided then.
    IdInUse,
    /// How a store is reached, or one of its settings.
    Store,
    /// A switch that operators throw.
    Switch,
    /// A line of the audit log.
    Audit,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Limit => "limit",
            Field::Window => "window",
            Field::Burst => "burst",
            Field::Queue => "queue",
            Field::Offset => "offset",
            Field::QuotaText => "quota",
            Field::Algorithm => "algorithm",
            Field::Cost => "cost",
            Field::Key => "key",
            Field::Name => "name",
            Field::Check => "check",
            Field::Penalty => "penalty",
            Field::Override => "override",
            Field::Idempotency | Field::IdInUse => "idempotency",
            Field::Reservation => "reservation",
            Field::Store => "store",
            Field::Switch => "switch",
            Field::Audit => "audit",
        })
    }
}

/// How much of a wrong input an error repeats.
pub const SHOWN_CHARS_MAX: usize = 80;

/// A text as it can be shown and logged, whoever wrote it: on one line, with characters that
/// would not be seen or would move others escaped, and cut after `chars_max` characters.
#[must_use]
pub fn printable(text: &str, chars_max: usize) -> String {
    let mut shown = String::new();
    for character in text.chars().take(chars_max) {
        match character {
            // Nothing but what is readable anyway.
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    if text.chars().nth(chars_max).is_some() {
        shown.push_str("...");
    }
    shown
}

impl InvalidInput {
    /// An error about `field`; `got` is escaped and shortened.
    pub fn new(field: Field, got: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self { field, got: printable(&got.to_string(), SHOWN_CHARS_MAX), expected: expected.into() }
    }

    /// An error for a number outside `min..=max`.
    pub(crate) fn range(field: Field, got: impl fmt::Display, min: u64, max: u64, unit: &str) -> Self {
        let space = if unit.is_empty() { "" } else { " " };
        Self::new(field, got, format!("a whole number from {min} to {max}{space}{unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_hostile_input_is_shortened_and_escaped() {
        let error = InvalidInput::new(Field::Key, "\n".repeat(1_000_000), "less");
        assert!(error.to_string().len() < 300, "{error}");
        assert!(error.to_string().starts_with(r"key: got \n\n"));
    }

    #[test]
    fn what_can_be_read_is_shown_as_it_is() {
        assert_eq!(printable("a \"b\" 'c' \\d caf\u{e9}", 80), "a \"b\" 'c' \\d caf\u{e9}");
        assert_eq!(printable("\0\r\u{202e}\u{feff}", 80), r"\0\r\u{202e}\u{feff}");
        assert_eq!((printable("abc", 3).as_str(), printable("abcd", 3).as_str()), ("abc", "abc..."));
    }
}
