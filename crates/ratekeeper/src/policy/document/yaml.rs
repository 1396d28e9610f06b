//! YAML, read by `saphyr-parser`: maintained, passes the YAML test suite, marks
//! every event with its place, and needs no table of its own, so that bounds
//! hold while a text is read and not after it has been expanded.
//!
//! What policies have no use for is refused rather than guessed at: tags, a
//! second document, keys that are not plain values. Merge keys (`<<`) belong to
//! YAML 1.1 and are keys like any other.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};

use super::{Budget, Entry, Node, Place, Value};
use crate::policy::problem::Problem;

pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    parse_as(text, scalar)
}

/// The same with plain values as texts, for documents whose readers know better what is a number.
pub(super) fn parse_texts(text: &str) -> Result<Node, Problem> {
    parse_as(text, |text, style| match scalar(text, style) {
        Value::Null => Value::Null,
        _ => Value::Text(text.to_owned()),
    })
}

fn parse_as(text: &str, scalar: fn(&str, ScalarStyle) -> Value) -> Result<Node, Problem> {
    let (events, budget) = (Parser::new_from_str(text), Budget::new());
    let mut reader = Reader { events, budget, anchors: HashMap::new(), scalar };
    let mut root = None;
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if root.is_some() => {
                return Err(Problem::new(at, "", "a second document", "one document in a file"));
            }
            event => root = Some(reader.node(event, at, 0)?.node),
        }
    }
    Ok(root.unwrap_or(Node { value: Value::Null, at: super::place(1, 1) }))
}

/// A node, and what repeating it would take.
#[derive(Clone)]
struct Measured {
    node: Node,
    nodes: usize,
    /// How many lists and tables there are one within another.
    height: usize,
}

struct Reader<'t> {
    events: Parser<'t, StrInput<'t>>,
    budget: Budget,
    /// What aliases stand for. A node is not here while it is still being
    /// read, so none can contain itself.
    anchors: HashMap<usize, Measured>,
    /// What a scalar is.
    scalar: fn(&str, ScalarStyle) -> Value,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Place), Problem> {
        match self.events.next_event() {
            Some(Ok((event, Span { start, .. }))) => Ok((event, place(start))),
            Some(Err(error)) => {
                let got = format!("text that is not YAML ({})", error.info());
                Err(Problem::new(place(*error.marker()), "", got, "YAML 1.2"))
            }
            None => Ok((Event::StreamEnd, Place::UNKNOWN)),
        }
    }

    /// The node that `event` begins, within `depth` lists and tables.
    fn node(&mut self, event: Event<'t>, at: Place, depth: usize) -> Result<Measured, Problem> {
        let (anchor, measured) = match event {
            Event::Alias(id) => return self.alias(id, at, depth),
            Event::Scalar(text, style, anchor, tag) => {
                untagged(tag.is_some(), at)?;
                self.budget.take(1, depth, at)?;
                let value = (self.scalar)(&text, style);
                (anchor, Measured { node: Node { value, at }, nodes: 1, height: 0 })
            }
            Event::SequenceStart(anchor, tag) => {
                untagged(tag.is_some(), at)?;
                self.budget.take(1, depth + 1, at)?;
                (anchor, self.list(at, depth + 1)?)
            }
            Event::MappingStart(anchor, tag) => {
                untagged(tag.is_some(), at)?;
                self.budget.take(1, depth + 1, at)?;
                (anchor, self.table(at, depth + 1)?)
            }
            _ => return Err(Problem::new(at, "", "text that is not YAML", "a value")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, measured.clone());
        }
        Ok(measured)
    }

    /// A copy of what the alias stands for, with the places of the original:
    /// that is where it would have to be changed.
    fn alias(&mut self, id: usize, at: Place, depth: usize) -> Result<Measured, Problem> {
        let Some(original) = self.anchors.get(&id) else {
            return Err(Problem::new(at, "", "an alias within what it stands for", "an alias after it"));
        };
        self.budget.take(original.nodes, depth + original.height, at)?;
        Ok(original.clone())
    }

    fn list(&mut self, at: Place, depth: usize) -> Result<Measured, Problem> {
        let (mut items, mut nodes, mut height) = (Vec::new(), 1, 0);
        loop {
            let (event, item_at) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Measured {
                    node: Node { value: Value::List(items), at },
                    nodes,
                    height: height + 1,
                });
            }
            let item = self.node(event, item_at, depth)?;
            (nodes, height) = (nodes + item.nodes, height.max(item.height));
            items.push(item.node);
        }
    }

    fn table(&mut self, at: Place, depth: usize) -> Result<Measured, Problem> {
        let (mut entries, mut nodes, mut height) = (Vec::new(), 1, 0);
        loop {
            let (key, key_at) = match self.next()? {
                (Event::MappingEnd, _) => {
                    let node = Node { value: Value::Table(entries), at };
                    return Ok(Measured { node, nodes, height: height + 1 });
                }
                (Event::Scalar(key, _, 0, None), key_at) => (key.into_owned(), key_at),
                (_, key_at) => {
                    let got = "a key that is an alias, a list, a table, or has a tag or an anchor";
                    return Err(Problem::new(key_at, "", got, "a key that is a text"));
                }
            };
            let (event, value_at) = self.next()?;
            let value = self.node(event, value_at, depth)?;
            (nodes, height) = (nodes + value.nodes, height.max(value.height));
            entries.push(Entry { key, at: key_at, node: value.node });
        }
    }
}

fn untagged(is_tagged: bool, at: Place) -> Result<(), Problem> {
    if is_tagged {
        return Err(Problem::new(at, "", "a tag", "a plain value; quote what is to be a text"));
    }
    Ok(())
}

fn place(marker: Marker) -> Place {
    super::place(marker.line(), marker.col() + 1)
}

/// A scalar as the core schema of YAML 1.2 reads it (section 10.3).
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).unwrap_or_else(|| Value::Text(text.to_owned()))
}

fn number(text: &str) -> Option<Value> {
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
            return i64::from_str_radix(digits, radix).ok().filter(|_| is_plain).map(Value::Integer);
        }
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Some(Value::Float(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY }));
    }
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(Value::Float(f64::NAN));
    }
    // What remains is what Rust reads as well, except for its words for
    // infinity, which begin with neither a digit nor a point.
    let is_number = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    let number = || text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Float));
    number().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_read_by_the_core_schema() {
        let text = |text: &str| Value::Text(text.to_owned());
        let cases = [
            ("on", text("on")),
            ("off", text("off")),
            ("yes", text("yes")),
            ("no", text("no")),
            ("true", Value::Bool(true)),
            ("~", Value::Null),
            ("012", Value::Integer(12)),
            ("0o14", Value::Integer(12)),
            ("0x1F", Value::Integer(31)),
            ("0x-1", text("0x-1")),
            ("+7", Value::Integer(7)),
            ("-7", Value::Integer(-7)),
            ("1_000", text("1_000")),
            ("1e3", Value::Float(1_000.0)),
            (".5", Value::Float(0.5)),
            (".", text(".")),
            ("-.inf", Value::Float(f64::NEG_INFINITY)),
            ("inf", text("inf")),
            ("infinity", text("infinity")),
            ("nan", text("nan")),
            ("1:30", text("1:30")),
            ("99999999999999999999", Value::Float(99_999_999_999_999_999_999.0)),
        ];
        for (written, value) in cases {
            assert_eq!(scalar(written, ScalarStyle::Plain), value, "{written}");
            assert_eq!(scalar(written, ScalarStyle::DoubleQuoted), text(written));
        }
    }

    #[test]
    fn aliases_are_written_out_and_bounded() {
        let node = parse("a: &x [1, {b: 2}]\nc: *x\n").unwrap();
        let Value::Table(entries) = node.value else { panic!("a table") };
        assert_eq!(entries[0].node, entries[1].node);

        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            laughs.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert!(parse(&laughs).unwrap_err().to_string().contains("too many values"));
        let mut tower = "a0: &a0 [x]\n".to_owned();
        (1..100).for_each(|level| tower.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1)));
        assert!(parse(&tower).unwrap_err().to_string().contains("nested too deep"));
        assert!(parse("a: &x [*x]").unwrap_err().to_string().contains("within what it stands for"));
    }
}
