//! Whatever is in a document, reading it ends, and with a policy or problems.

use proptest::prelude::*;
use ratekeeper::bounds::BYTES_MAX;
use ratekeeper::policy::{Format, Node, PolicySpec, Value};
use serde_json::Value as Json;

const FORMATS: [Format; 3] = [Format::Toml, Format::Yaml, Format::Json];

fn read(document: &[u8]) {
    for format in FORMATS {
        if let Err(problems) = PolicySpec::read("any", format, document) {
            assert!(problems.count() > 0);
            assert!(problems.to_string().lines().all(|line| line.starts_with("any:")), "{problems}");
        }
    }
}

/// Words that documents consist of, to get further than noise does.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "[[rules]]\n",
        ":",
        ": ",
        ",",
        "\n",
        "\n  ",
        "- ",
        "=",
        "\"",
        "'",
        "'''",
        "|\n",
        ">-\n",
        "&a ",
        "*a",
        "!t ",
        "? ",
        "---\n",
        "%YAML 1.2\n",
        "#",
        ".",
        "service",
        "rules",
        "name",
        "quota",
        "\"100/60s\"",
        "null",
        "true",
        "1",
        "-5",
        "1e9",
        "0x1f",
        "99999999999999999999",
        "\\u00",
        "\\",
        "\t",
        "\r\n",
        "\u{feff}",
        "\u{2028}",
        "\0",
        "\u{e9}",
        "<<",
        "2024-01-01",
        "nan",
        "inf",
    ]);
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

/// Documents that grow without end in one direction each. A parser that walks
/// them again and again, or down the stack, does not get through this.
#[test]
fn documents_made_to_be_slow() {
    const BYTES: usize = 1 << 18;
    let pieces = [
        "[", "{", "a.", "[a.", "{a=", "{a: ", "[a: ", "- ", "? ", "\"a\":", "{\"a\":", "\"", "'", "!", "&a ",
        "*a ", "|\n", ">\n", "a", "a b ", "\n", "#\n", "---\n", "\t", "[[a]]\n", "[a]\n", "- x\n", "x: y\n",
        "x = 1\n", "\"a\", ", "[1,", "1.", "\\u", "- &a\n", "a: &a\n", " a:\n", "'''\n",
    ];
    for piece in pieces {
        let text = piece.repeat(BYTES / piece.len());
        read(text.as_bytes());
        read(format!("[{text}]").as_bytes());
        read(format!("a = [{text}").as_bytes());
    }
}

#[test]
fn a_document_that_is_too_large_is_not_read() {
    let document = vec![b' '; BYTES_MAX + 1];
    for format in FORMATS {
        let problems = PolicySpec::read("any", format, &document).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "any: got a document of 16777217 bytes; expected at most 16777216 bytes"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn bytes(document in prop::collection::vec(any::<u8>(), 0..200)) {
        read(&document);
    }

    #[test]
    fn text(document in any::<String>()) {
        read(document.as_bytes());
    }

    #[test]
    fn almost_documents(document in words()) {
        read(document.as_bytes());
    }

    /// Every example with a piece of it replaced by something else.
    #[test]
    fn broken_examples(example in 0..100_usize, from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), piece in words()) {
        let examples = crate::policies("examples/policies");
        let path = &examples[example % examples.len()];
        let text = std::fs::read_to_string(path).unwrap();
        let (from, to) = (from.index(text.len()), to.index(text.len()));
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 60));
        let (Some(head), Some(tail)) = (text.get(..from), text.get(to..)) else { return Ok(()) };
        let broken = format!("{head}{piece}{tail}");
        read(broken.as_bytes());
    }

    /// JSON is what `serde_json` takes for JSON, and means the same.
    #[test]
    fn json_is_what_others_take_for_json(
        json in json(),
        at in any::<prop::sample::Index>(),
        piece in prop_oneof![Just(String::new()), words()],
    ) {
        let text = json.to_string();
        let at = at.index(text.len() + 1);
        // A mark that editors write before a text is allowed here and not there.
        let piece = piece.replace('\u{feff}', "");
        let (Some(head), Some(tail)) = (text.get(..at), text.get(at..)) else { return Ok(()) };
        let document = format!("{head}{piece}{tail}");
        let ours = Node::parse("any", Format::Json, document.as_bytes());
        let theirs = serde_json::from_str::<Json>(&document);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?}: {:?} {:?}", document, ours.err(), theirs.err());
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert!(is_same(&ours, &theirs), "{}", document);
        }
    }
}

fn json() -> impl Strategy<Value = Json> {
    let scalar = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1e9..1e9).prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    scalar.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

fn is_same(ours: &Node, theirs: &Json) -> bool {
    match (&ours.value, theirs) {
        (Value::Null, Json::Null) => true,
        (Value::Bool(ours), Json::Bool(theirs)) => ours == theirs,
        (Value::Integer(ours), Json::Number(theirs)) => theirs.as_i64() == Some(*ours) || *ours == 0,
        // The last bit of a float is the business of whoever reads it.
        (Value::Float(ours), Json::Number(theirs)) => {
            theirs.as_f64().is_some_and(|theirs| (ours - theirs).abs() <= ours.abs() * 1e-15)
        }
        (Value::Text(ours), Json::String(theirs)) => ours == theirs,
        (Value::List(ours), Json::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| is_same(ours, theirs))
        }
        // Of a name that is there twice, the last one counts there.
        (Value::Table(ours), Json::Object(theirs)) => theirs.iter().all(|(key, theirs)| {
            let last = ours.iter().rfind(|entry| entry.key == *key);
            last.is_some_and(|entry| is_same(&entry.node, theirs))
        }),
        _ => false,
    }
}
