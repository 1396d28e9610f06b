//! What is wrong with a template, an expression or an address in a policy.

use std::fmt;

use super::problem::{meant, one_of, quoted};

/// A text that cannot be used: where in it, what was found, what would be right.
///
/// The place is one within the text itself; whoever read the text from a
/// document knows where that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyntaxError {
    /// The line within the text, counted from 1.
    pub line: usize,
    /// The character within the line, counted from 1.
    pub column: usize,
    /// What was found.
    pub got: String,
    /// What would be accepted.
    pub expected: String,
}

impl SyntaxError {
    /// An error at the character of `text` that begins at the byte `offset`.
    pub(super) fn new(
        text: &str,
        offset: usize,
        got: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        Self { line, column, got: got.into(), expected: expected.into() }
    }

    /// What was found, and where in the text.
    pub(super) fn got_where(&self) -> String {
        let line = if self.line > 1 { format!("line {}, ", self.line) } else { String::new() };
        format!("{} ({line}character {})", self.got, self.column)
    }

    /// An error about a word that is none of `known`, with the one that was
    /// probably meant.
    pub(super) fn unknown(text: &str, offset: usize, word: &str, known: &[&str]) -> Self {
        let mut expected = one_of(known);
        if let Some(meant) = meant(word, known) {
            expected = format!("{expected}; did you mean `{meant}`?");
        }
        Self::new(text, offset, quoted(word), expected)
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 1 {
            write!(f, "line {}, ", self.line)?;
        }
        write!(f, "column {}: got {}; expected {}", self.column, self.got, self.expected)
    }
}

impl std::error::Error for SyntaxError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_characters() {
        let error = SyntaxError::unknown("\u{e9}\u{e9}: heder", 6, "heder", &["header", "body"]);
        assert_eq!(
            error.to_string(),
            "column 5: got \"heder\"; expected header or body; did you mean `header`?"
        );
        let error = SyntaxError::new("a\n\u{e9}b", 4, "x", "y");
        assert_eq!(error.to_string(), "line 2, column 2: got x; expected y");
        assert_eq!(SyntaxError::new("abc", 99, "x", "y").column, 4, "beyond the end is the end");
    }
}
