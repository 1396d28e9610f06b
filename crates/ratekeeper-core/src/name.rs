//! Names of rules and quotas: interned, so that a decision can carry them
//! without allocating or counting references.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::error::{Field, InvalidInput};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// How many different names one process may use.
///
/// Names come from operators (rules, quotas), never from requests. They are
/// kept for the life of the process, which is what makes them free to copy;
/// this bound keeps a reload loop that invents names from eating memory.
pub const NAMES_MAX: usize = 100_000;

/// The name of a rule, of a quota, or of a quota within a rule (`api.rpm`).
///
/// Printable ASCII, so that it can stand in a header field; copying one costs
/// nothing.
#[derive(Clone, Copy)]
pub struct Name(&'static Entry);

struct Entry {
    text: Box<str>,
    id: u64,
}

impl Name {
    /// The name `text`.
    ///
    /// # Errors
    /// If `text` is empty, longer than [`NAME_BYTES_MAX`], not printable
    /// ASCII, or if the process has used up [`NAMES_MAX`] names.
    pub fn new(text: &str) -> Result<Self, InvalidInput> {
        let printable = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if text.is_empty() || text.len() > NAME_BYTES_MAX || !printable {
            let expected = format!("1 to {NAME_BYTES_MAX} printable ASCII characters");
            return Err(InvalidInput::new(Field::Name, format!("`{text}`"), expected));
        }
        intern(text)
    }

    /// `rule.quota`: the name of one of several quotas of a rule.
    ///
    /// # Errors
    /// As [`Name::new`].
    pub fn joined(rule: Name, quota: &str) -> Result<Self, InvalidInput> {
        Self::new(&format!("{rule}.{quota}"))
    }

    /// The text of the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        &self.0.text
    }

    /// A number that is the same for the same text in every process and
    /// version: what stores mix into the identity of a counter.
    #[must_use]
    pub fn id(self) -> u64 {
        self.0.id
    }
}

fn intern(text: &str) -> Result<Name, InvalidInput> {
    static NAMES: Mutex<Option<HashSet<Name>>> = Mutex::new(None);
    let id = digest_more(DIGEST_START, text.as_bytes());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(text) {
        return Ok(*known);
    }
    if names.len() >= NAMES_MAX {
        let expected = format!("at most {NAMES_MAX} different names in one process");
        return Err(InvalidInput::new(Field::Name, text, expected));
    }
    let name = Name(Box::leak(Box::new(Entry { text: text.into(), id })));
    names.insert(name);
    Ok(name)
}

/// The digest of nothing.
pub(crate) const DIGEST_START: u64 = 0xcbf2_9ce4_8422_2325;

/// A digest with `bytes` on top. FNV-1a: stable, and strong enough for names
/// that operators choose and ids that callers keep apart.
pub(crate) fn digest_more(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Name {}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_the_same_name() {
        let name = Name::new("per-user").unwrap();
        assert_eq!(name, Name::new("per-user").unwrap());
        assert_ne!(name, Name::new("per-ip").unwrap());
        assert_eq!(Name::joined(name, "rpm").unwrap().as_str(), "per-user.rpm");
    }

    #[test]
    fn names_that_could_not_stand_in_a_header_are_refused() {
        for text in ["", "caf\u{e9}", "a\nb", &"x".repeat(NAME_BYTES_MAX + 1)] {
            let error = Name::new(text).unwrap_err();
            assert_eq!(error.field, Field::Name);
            assert!(error.expected.contains("printable ASCII"), "{error}");
        }
    }
}
