//! From a document as the server sends it to a [`Node`], within bounds.

use ::mongodb::bson::{RawArray, RawBsonRef, RawDocument};

use crate::policy::document::{BYTES_MAX, DEPTH_MAX, Entry, NODES_MAX, Node, Place, Value};
use crate::policy::problem::{Problem, quoted};

const EXPECTED: &str = "a text, a number, a date, true, false, null, a list or a table";

/// The document as a tree, or the first thing that cannot be in a policy.
pub(super) fn node(document: &RawDocument) -> Result<Node, Problem> {
    let bytes = document.as_bytes().len();
    if bytes > BYTES_MAX {
        let (got, expected) = (format!("a document of {bytes} bytes"), format!("at most {BYTES_MAX} bytes"));
        return Err(Problem::new(Place::UNKNOWN, "", got, expected));
    }
    let mut reader = Reader { nodes: 0 };
    let read = reader.table(document, 1);
    read.map_err(|fault| Problem::new(Place::UNKNOWN, fault.path, fault.got, fault.expected))
}

/// What is wrong, and the way to it as far as it is known: each level puts itself in front.
struct Fault {
    path: String,
    got: String,
    expected: String,
}

impl Fault {
    fn new(got: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { path: String::new(), got: got.into(), expected: expected.into() }
    }

    fn garbled() -> Self {
        Self::new("bytes that are not BSON", "a document as MongoDB keeps it")
    }

    fn under_key(self, key: &str) -> Self {
        let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$');
        let is_bare = !key.is_empty() && key.len() <= 128 && key.bytes().all(bare);
        let key = if is_bare { key.to_owned() } else { quoted(key) };
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{key}{dot}{}", self.path), ..self }
    }

    fn under_index(self, index: usize) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("[{index}]{dot}{}", self.path), ..self }
    }
}

struct Reader {
    nodes: usize,
}

impl Reader {
    fn table(&mut self, document: &RawDocument, depth: usize) -> Result<Node, Fault> {
        self.take(depth)?;
        let mut entries = Vec::new();
        for element in document {
            let (key, value) = element.map_err(|_| Fault::garbled())?;
            let key = key.as_str();
            let node = self.value(&value, depth).map_err(|fault| fault.under_key(key))?;
            entries.push(Entry { key: key.to_owned(), at: Place::UNKNOWN, node });
        }
        Ok(Value::Table(entries).into())
    }

    fn list(&mut self, array: &RawArray, depth: usize) -> Result<Node, Fault> {
        self.take(depth)?;
        let mut items = Vec::new();
        for (index, value) in array.into_iter().enumerate() {
            let item = value.map_err(|_| Fault::garbled()).and_then(|value| self.value(&value, depth));
            items.push(item.map_err(|fault| fault.under_index(index))?);
        }
        Ok(Value::List(items).into())
    }

    /// The value of a field or an item within `depth` lists and tables.
    fn value(&mut self, value: &RawBsonRef<'_>, depth: usize) -> Result<Node, Fault> {
        let plain = match *value {
            RawBsonRef::Document(document) => return self.table(document, depth + 1),
            RawBsonRef::Array(array) => return self.list(array, depth + 1),
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => Value::Text(text.to_owned()),
            RawBsonRef::Boolean(value) => Value::Bool(value),
            RawBsonRef::Null | RawBsonRef::Undefined => Value::Null,
            RawBsonRef::Int32(number) => Value::Integer(number.into()),
            RawBsonRef::Int64(number) => Value::Integer(number),
            RawBsonRef::Double(number) if number.is_finite() => Value::Float(number),
            RawBsonRef::Double(number) => return Err(Fault::new(number.to_string(), "a finite number")),
            RawBsonRef::Decimal128(number) => {
                let whole = number.to_string().parse();
                Value::Integer(whole.map_err(|_| Fault::new(format!("the decimal {number}"), EXPECTED))?)
            }
            RawBsonRef::DateTime(date) => Value::Date(words(date)),
            RawBsonRef::Timestamp(stamp) => {
                let millis = i64::from(stamp.time) * 1_000;
                Value::Date(words(::mongodb::bson::DateTime::from_millis(millis)))
            }
            _ => return Err(Fault::new(kind(value), EXPECTED)),
        };
        self.take(depth)?;
        Ok(plain.into())
    }

    fn take(&mut self, depth: usize) -> Result<(), Fault> {
        self.nodes += 1;
        if depth > DEPTH_MAX {
            let expected = format!("at most {DEPTH_MAX} lists and tables within one another");
            return Err(Fault::new("a value nested too deep", expected));
        }
        if self.nodes > NODES_MAX {
            return Err(Fault::new("too many values", format!("at most {NODES_MAX} values")));
        }
        Ok(())
    }
}

/// A date in words; of one that has none, its number.
fn words(date: ::mongodb::bson::DateTime) -> String {
    let number = || format!("{} ms after 1970", date.timestamp_millis());
    date.try_to_rfc3339_string().unwrap_or_else(|_| number())
}

fn kind(value: &RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Binary(_) => "binary data",
        RawBsonRef::ObjectId(_) => "an object id",
        RawBsonRef::RegularExpression(_) => "a regular expression",
        RawBsonRef::JavaScriptCode(_) | RawBsonRef::JavaScriptCodeWithScope(_) => "JavaScript",
        RawBsonRef::MinKey | RawBsonRef::MaxKey => "a smallest or largest key",
        RawBsonRef::DbPointer(_) => "a pointer",
        _ => "a value of an unknown type",
    }
}

#[cfg(test)]
mod tests {
    use ::mongodb::bson::oid::ObjectId;
    use ::mongodb::bson::spec::BinarySubtype;
    use ::mongodb::bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, Regex, Timestamp, cstr, doc};

    use super::*;

    fn read(document: &Document) -> Result<Node, String> {
        let raw = RawDocumentBuf::try_from(document).unwrap();
        node(&raw).map_err(|problem| problem.to_string())
    }

    #[test]
    fn values_are_taken_as_people_and_programs_store_them() {
        let date = DateTime::from_millis(1_760_106_180_000);
        let stored = doc! {
            "text": "x", "int": 5, "long": 5_i64, "double": 20.0, "none": Bson::Null, "flag": true,
            "decimal": "12".parse::<::mongodb::bson::Decimal128>().unwrap(),
            "date": date, "stamp": Timestamp { time: 1_760_106_180, increment: 3 },
            "far": DateTime::MAX, "list": [1, { "a": "b" }], "empty": {},
        };
        let instant = || Node::from(Value::Date("2025-10-10T14:23:00Z".to_owned()));
        let far = Value::Date("9999-12-31T23:59:59.999999999Z".to_owned());
        let expected = Node::table([
            ("text", Node::from("x")),
            ("int", 5.into()),
            ("long", 5.into()),
            ("double", 20.0.into()),
            ("none", Value::Null.into()),
            ("flag", true.into()),
            ("decimal", 12.into()),
            ("date", instant()),
            ("stamp", instant()),
            ("far", far.into()),
            ("list", Node::list([Node::from(1), Node::table([("a", "b")])])),
            ("empty", Node::table::<&str, Node>([])),
        ]);
        assert_eq!(read(&stored), Ok(expected));
    }

    #[test]
    fn what_no_policy_holds_is_told_with_its_field() {
        let binary = Binary { subtype: BinarySubtype::Generic, bytes: vec![1] };
        let regex = Regex { pattern: cstr!("x").to_owned(), options: cstr!("").to_owned() };
        let cases = [
            (doc! { "rules": [{}, { "when": binary }] }, ": rules[1].when: got binary data; expected a text"),
            (doc! { "a": { "user:1": ObjectId::from_bytes([0; 12]) } }, ": a.\"user:1\": got an object id;"),
            (doc! { "a": [[regex]] }, ": a[0][0]: got a regular expression;"),
            (doc! { "a": f64::NAN }, ": a: got NaN; expected a finite number"),
            (doc! { "a": Bson::JavaScriptCode("x".into()) }, ": a: got JavaScript;"),
            (doc! { "a": Bson::MinKey }, ": a: got a smallest or largest key;"),
        ];
        for (document, expected) in cases {
            let problem = read(&document).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    #[test]
    fn documents_are_bounded() {
        let nested = |depth| (1..depth).fold(doc! { "a": 1 }, |inner, _| doc! { "a": inner });
        assert!(read(&nested(DEPTH_MAX)).is_ok());
        let problem = read(&nested(DEPTH_MAX + 1)).unwrap_err();
        assert!(problem.contains("a value nested too deep"), "{problem}");
        let many = vec![Bson::Null; NODES_MAX];
        assert!(read(&doc! { "a": many }).unwrap_err().contains(": a[999998]: got too many values"));
        let large = doc! { "a": "x".repeat(BYTES_MAX) };
        assert!(read(&large).unwrap_err().contains("expected at most 16777216 bytes"));
    }

    #[test]
    fn bytes_that_are_not_bson_are_no_panic() {
        // A text that is not UTF-8, and one that claims to be longer than the document.
        for broken in
            [&b"\x10\0\0\0\x02a\0\x04\0\0\0\xff\xff\xff\0\0"[..], &b"\x10\0\0\0\x02a\0\x40\0\0\0abc\0\0"[..]]
        {
            let document = RawDocument::from_bytes(broken).unwrap();
            let problem = node(document).unwrap_err();
            assert_eq!(problem.got, "bytes that are not BSON");
        }
    }
}
