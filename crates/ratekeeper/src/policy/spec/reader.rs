//! Walks a document and notes what is wrong with it.
//!
//! Every method that reads a value answers `None` once it has noted why, and
//! the caller goes on with the next field: whoever wrote the document wants to
//! hear of all mistakes at once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use ratekeeper_core::{NAME_BYTES_MAX, Quota};

use super::check::{A_LENGTH_OF_TIME, a_whole_number};
use super::shape::{Shape, did_you_mean};
use crate::policy::document::{Entry, Node, Place, Value};
use crate::policy::problem::{Problem, Problems, meant, one_of, quoted, shown};
use crate::policy::template::Template;

/// A node, and the way to it.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) node: &'a Node,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a Cursor<'a>, &'a Entry),
    Item(&'a Cursor<'a>, usize),
}

impl<'a> Cursor<'a> {
    pub(super) const fn root(node: &'a Node) -> Self {
        Self { node, step: Step::Root }
    }

    /// The name under which it stands in its table.
    pub(super) fn key(&self) -> &'a str {
        match self.step {
            Step::Field(_, entry) => &entry.key,
            Step::Root | Step::Item(..) => "",
        }
    }

    /// `rules[2].quotas.rpm`.
    pub(super) fn path(&self) -> String {
        let mut path = String::new();
        self.write_path(&mut path);
        path
    }

    fn write_path(&self, path: &mut String) {
        match self.step {
            Step::Root => {}
            Step::Field(parent, entry) => {
                parent.write_path(path);
                push_field(path, &entry.key);
            }
            Step::Item(parent, index) => {
                parent.write_path(path);
                let written = write!(path, "[{index}]");
                debug_assert!(written.is_ok(), "a String takes everything");
            }
        }
    }
}

/// Goes on to a field.
pub(super) fn push_field(path: &mut String, field: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$');
    if !field.is_empty() && field.bytes().all(bare) && field.len() <= NAME_BYTES_MAX {
        path.push_str(field);
    } else {
        path.push_str(&quoted(field));
    }
}

/// The fields of a table that has a [`Shape`].
pub(super) struct Fields<'a> {
    shape: &'static Shape,
    found: HashMap<&'a str, Cursor<'a>>,
}

impl<'a> Fields<'a> {
    pub(super) fn get(&self, field: &str) -> Option<Cursor<'a>> {
        debug_assert!(self.shape.has(field), "{field} is missing in the list of fields");
        self.found.get(field).copied()
    }

    /// Where each stands.
    pub(super) fn places(&self) -> Vec<(String, Place)> {
        self.found.values().map(|at| (at.key().to_owned(), at.node.at)).collect()
    }
}

pub(super) struct Reader {
    pub(super) problems: Problems,
    /// Whether `null` is as good as leaving a field out: programs that write to
    /// databases do that.
    null_is_absent: bool,
}

impl Reader {
    pub(super) fn new(source: &str, null_is_absent: bool) -> Self {
        Self { problems: Problems::none(source), null_is_absent }
    }

    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        self.problems.or(value)
    }

    /// Notes a problem with the value at `at`.
    pub(super) fn report(&mut self, at: &Cursor<'_>, got: impl AsRef<str>, expected: impl AsRef<str>) {
        self.problems.push(Problem::new(at.node.at, at.path(), got, expected));
    }

    /// Notes that the value at `at` is not what was expected.
    pub(super) fn wrong(&mut self, at: &Cursor<'_>, expected: impl AsRef<str>) {
        self.report(at, shown(at.node), expected);
    }

    /// The value, unless something is wrong with it, which is noted.
    pub(super) fn checked<T>(&mut self, at: &Cursor<'_>, value: Result<T, impl Into<Problem>>) -> Option<T> {
        self.problems.checked(value, || (at.node.at, at.path()))
    }

    /// Notes that the value at `at` is not what was expected, where a value would be the answer.
    pub(super) fn unfit<T>(&mut self, at: &Cursor<'_>, expected: impl AsRef<str>) -> Option<T> {
        self.wrong(at, expected);
        None
    }

    /// Notes a problem with the name of a field.
    fn report_key(&mut self, at: &Cursor<'_>, got: impl AsRef<str>, expected: impl AsRef<str>) {
        let Step::Field(_, entry) = at.step else { return self.report(at, got, expected) };
        self.problems.push(Problem::new(entry.at, at.path(), got, expected));
    }

    /// The values of a table, each name once.
    pub(super) fn entries<'a>(&mut self, at: &'a Cursor<'a>, expected: &str) -> Option<Vec<Cursor<'a>>> {
        let Value::Table(entries) = &at.node.value else { return self.unfit(at, expected) };
        let mut lines: HashMap<&str, Place> = HashMap::with_capacity(entries.len());
        let mut cursors = Vec::with_capacity(entries.len());
        for entry in entries {
            let cursor = Cursor { node: &entry.node, step: Step::Field(at, entry) };
            if let Some(first) = lines.insert(&entry.key, entry.at) {
                let line =
                    if first.is_known() { format!(" as in line {}", first.line) } else { String::new() };
                self.report_key(&cursor, format!("the same name again{line}"), "each name once");
            } else if !(self.null_is_absent && entry.node.value == Value::Null) {
                cursors.push(cursor);
            }
        }
        Some(cursors)
    }

    /// The fields of a table; those that do not belong there are noted.
    pub(super) fn fields<'a>(&mut self, at: &'a Cursor<'a>, shape: &'static Shape) -> Option<Fields<'a>> {
        let entries = self.entries(at, &format!("{}: a table", shape.what))?;
        let mut found = HashMap::with_capacity(entries.len());
        for cursor in entries {
            if shape.has(cursor.key()) {
                found.insert(cursor.key(), cursor);
            } else {
                self.report_key(&cursor, "an unknown field", shape.suggestion(cursor.key()));
            }
        }
        Some(Fields { shape, found })
    }

    /// The values of a list.
    pub(super) fn items<'a>(&mut self, at: &'a Cursor<'a>, expected: &str) -> Option<Vec<Cursor<'a>>> {
        let Value::List(items) = &at.node.value else { return self.unfit(at, expected) };
        let cursor = |(index, node)| Cursor { node, step: Step::Item(at, index) };
        Some(items.iter().enumerate().map(cursor).collect())
    }

    /// A list, or a single value as a list of one.
    pub(super) fn one_or_more<'a>(&mut self, at: &'a Cursor<'a>) -> Vec<Cursor<'a>> {
        match at.node.value {
            Value::List(_) => self.items(at, "").unwrap_or_default(),
            _ => vec![*at],
        }
    }

    pub(super) fn text<'a>(&mut self, at: &Cursor<'a>, expected: &str) -> Option<&'a str> {
        match &at.node.value {
            Value::Text(text) if !text.trim().is_empty() => Some(text),
            _ => self.unfit(at, expected),
        }
    }

    /// What a text in a language of its own says.
    pub(super) fn parsed<T, E: Into<Problem>>(
        &mut self,
        at: &Cursor<'_>,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(at, expected)?;
        self.checked(at, parse(text))
    }

    pub(super) fn template(&mut self, at: &Cursor<'_>) -> Option<Template> {
        self.parsed(at, "a template such as \"user:{identity.user}\"", Template::parse)
    }

    pub(super) fn flag(&mut self, at: &Cursor<'_>) -> Option<bool> {
        match at.node.value {
            Value::Bool(value) => Some(value),
            _ => self.unfit(at, "true or false"),
        }
    }

    /// A whole number within bounds, as the type that the bounds have.
    pub(super) fn whole<N>(&mut self, at: &Cursor<'_>, min: N, max: N) -> Option<N>
    where
        N: Copy + PartialOrd + TryFrom<i64> + std::fmt::Display,
    {
        let number = integer(at.node).and_then(|number| N::try_from(number).ok());
        let within = number.filter(|number| (min..=max).contains(number));
        if within.is_none() {
            self.wrong(at, a_whole_number(&min, &max));
        }
        within
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&mut self, at: &Cursor<'_>, words: &[(&str, T)]) -> Option<T> {
        let text = if let Value::Text(text) = &at.node.value { text } else { "" };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let hint = meant(text, &known).map_or_else(String::new, did_you_mean);
            self.wrong(at, format!("{}{hint}", one_of(&known)));
        }
        found
    }

    /// A length of time, written like the window of a quota.
    pub(super) fn duration(&mut self, at: &Cursor<'_>) -> Option<Duration> {
        let text = if let Value::Text(text) = &at.node.value { text } else { "" };
        let duration = parse_duration(text);
        if duration.is_none() {
            self.wrong(at, A_LENGTH_OF_TIME);
        }
        duration
    }
}

/// A length of time, written like the window of a quota: `250ms`, `90s`, `10min`, `1h`, `30d`, from 1 ms to 366 days.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let is_plain = unit.len() < text.len() && unit.bytes().all(|byte| byte.is_ascii_lowercase());
    // The quota's own parser knows the units and the bounds.
    let quota: Option<Quota> = format!("1/{text}").parse().ok().filter(|_| is_plain);
    quota.map(|quota| quota.window())
}

/// A whole number; also one that was stored as a float, as databases and the
/// JSON schema see it.
pub(super) fn integer(node: &Node) -> Option<i64> {
    /// Floats hold every whole number up to here.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match node.value {
        Value::Integer(number) => Some(number),
        Value::Float(number) if number.fract() == 0.0 && number.abs() <= EXACT_MAX => Some(number as i64),
        _ => None,
    }
}
