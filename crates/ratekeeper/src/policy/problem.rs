//! What is wrong with a policy: all of it, each with its place, what was found
//! and what would be right.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::{Field, InvalidInput, SHOWN_CHARS_MAX, printable};

use super::document::{Node, Place, Value};
use super::syntax::SyntaxError;

/// How many problems are kept; of more, only the number is told.
pub const PROBLEMS_MAX: usize = 100;
/// How much of a parser's message a problem repeats, in characters.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// One thing that is wrong.
///
/// It prints as one line:
/// `policy.toml:12:8: rules[2].quotas.rpm: got -5; expected a whole number from
/// 1 to 1000000000`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// What the document is called: a file's name, `mongodb:service`.
    pub source: Arc<str>,
    /// Where it is, if the document is text.
    pub at: Place,
    /// Which field: `rules[2].quotas.rpm`; empty for the document as a whole.
    pub field: String,
    /// What was found.
    pub got: String,
    /// What would be accepted.
    pub expected: String,
}

impl Problem {
    pub(super) fn new(
        at: Place,
        field: impl Into<String>,
        got: impl AsRef<str>,
        expected: impl AsRef<str>,
    ) -> Self {
        let (got, expected) =
            (printable(got.as_ref(), MESSAGE_CHARS_MAX), printable(expected.as_ref(), MESSAGE_CHARS_MAX));
        Self { source: Arc::from(""), at, field: field.into(), got, expected }
    }

    /// What is wrong with a value, wherever that stands.
    pub(super) fn of(got: impl AsRef<str>, expected: impl AsRef<str>) -> Self {
        Self::new(Place::UNKNOWN, "", got, expected)
    }
}

impl From<SyntaxError> for Problem {
    fn from(error: SyntaxError) -> Self {
        Self::of(error.got_where(), error.expected)
    }
}

impl From<InvalidInput> for Problem {
    fn from(error: InvalidInput) -> Self {
        use Field::{Burst, Limit, Offset, Queue, Window};
        let is_part = matches!(error.field, Burst | Limit | Offset | Queue | Window);
        let is_number = error.got.starts_with(|first: char| first.is_ascii_digit());
        let part = if is_part && is_number { format!("{} ", error.field) } else { String::new() };
        Self::of(format!("{part}{}", error.got), error.expected)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.source)?;
        if self.at.is_known() {
            write!(f, "{}:{}:", self.at.line, self.at.column)?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", self.field)?;
        }
        write!(f, " got {}; expected {}", self.got, self.expected)
    }
}

/// Everything that is wrong with one document, in the order of its lines.
///
/// It prints one line for each problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    source: Arc<str>,
    found: Vec<Problem>,
    omitted: usize,
}

impl Problems {
    /// None so far, in the document that is called `source`.
    pub(super) fn none(source: &str) -> Self {
        Self { source: printable(source, MESSAGE_CHARS_MAX).into(), found: Vec::new(), omitted: 0 }
    }

    pub(super) fn of(source: &str, found: impl IntoIterator<Item = Problem>) -> Self {
        let mut problems = Self::none(source);
        found.into_iter().for_each(|problem| problems.push(problem));
        problems.sort();
        problems
    }

    pub(super) fn push(&mut self, problem: Problem) {
        if self.found.len() == PROBLEMS_MAX {
            self.omitted += 1;
            return;
        }
        self.found.push(Problem { source: Arc::clone(&self.source), ..problem });
    }

    /// The value, unless something is wrong with it: then that is noted, with its place.
    pub(super) fn checked<T>(
        &mut self,
        value: Result<T, impl Into<Problem>>,
        place: impl FnOnce() -> (Place, String),
    ) -> Option<T> {
        let noted = value.map_err(|problem| {
            let (at, field) = place();
            self.push(Problem { at, field, ..problem.into() });
        });
        noted.ok()
    }

    /// These and those of another document.
    #[cfg(feature = "policy")]
    pub(super) fn and(mut self, other: Self) -> Self {
        for problem in other.found {
            if self.found.len() < PROBLEMS_MAX {
                self.found.push(problem);
            } else {
                self.omitted += 1;
            }
        }
        self.omitted += other.omitted;
        self
    }

    /// The value, if nothing is wrong after all.
    pub(super) fn or<T>(mut self, value: Option<T>) -> Result<T, Self> {
        self.sort();
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    fn sort(&mut self) {
        self.found.sort_by_key(|problem| problem.at);
    }

    /// The problems; at most [`PROBLEMS_MAX`].
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.found.iter()
    }

    /// The problems themselves, for warnings.
    pub(super) fn into_iter(self) -> impl Iterator<Item = Problem> {
        self.found.into_iter()
    }

    /// How many there are in all.
    #[must_use]
    pub fn count(&self) -> usize {
        self.found.len() + self.omitted
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.found.iter().enumerate() {
            let lead = if index == 0 { "" } else { "\n" };
            write!(f, "{lead}{problem}")?;
        }
        if self.omitted > 0 {
            write!(f, "\n{}: and {} more", self.source, self.omitted)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A value as a problem repeats it.
pub(super) fn shown(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Text(text) => quoted(text),
        Value::Date(date) => format!("the date {}", printable(date, SHOWN_CHARS_MAX)),
        Value::List(items) if items.is_empty() => "an empty list".to_owned(),
        Value::List(_) => "a list".to_owned(),
        Value::Table(entries) if entries.is_empty() => "an empty table".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

/// A text in quotes, as a problem repeats it.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", printable(text, SHOWN_CHARS_MAX))
}

/// `a, b or c`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The known word that was probably meant.
pub(super) fn meant<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    let lower = word.to_ascii_lowercase();
    let near = known.iter().map(|known| (distance(&lower, known), *known)).min()?;
    // One slip in a short word, two in a long one.
    let slips_max = if word.len() < 5 { 1 } else { 2 };
    (near.0 <= slips_max).then_some(near.1)
}

/// How many slips (a letter added, left out, changed, or two swapped) make `a`
/// of `b`; words of very different length are far apart without a count.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let (mut before, mut above) = (Vec::new(), (0..=b.len()).collect::<Vec<usize>>());
    for row in 1..=a.len() {
        let mut current = vec![row];
        for column in 1..=b.len() {
            let changed = above[column - 1] + usize::from(a[row - 1] != b[column - 1]);
            let mut slips = changed.min(above[column] + 1).min(current[column - 1] + 1);
            let swapped = row > 1 && column > 1 && a[row - 1] == b[column - 2] && a[row - 2] == b[column - 1];
            if swapped {
                slips = slips.min(before[column - 2] + 1);
            }
            current.push(slips);
        }
        (before, above) = (above, current);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_whatever_it_is_about() {
        let place = Place { line: 12, column: 8 };
        let got = format!("\"a\nb\u{1b}{}\"", "x".repeat(1_000_000));
        let problems = Problems::of(
            "policy.toml",
            [
                Problem::new(place, "rules[2].quotas.rpm", "-5", "a whole number"),
                Problem::new(Place::UNKNOWN, "", got, "less"),
            ],
        );
        let lines: Vec<String> = problems.to_string().lines().map(str::to_owned).collect();
        assert_eq!(lines[1], "policy.toml:12:8: rules[2].quotas.rpm: got -5; expected a whole number");
        assert!(lines[0].starts_with(r#"policy.toml: got "a\nb\u{1b}xxx"#), "{}", lines[0]);
        assert!(lines.len() == 2 && lines[0].len() < 1_100);
    }

    #[test]
    fn problems_are_bounded_and_counted() {
        let many = (0..1_000).map(|n| Problem::new(Place::UNKNOWN, "", n.to_string(), "none"));
        let problems = Problems::of("x", many);
        assert_eq!((problems.iter().count(), problems.count()), (PROBLEMS_MAX, 1_000));
        assert!(problems.to_string().ends_with("\nx: and 900 more"));
    }

    #[test]
    fn slips_are_recognised() {
        let known = ["quota", "quotas", "when", "rps", "on_outage"];
        let cases = [
            ("qouta", Some("quota")),
            ("Quota", Some("quota")),
            ("quotass", Some("quotas")),
            ("wen", Some("when")),
            ("rsp", Some("rps")),
            ("on_otuagee", Some("on_outage")),
            ("limit", None),
            ("", None),
            ("\u{e9}", None),
        ];
        for (word, expected) in cases {
            assert_eq!(meant(word, &known), expected, "{word}");
        }
    }
}
