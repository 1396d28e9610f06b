//! Conditions of Limitador: `descriptors[0]['k'] == 'v'` and the older `k == v`, and as much of CEL as means the same
//! here.
//!
//! In Limitador, a condition about an entry that is not there does not hold. Here, `!=` and most others hold of
//! what is absent, so they are asked together with whether the entry is there. That says the same only where nothing
//! makes up for an absence, so `||`, `?:` and `has()` are not converted.

use crate::policy::problem::{Problem, quoted};
use crate::policy::spec::import::pattern::{fact, literal};

/// What may stand there.
const A_CONDITION: &str = "`descriptors[0]['key'] == 'value'`, `!=`, or several of them with `&&`";
/// What makes up for an absence.
const NOT_CONVERTED: [&str; 9] =
    ["||", "?", "has(", "limit.", ".all(", ".exists(", ".exists_one(", ".filter(", ".map("];

/// One condition, in our words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    text: String,
}

impl Test {
    pub(super) fn text(&self) -> String {
        self.text.clone()
    }

    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let text = text.trim();
        let parts: Option<Vec<String>> = split_outside(text, "&&").into_iter().map(comparison).collect();
        if let Some(parts) = parts {
            return Ok(Self { text: parts.join(" && ") });
        }
        other_index(text)?;
        Ok(Self { text: any_expression(text)? })
    }
}

/// The key of a variable.
pub(super) fn variable(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    other_index(text)?;
    let key = reference(text).ok_or_else(|| {
        Problem::of(quoted(text), "a key such as \"user_id\" or \"descriptors[0]['user_id']\"")
    })?;
    if key.contains(['}', '{']) || key.chars().any(char::is_control) {
        return Err(Problem::of(quoted(&key), "a key without braces and without control characters"));
    }
    Ok(key)
}

/// A rule sees one descriptor at a time.
fn other_index(text: &str) -> Result<(), Problem> {
    for piece in split_outside(text, "descriptors[").iter().skip(1) {
        if !piece.starts_with("0]") {
            let got = format!("`descriptors[{}`", piece.chars().take(8).collect::<String>());
            let expected = "`descriptors[0]` only: a rule sees one descriptor of a call at a time";
            return Err(Problem::of(got, expected));
        }
    }
    Ok(())
}

/// `descriptors[0]['k'] == 'v'`, `k == 'v'`, `k == v`, and the same with `!=`, in our words.
fn comparison(text: &str) -> Option<String> {
    for operator in ["==", "!="] {
        let sides = split_outside(text, operator);
        let [left, right] = *sides else { continue };
        let fact = fact(&reference(left.trim())?);
        let value = value(right.trim())?;
        let compared = format!("{fact} {operator} {}", literal(&value));
        return Some(if operator == "!=" { format!("{fact} != null && {compared}") } else { compared });
    }
    None
}

/// The key that is referred to: `k`, `descriptors[0].k` or `descriptors[0]['k']`.
fn reference(text: &str) -> Option<String> {
    let Some(rest) = text.strip_prefix("descriptors[0]") else {
        // What the oldest version took for a key: anything without an operator in it.
        let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.:/@".contains(c) || !c.is_ascii();
        return (!text.is_empty() && text.chars().all(is_key)).then(|| text.to_owned());
    };
    if let Some(name) = rest.strip_prefix('.') {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        return (!name.is_empty() && name.chars().all(is_name)).then(|| name.to_owned());
    }
    in_quotes(rest.strip_prefix('[')?.strip_suffix(']')?.trim())
}

/// A value in quotes; the older syntax has it without.
fn value(text: &str) -> Option<String> {
    let is_bare = |c: char| c.is_alphanumeric() || "_-./:@".contains(c);
    in_quotes(text).or_else(|| (!text.is_empty() && text.chars().all(is_bare)).then(|| text.to_owned()))
}

/// The text of a literal, unless there is more in it than a plain text.
fn in_quotes(text: &str) -> Option<String> {
    let within =
        |quote: char| text.strip_prefix(quote)?.strip_suffix(quote).filter(|text| !text.contains(quote));
    let found = within('\'').or_else(|| within('"')).filter(|_| text.len() >= 2)?;
    (!found.contains('\\')).then(|| found.to_owned())
}

/// Any other expression, with its references in our words and a look whether all are there.
fn any_expression(text: &str) -> Result<String, Problem> {
    let code = outside_quotes(text);
    if let Some(found) = NOT_CONVERTED.iter().find(|word| code.contains(*word)) {
        let got = format!("`{found}` in a condition, which means something else where an entry is absent");
        return Err(Problem::of(got, A_CONDITION));
    }
    let pieces = split_outside(text, "descriptors[0]");
    let Some((start, pieces)) = pieces.split_first().filter(|(_, pieces)| !pieces.is_empty()) else {
        return Err(Problem::of(quoted(text), A_CONDITION));
    };
    let (mut converted, mut keys) = ((*start).to_owned(), Vec::new());
    for piece in pieces {
        let (key, rest) = leading_key(piece).ok_or_else(|| Problem::of(quoted(text), A_CONDITION))?;
        converted.push_str(&fact(&key));
        converted.push_str(rest);
        let there = format!("{} != null", fact(&key));
        if !keys.contains(&there) {
            keys.push(there);
        }
    }
    Ok(format!("{} && ({converted})", keys.join(" && ")))
}

/// The key that a reference goes on with, and what follows.
fn leading_key(piece: &str) -> Option<(String, &str)> {
    if let Some(rest) = piece.strip_prefix('.') {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        return (end > 0).then(|| (rest[..end].to_owned(), &rest[end..]));
    }
    let end = piece.find(']')?;
    Some((in_quotes(piece.strip_prefix('[')?.get(..end - 1)?.trim())?, &piece[end + 1..]))
}

/// The text with what stands in quotes blanked out, byte for byte.
fn outside_quotes(text: &str) -> String {
    let mut within = None;
    let mut is_escaped = false;
    let blank = text.chars().map(|character| {
        let was_within = within;
        match within {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if character == '\\' => is_escaped = true,
            Some(quote) if character == quote => within = None,
            None if matches!(character, '\'' | '"') => within = Some(character),
            _ => {}
        }
        if was_within.is_some() { "\u{0}".repeat(character.len_utf8()) } else { character.to_string() }
    });
    blank.collect()
}

/// The pieces between occurrences of a word, unless these are in quotes.
fn split_outside<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
    let code = outside_quotes(text);
    let mut pieces = Vec::new();
    let mut from = 0;
    for (at, _) in code.match_indices(word) {
        pieces.push(&text[from..at]);
        from = at + word.len();
    }
    pieces.push(&text[from..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_mean_the_same_here() {
        let cases = [
            ("descriptors[0]['req.method'] == 'GET'", "descriptor['req.method'] == 'GET'"),
            (r#"descriptors[0]["k"] == "it's""#, r"descriptor.k == 'it\'s'"),
            ("descriptors[0].plan != 'free'", "descriptor.plan != null && descriptor.plan != 'free'"),
            ("req_method == POST", "descriptor.req_method == 'POST'"),
            ("x-user == 'a == b'", "descriptor['x-user'] == 'a == b'"),
            (
                "descriptors[0].a == '1' && descriptors[0].b == '2'",
                "descriptor.a == '1' && descriptor.b == '2'",
            ),
            (
                "descriptors[0]['path'].startsWith('/descriptors[0]')",
                "descriptor.path != null && (descriptor.path.startsWith('/descriptors[0]'))",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(Test::parse(text).unwrap().text(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_said_here_is_refused() {
        let cases = [
            "descriptors[1]['k'] == 'v'",
            "descriptors[0].a == '1' || descriptors[0].b == '2'",
            "has(descriptors[0].a)",
            "a < 3",
            "true",
            "descriptors[0]",
            "",
        ];
        for text in cases {
            assert!(Test::parse(text).is_err(), "{text}");
        }
        assert_eq!(variable("descriptors[0]['user_id']").unwrap(), "user_id");
        assert_eq!(variable("user_id").unwrap(), "user_id");
        assert!(variable("descriptors[1].user_id").is_err());
        assert!(variable("a b").is_err());
    }
}
