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
    /// An override.
    Override,
    /// An idempotency id or how long it is kept.
    Idempotency,
    /// A reservation's id or how long it holds.
    Reservation,
    /// How a store is reached, or one of its settings.
    Store,
    /// A switch that operators throw.
    Switch,
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
            Field::Override => "override",
            Field::Idempotency => "idempotency",
            Field::Reservation => "reservation",
            Field::Store => "store",
            Field::Switch => "switch",
        })
    }
}

/// How much of a wrong input an error repeats.
const SHOWN_CHARS_MAX: usize = 80;

impl InvalidInput {
    /// An error about `field`; `got` is escaped and shortened.
    pub fn new(field: Field, got: impl fmt::Display, expected: impl Into<String>) -> Self {
        let got = got.to_string();
        let mut shown: String = got.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
        if got.chars().nth(SHOWN_CHARS_MAX).is_some() {
            shown.push_str("...");
        }
        Self { field, got: shown, expected: expected.into() }
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
}
