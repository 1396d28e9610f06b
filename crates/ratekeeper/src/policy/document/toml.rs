//! TOML, read by the `toml` crate: the reference implementation, which keeps
//! the span of every key and value and goes on after an error, so that all
//! errors of a text are told at once. Its tables need no order kept, because
//! spans tell it.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue, Error};

use super::lines::Lines;
use super::{Budget, Entry, Node, Value};
use crate::policy::problem::{PROBLEMS_MAX, Problem};

/// How many dots may stand between two of the characters that end a key.
///
/// The crate's work grows with the square of the parts of a key, and it limits
/// only what it keeps. Prose with so many dots would be refused as well.
const DOTS_MAX: usize = 1_000;

pub(super) fn parse(text: &str) -> Result<Node, Vec<Problem>> {
    let lines = Lines::of(text);
    if let Some(offset) = endless_key(text) {
        let expected = format!("at most {DOTS_MAX} dots in a key");
        return Err(vec![Problem::new(lines.place(offset), "", "a key without end", expected)]);
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let mut reader = Reader { lines, budget: Budget::new() };
        let entries = reader.table(table.into_inner(), 1).map_err(|problem| vec![problem])?;
        return Ok(Node { value: Value::Table(entries), at: super::place(1, 1) });
    }
    Err(first_of_each_line(errors, &lines))
}

/// What follows a mistake in its line usually follows from it.
fn first_of_each_line(mut errors: Vec<Error>, lines: &Lines<'_>) -> Vec<Problem> {
    errors.sort_by_key(|error| error.span().map_or(0, |span| span.start));
    let mut problems: Vec<Problem> = Vec::new();
    for problem in errors.iter().map(|error| problem(error, lines)) {
        if problems.last().is_none_or(|last| last.at.line != problem.at.line) {
            problems.push(problem);
        }
        if problems.len() == PROBLEMS_MAX {
            break;
        }
    }
    problems
}

fn problem(error: &Error, lines: &Lines<'_>) -> Problem {
    let at = lines.place(error.span().map_or(0, |span| span.start));
    if error.message() == "duplicate key" {
        return Problem::new(at, "", "the same name again", "each name once");
    }
    let (what, expected) = error.message().split_once(", expected ").unwrap_or((error.message(), "TOML"));
    Problem::new(at, "", format!("text that is not TOML ({what})"), expected)
}

/// Where a key begins that has more parts than anybody writes.
fn endless_key(text: &str) -> Option<usize> {
    let (mut start, mut dots) = (0, 0);
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            b'\n' | b'=' | b',' => (start, dots) = (offset + 1, 0),
            b'.' => dots += 1,
            _ => {}
        }
        if dots > DOTS_MAX {
            return Some(start);
        }
    }
    None
}

struct Reader<'t> {
    lines: Lines<'t>,
    budget: Budget,
}

impl Reader<'_> {
    fn table(&mut self, table: DeTable<'_>, depth: usize) -> Result<Vec<Entry>, Problem> {
        let mut entries: Vec<_> = table.into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (Spanned<_>, _)| {
            let at = self.lines.place(key.span().start);
            let key: std::borrow::Cow<'_, str> = key.into_inner();
            Ok(Entry { key: key.into_owned(), at, node: self.node(value, depth)? })
        };
        entries.into_iter().map(entry).collect()
    }

    fn node(&mut self, value: Spanned<DeValue<'_>>, depth: usize) -> Result<Node, Problem> {
        let at = self.lines.place(value.span().start);
        let is_nested = matches!(value.as_ref(), DeValue::Array(_) | DeValue::Table(_));
        let depth = depth + usize::from(is_nested);
        self.budget.take(1, depth, at)?;
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(integer) => Value::Integer(integer),
                Err(_) => Value::Float(number.as_str().parse().unwrap_or(f64::INFINITY)),
            },
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Datetime(date) => Value::Date(date.to_string()),
            DeValue::Array(items) => {
                let node = |item| self.node(item, depth);
                Value::List(items.into_iter().map(node).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Value::Table(self.table(table, depth)?),
        };
        Ok(Node { value, at })
    }
}
