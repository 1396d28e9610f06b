//! A policy document as one tree, whatever it was written in.
//!
//! TOML, YAML and JSON become the same [`Node`]s, which know where they stand,
//! so that what is wrong with a value can be told with its line. A document
//! that comes from elsewhere (a database) is built from the same nodes without
//! places. What the fields mean is not known here; `spec` knows it.
//!
//! Every document is bounded before and while it is read: [`BYTES_MAX`],
//! [`DEPTH_MAX`], [`NODES_MAX`]. A YAML alias counts as much as what it repeats.

mod json;
mod lines;
#[cfg(feature = "policy")]
mod toml;
#[cfg(feature = "policy")]
mod yaml;

use std::fmt;
use std::path::Path;

use self::lines::Lines;
use super::problem::{Problem, Problems};

/// The largest document, in bytes: what a MongoDB document can hold.
pub const BYTES_MAX: usize = 16 << 20;
/// How deep lists and tables may be nested. Policies need seven.
pub const DEPTH_MAX: usize = 32;
/// How many values a document may hold, aliases written out.
pub const NODES_MAX: usize = 1_000_000;

/// What a document is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// TOML 1.1.
    Toml,
    /// YAML 1.2, core schema: `on` and `off` are words, not booleans.
    Yaml,
    /// JSON as RFC 8259 has it, without extensions.
    Json,
}

impl Format {
    /// The format that the ending of a file's name stands for.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "toml" => Some(Format::Toml),
            "yaml" | "yml" => Some(Format::Yaml),
            "json" => Some(Format::Json),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Toml => "TOML",
            Format::Yaml => "YAML",
            Format::Json => "JSON",
        })
    }
}

/// A line and a column, both counted from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line; 0 if the value was not read from text.
    pub line: u32,
    /// The column; 0 if the value was not read from text.
    pub column: u32,
}

impl Place {
    /// The place of what was not read from text.
    pub const UNKNOWN: Place = Place { line: 0, column: 0 };

    /// Whether it is a place in a text.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.line > 0
    }
}

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it begins.
    pub at: Place,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing: `null`.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number, also a whole one beyond 64 bits.
    Float(f64),
    /// A text.
    Text(String),
    /// A date or an instant, in words.
    Date(String),
    /// Values in order.
    List(Vec<Node>),
    /// Values by name, in the order in which they were written.
    Table(Vec<Entry>),
}

/// A named value of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The name.
    pub key: String,
    /// Where the name stands.
    pub at: Place,
    /// The value.
    pub node: Node,
}

impl Node {
    /// Reads a document; `source` is what problems call it (its file's name).
    ///
    /// # Errors
    /// If it is not text in this format, or beyond a bound.
    pub fn parse(source: &str, format: Format, document: &[u8]) -> Result<Self, Problems> {
        let parsed = within_bytes(document).and_then(utf8).map_err(|problem| vec![problem]);
        let parsed = parsed.and_then(|text| {
            // Editors on Windows begin a file so; it is not part of the text.
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            match format {
                #[cfg(feature = "policy")]
                Format::Toml => toml::parse(text),
                #[cfg(feature = "policy")]
                Format::Yaml => yaml::parse(text).map_err(|problem| vec![problem]),
                #[cfg(not(feature = "policy"))]
                Format::Toml | Format::Yaml => {
                    let expected = "JSON: TOML and YAML need the feature `policy` of the crate `ratekeeper`";
                    Err(vec![Problem::new(Place::UNKNOWN, "", format!("a document in {format}"), expected)])
                }
                Format::Json => json::parse(text).map_err(|problem| vec![problem]),
            }
        });
        parsed.map_err(|found| Problems::of(source, found))
    }

    /// Reads YAML whose plain values are texts, whatever they look like; only `null` is none.
    #[cfg(feature = "policy")]
    pub(super) fn parse_texts(source: &str, document: &[u8]) -> Result<Self, Problems> {
        let parsed = within_bytes(document).and_then(utf8);
        let parsed = parsed.and_then(|text| yaml::parse_texts(text.strip_prefix('\u{feff}').unwrap_or(text)));
        parsed.map_err(|problem| Problems::of(source, [problem]))
    }

    /// A table without places.
    pub fn table<K: Into<String>, V: Into<Node>>(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let entry = |(key, node): (K, V)| Entry { key: key.into(), at: Place::UNKNOWN, node: node.into() };
        Value::Table(entries.into_iter().map(entry).collect()).into()
    }

    /// A list without places.
    pub fn list<V: Into<Node>>(items: impl IntoIterator<Item = V>) -> Self {
        Value::List(items.into_iter().map(Into::into).collect()).into()
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, at: Place::UNKNOWN }
    }
}

impl From<&str> for Node {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned()).into()
    }
}

impl From<i64> for Node {
    fn from(number: i64) -> Self {
        Value::Integer(number).into()
    }
}

impl From<f64> for Node {
    fn from(number: f64) -> Self {
        Value::Float(number).into()
    }
}

impl From<bool> for Node {
    fn from(value: bool) -> Self {
        Value::Bool(value).into()
    }
}

fn within_bytes(document: &[u8]) -> Result<&[u8], Problem> {
    if document.len() <= BYTES_MAX {
        return Ok(document);
    }
    let got = format!("a document of {} bytes", document.len());
    Err(Problem::new(Place::UNKNOWN, "", got, format!("at most {BYTES_MAX} bytes")))
}

fn utf8(document: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(document).map_err(|error| {
        let (valid, rest) = document.split_at(error.valid_up_to());
        let valid = String::from_utf8_lossy(valid);
        let got = format!("the byte 0x{:02x}", rest.first().copied().unwrap_or_default());
        Problem::new(Lines::of(&valid).place(valid.len()), "", got, "text in UTF-8")
    })
}

/// A place; [`BYTES_MAX`] keeps both numbers within 32 bits.
fn place(line: usize, column: usize) -> Place {
    let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
    Place { line: number(line), column: number(column) }
}

/// What a document may still hold.
struct Budget {
    nodes: usize,
}

impl Budget {
    const fn new() -> Self {
        Self { nodes: NODES_MAX }
    }

    /// Takes `nodes` more, the deepest of them at `depth`.
    fn take(&mut self, nodes: usize, depth: usize, at: Place) -> Result<(), Problem> {
        if depth > DEPTH_MAX {
            let expected = format!("at most {DEPTH_MAX} lists and tables within one another");
            return Err(Problem::new(at, "", "a value nested too deep", expected));
        }
        self.nodes = self.nodes.checked_sub(nodes).ok_or_else(|| {
            let expected = format!("at most {NODES_MAX} values, aliases written out");
            Problem::new(at, "", "too many values", expected)
        })?;
        Ok(())
    }
}

#[cfg(test)]
#[cfg(feature = "policy")]
mod tests {
    use super::*;

    #[test]
    fn the_same_document_is_the_same_tree_in_every_format() {
        let plain = |format, text: &str| {
            let mut node = Node::parse("test", format, text.as_bytes()).unwrap();
            strip(&mut node);
            node
        };
        let toml = "\u{feff}a = 1\nb = 'x'\n[c]\nd = [true, 1.5, -2]\n[[e]]\nf = 'g'\n";
        let yaml = "a: 1\nb: x\nc:\n  d: [true, 1.5, -2]\ne:\n- f: g\n";
        let json = r#"{"a": 1, "b": "x", "c": {"d": [true, 1.5, -2]}, "e": [{"f": "g"}]}"#;
        let built = Node::table([
            ("a", Node::from(1)),
            ("b", "x".into()),
            ("c", Node::table([("d", Node::list([Node::from(true), 1.5.into(), (-2).into()]))])),
            ("e", Node::list([Node::table([("f", "g")])])),
        ]);
        for (format, text) in [(Format::Toml, toml), (Format::Yaml, yaml), (Format::Json, json)] {
            assert_eq!(plain(format, text), built, "{format}");
        }
    }

    fn strip(node: &mut Node) {
        node.at = Place::UNKNOWN;
        match &mut node.value {
            Value::List(items) => items.iter_mut().for_each(strip),
            Value::Table(entries) => entries.iter_mut().for_each(|entry| {
                entry.at = Place::UNKNOWN;
                strip(&mut entry.node);
            }),
            _ => {}
        }
    }
}
