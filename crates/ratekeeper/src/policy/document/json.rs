//! JSON as RFC 8259 has it, read here: one page of grammar. The parsers that
//! keep places are made for other dialects (comments, trailing commas, control
//! characters in texts) or no longer maintained. This one gives up at the first
//! error, and a test holds it to what `serde_json` accepts.

use super::lines::Lines;
use super::{Budget, Entry, Node, Place, Value};
use crate::policy::problem::Problem;

pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let mut reader = Reader { text, offset: 0, lines: Lines::of(text), budget: Budget::new() };
    let node = reader.node(0)?;
    reader.space();
    if reader.offset < text.len() {
        return Err(reader.wrong("nothing after the value"));
    }
    Ok(node)
}

struct Reader<'t> {
    text: &'t str,
    offset: usize,
    lines: Lines<'t>,
    budget: Budget,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.offset..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn at(&self) -> Place {
        self.lines.place(self.offset)
    }

    fn wrong(&self, expected: &str) -> Problem {
        Problem::new(self.at(), "", "text that is not JSON", expected)
    }

    fn space(&mut self) {
        self.offset += self.rest().bytes().take_while(|byte| b" \t\r\n".contains(byte)).count();
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.offset += if found { word.len() } else { 0 };
        found
    }

    fn expect(&mut self, word: &str, expected: &str) -> Result<(), Problem> {
        if self.eat(word) { Ok(()) } else { Err(self.wrong(expected)) }
    }

    /// The value that comes next, within `depth` lists and tables.
    fn node(&mut self, depth: usize) -> Result<Node, Problem> {
        self.space();
        let (at, first) = (self.at(), self.peek());
        let depth = depth + usize::from(matches!(first, Some(b'{' | b'[')));
        self.budget.take(1, depth, at)?;
        let value = match first {
            Some(b'{') => Value::Table(self.table(depth)?),
            Some(b'[') => Value::List(self.list(depth)?),
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ if self.eat("true") => Value::Bool(true),
            _ if self.eat("false") => Value::Bool(false),
            _ if self.eat("null") => Value::Null,
            _ => return Err(self.wrong("a value; texts stand in double quotes")),
        };
        Ok(Node { value, at })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Problem> {
        self.offset += 1;
        let mut items = Vec::new();
        self.space();
        if self.eat("]") {
            return Ok(items);
        }
        loop {
            items.push(self.node(depth)?);
            self.space();
            if self.eat("]") {
                return Ok(items);
            }
            self.expect(",", "`,` or `]` after a value of a list")?;
        }
    }

    fn table(&mut self, depth: usize) -> Result<Vec<Entry>, Problem> {
        self.offset += 1;
        let mut entries = Vec::new();
        self.space();
        if self.eat("}") {
            return Ok(entries);
        }
        loop {
            self.space();
            let at = self.at();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a name in double quotes"));
            }
            let key = self.string()?;
            self.space();
            self.expect(":", "`:` after a name")?;
            entries.push(Entry { key, at, node: self.node(depth)? });
            self.space();
            if self.eat("}") {
                return Ok(entries);
            }
            self.expect(",", "`,` or `}` after a value of a table")?;
        }
    }

    fn number(&mut self) -> Result<Value, Problem> {
        let start = self.offset;
        self.eat("-");
        if !self.eat("0") {
            self.digits()?;
        }
        if self.eat(".") {
            self.digits()?;
        }
        if self.eat("e") || self.eat("E") {
            let _ = self.eat("+") || self.eat("-");
            self.digits()?;
        }
        let text = &self.text[start..self.offset];
        if let Ok(integer) = text.parse() {
            return Ok(Value::Integer(integer));
        }
        let float = text.parse().ok().filter(|float: &f64| float.is_finite());
        float.map(Value::Float).ok_or_else(|| self.wrong("a number of a sensible size"))
    }

    fn digits(&mut self) -> Result<(), Problem> {
        let count = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.offset += count;
        if count == 0 { Err(self.wrong("a digit")) } else { Ok(()) }
    }

    /// The text whose opening quote comes next.
    fn string(&mut self) -> Result<String, Problem> {
        self.offset += 1;
        let mut string = String::new();
        loop {
            let plain = self.rest().find(|c: char| c == '"' || c == '\\' || c < ' ');
            let plain = plain.unwrap_or(self.rest().len());
            string.push_str(&self.rest()[..plain]);
            self.offset += plain;
            match self.peek() {
                Some(b'"') => {
                    self.offset += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                Some(_) => return Err(self.wrong("`\\n`, `\\t` or `\\u...` for a control character")),
                None => return Err(self.wrong("`\"` at the end of a text")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Problem> {
        let escape = self.text.as_bytes().get(self.offset + 1).copied();
        let character = match escape {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => {
                return Err(
                    self.wrong("one of `\\\"`, `\\\\`, `\\/`, `\\b`, `\\f`, `\\n`, `\\r`, `\\t`, `\\u`")
                );
            }
        };
        self.offset += 2;
        Ok(character)
    }

    /// `\uXXXX`, or two of them for a character beyond 16 bits.
    fn unicode(&mut self) -> Result<char, Problem> {
        let unit = |offset: usize| {
            let digits = self.text.get(offset..)?.strip_prefix("\\u")?.get(..4)?;
            digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(digits)?;
            u16::from_str_radix(digits, 16).ok()
        };
        let first = unit(self.offset).ok_or_else(|| self.wrong("four hexadecimal digits after `\\u`"))?;
        let second = unit(self.offset + 6).filter(|_| (0xd800..0xdc00).contains(&first));
        let units = std::iter::once(first).chain(second);
        let character = char::decode_utf16(units).next().and_then(Result::ok);
        let character = character.ok_or_else(|| self.wrong("both halves of a surrogate pair"))?;
        self.offset += if second.is_some() { 12 } else { 6 };
        Ok(character)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_are_read_exactly() {
        let text = |text: &str| Value::Text(text.to_owned());
        let cases = [
            (r#""\ud83d\ude00\/\b\u00e9 \"""#, text("\u{1f600}/\u{8}\u{e9} \"")),
            ("-0", Value::Integer(0)),
            ("1e5", Value::Float(100_000.0)),
            (" \r\n\t-12.5 ", Value::Float(-12.5)),
            ("99999999999999999999", Value::Float(99_999_999_999_999_999_999.0)),
        ];
        for (written, value) in cases {
            assert_eq!(parse(written).unwrap().value, value, "{written}");
        }
    }

    #[test]
    fn only_json_is_json() {
        let wrong = [
            "",
            " ",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "[,1]",
            "{,}",
            "01",
            "-",
            "1.",
            ".5",
            "+1",
            "1e",
            "0x1",
            "NaN",
            "'a'",
            "\"a\nb\"",
            "\"a\tb\"",
            "\"\\x41\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\"\\u+123\"",
            "\"\\u12\"",
            "tru",
            "nulll",
            "{a:1}",
            "{1:1}",
            "{\"a\"}",
            "{\"a\":}",
            "[",
            "{",
            "\"",
            "[1]]",
            "1 2",
            "// c\n1",
            "1 /*c*/",
            "\u{a0}1",
            "\u{c}1",
            "\"\u{0}\"",
            "{\"a\" 1}",
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
