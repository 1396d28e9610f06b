//! The value of a descriptor's entry as a configuration has it: any, exactly one, or one with wildcards.

use std::fmt::Write as _;

/// Words that stand for no field of their own in an expression.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Any,
    Exact(String),
    /// With one or more `*`, each for any text, also none.
    Glob(String),
}

impl Pattern {
    pub(super) fn of(value: &str) -> Self {
        match value {
            "" => Self::Any,
            _ if value.contains('*') => Self::Glob(value.to_owned()),
            _ => Self::Exact(value.to_owned()),
        }
    }

    /// Of the entries for one key, those of the lowest rank are tried first.
    pub(super) const fn rank(&self) -> u8 {
        match self {
            Self::Exact(_) => 0,
            Self::Glob(_) => 1,
            Self::Any => 2,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Any => "",
            Self::Exact(text) | Self::Glob(text) => text,
        }
    }

    /// Whether no value can match both.
    pub(super) fn is_apart_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(a), Self::Exact(b)) => a != b,
            (Self::Exact(text), Self::Glob(glob)) | (Self::Glob(glob), Self::Exact(text)) => {
                !matches(glob, text)
            }
            (Self::Glob(a), Self::Glob(b)) => {
                let start = |glob: &str| glob.split('*').next().unwrap_or_default().to_owned();
                let (a, b) = (start(a), start(b));
                !a.starts_with(&b) && !b.starts_with(&a)
            }
            _ => false,
        }
    }

    /// What holds of the value that an expression calls `fact`; nothing, if it may be any.
    pub(super) fn condition(&self, fact: &str) -> Option<String> {
        let glob = match self {
            Self::Any => return None,
            Self::Exact(text) => return Some(format!("{fact} == {}", literal(text))),
            Self::Glob(glob) => glob,
        };
        let pieces: Vec<&str> = glob.split('*').filter(|piece| !piece.is_empty()).collect();
        let call = |test: &str, piece: &str| Some(format!("{fact}.{test}({})", literal(piece)));
        match (&*pieces, glob.starts_with('*'), glob.ends_with('*')) {
            ([], ..) => None,
            ([piece], false, true) => call("startsWith", piece),
            ([piece], true, false) => call("endsWith", piece),
            ([piece], true, true) => call("contains", piece),
            _ => {
                let pieces: Vec<String> = glob.split('*').map(escaped).collect();
                call("matches", &format!("(?s)^{}$", pieces.join(".*")))
            }
        }
    }
}

/// Whether a text is what a pattern with `*` stands for.
fn matches(glob: &str, text: &str) -> bool {
    let mut pieces: Vec<&str> = glob.split('*').collect();
    let (Some(end), Some(start)) = (pieces.pop(), pieces.first().copied()) else { return false };
    let Some(rest) = text.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)) else { return false };
    // The earliest place for each piece leaves the most for the next.
    let found = pieces[1..].iter().try_fold(rest, |rest, piece| Some(rest.split_once(piece)?.1));
    found.is_some()
}

/// A text that stands for itself in a regular expression.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if "\\.+*?()|[]{}^$#&-~".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// A text in quotes, as an expression has it.
pub(super) fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for character in text.chars() {
        match character {
            '\'' | '\\' => literal.extend(['\\', character]),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            control if control.is_control() => {
                let written = write!(literal, "\\u{:04x}", u32::from(control));
                debug_assert!(written.is_ok(), "a String takes everything");
            }
            other => literal.push(other),
        }
    }
    literal.push('\'');
    literal
}

/// What an expression calls the value of a descriptor's entry.
pub(super) fn fact(key: &str) -> String {
    let is_name = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && !RESERVED.contains(&key);
    if is_name { format!("descriptor.{key}") } else { format!("descriptor[{}]", literal(key)) }
}

/// What a template calls it, with the key before it if that can stand there.
pub(super) fn labelled(key: &str) -> String {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'@' | b'/');
    if key.bytes().all(is_plain) { format!("{key}:{{descriptor.{key}}}") } else { placeholder(key) }
}

fn placeholder(key: &str) -> String {
    format!("{{descriptor['{key}']}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_any_text() {
        let cases = [
            ("*", "", true),
            ("*", "a", true),
            ("a*", "a", true),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("ab*ba", "aba", false),
            ("/v*/x/*", "/v1/x/y", true),
            ("/v*/x/*", "/v1/y/x", false),
            ("*b*b*", "abab", true),
            ("*b*b*", "aba", false),
            ("a**b", "ab", true),
        ];
        for (glob, text, expected) in cases {
            assert_eq!(matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn conditions_are_as_short_as_they_can_be() {
        let condition = |value: &str| Pattern::of(value).condition("x");
        assert_eq!(condition(""), None);
        assert_eq!(condition("**"), None);
        assert_eq!(condition("a'b\\c\n"), Some(r"x == 'a\'b\\c\n'".to_owned()));
        assert_eq!(condition("/files/*"), Some("x.startsWith('/files/')".to_owned()));
        assert_eq!(condition("a.b*c"), Some(r"x.matches('(?s)^a\\.b.*c$')".to_owned()));
        assert_eq!(condition("*.pdf"), Some("x.endsWith('.pdf')".to_owned()));
        assert_eq!(condition("*bot*"), Some("x.contains('bot')".to_owned()));
        assert_eq!(condition("/v*/x"), Some("x.matches('(?s)^/v.*/x$')".to_owned()));
    }
}
