//! From the text of a template to its parts.

use super::escape::Plain;
use super::{Part, TEMPLATE_BYTES_MAX};
use crate::policy::problem::quoted;
use crate::policy::request::Fact;
use crate::policy::syntax::SyntaxError;

/// The parts of a template, and where each begins.
pub(super) fn parts(text: &str) -> Result<Vec<(Part, usize)>, SyntaxError> {
    let wrong = |offset, got: String, expected: &str| Err(SyntaxError::new(text, offset, got, expected));
    if text.is_empty() || text.len() > TEMPLATE_BYTES_MAX {
        let expected = format!("1 to {TEMPLATE_BYTES_MAX} bytes, such as `user:{{identity.user}}`");
        return wrong(0, format!("{} bytes", text.len()), &expected);
    }
    let mut parts = Vec::new();
    let (mut literal, mut literal_at) = (String::new(), 0);
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            literal.push(next);
            at += 2;
        } else if next == '{' {
            let Some(length) = rest.find('}') else {
                return wrong(at, "`{` without `}`".to_owned(), "`}` behind the name, or `{{` for a brace");
            };
            if !literal.is_empty() {
                parts.push((Part::Literal(std::mem::take(&mut literal).into()), literal_at));
            }
            parts.push((Part::Value(placeholder(text, at + 1, &rest[1..length])?), at));
            at += length + 1;
            literal_at = at;
        } else if next == '}' {
            return wrong(at, "`}` without `{`".to_owned(), "`}}` for a brace");
        } else if next == '#' {
            return wrong(at, "`#`".to_owned(), "another character: `#` marks a digest");
        } else if next.is_control() {
            return wrong(at, quoted(&next.to_string()), "no control characters");
        } else {
            literal.push(next);
            at += next.len_utf8();
        }
    }
    if !literal.is_empty() {
        parts.push((Part::Literal(literal.into()), literal_at));
    }
    Ok(parts)
}

fn placeholder(text: &str, at: usize, name: &str) -> Result<Fact, SyntaxError> {
    if name.trim() != name {
        let expected = format!("`{}`, without spaces", name.trim());
        return Err(SyntaxError::new(text, at, quoted(name), expected));
    }
    let (namespace, name) = match (in_brackets(name), name.split_once('.')) {
        (Some((namespace, name)), _) | (None, Some((namespace, name))) => (namespace, Some(name)),
        (None, None) => (name, None),
    };
    let fact = Fact::named(text, at, namespace, name)?;
    if fact == Fact::ClientAddress {
        return Err(SyntaxError::new(text, at, "`client.address`", "`client.ip`: IPv6 counts by network"));
    }
    Ok(fact)
}

/// `descriptor['a.b']`, as expressions have it: the namespace and the name.
fn in_brackets(text: &str) -> Option<(&str, &str)> {
    let (namespace, rest) = text.split_once('[')?;
    let quoted = rest.strip_suffix(']')?;
    let within = |quote: char| quoted.strip_prefix(quote)?.strip_suffix(quote);
    let name = within('\'').or_else(|| within('"'))?;
    // A body has names within names, which dots are between.
    (!namespace.contains('.') && namespace != "body").then_some((namespace, name))
}

const NOT_PERCENT: &str = "something that separates two values, such as `:`; `%` is in escaped values too";

/// The characters that values keep, so that those of this template can be told
/// apart: whatever separates two values must not occur in either.
pub(super) fn separated(text: &str, parts: &[(Part, usize)]) -> Result<Plain, SyntaxError> {
    let mut plain = Plain::default();
    let expected = "something that separates two values, such as `:`";
    for window in parts.windows(3) {
        let [(Part::Value(_), _), (Part::Literal(between), at), (Part::Value(_), _)] = window else {
            continue;
        };
        // Escaped values are full of `%`, so it separates nothing.
        if between.bytes().any(|byte| byte.is_ascii() && byte != b'%' && !plain.keeps(byte)) {
            continue;
        }
        let Some(separator) = between.bytes().find(|byte| byte.is_ascii_punctuation() && *byte != b'%')
        else {
            let expected = if between.contains('%') { NOT_PERCENT } else { expected };
            return Err(SyntaxError::new(text, *at, quoted(between), expected));
        };
        plain.drop(separator);
    }
    for window in parts.windows(2) {
        if let [(Part::Value(_), _), (Part::Value(_), at)] = window {
            return Err(SyntaxError::new(text, *at, "two values side by side", expected));
        }
    }
    Ok(plain)
}
