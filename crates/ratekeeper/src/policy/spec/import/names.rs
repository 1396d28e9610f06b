//! Names for rules that have none, or none of their own.

use std::collections::HashSet;
use std::fmt::Write as _;

use ratekeeper_core::NAME_BYTES_MAX;

use crate::control::ALL_RULES;
use crate::policy::spec::check::is_name;

/// How much of a long name is kept before its digest, in bytes: a service's name has to fit before it.
const KEPT_BYTES_MAX: usize = 48;
/// The longest name that is kept as it is.
const NAME_KEPT_MAX: usize = NAME_BYTES_MAX / 2;

/// The names that are given.
#[derive(Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// The name itself, or one like it that no other rule has.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let first = printable(name);
        let mut unique = first.clone();
        let mut number = 1;
        while !self.0.insert(unique.clone()) {
            number += 1;
            unique = format!("{first}~{number}");
        }
        unique
    }
}

/// Whether somebody's name for a limit can be a rule's as it is.
pub(super) fn fits(name: &str) -> bool {
    is_name(name) && !name.trim().is_empty() && name != ALL_RULES && name.len() <= NAME_KEPT_MAX
}

/// A text of printable ASCII that stands for this one alone.
pub(super) fn printable(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            name.push(char::from(byte));
        } else {
            let written = write!(name, "%{byte:02X}");
            debug_assert!(written.is_ok(), "a String takes everything");
        }
    }
    if name.len() > NAME_KEPT_MAX {
        let digest = blake3::hash(name.as_bytes()).to_hex();
        name.truncate(KEPT_BYTES_MAX);
        name.push('~');
        name.push_str(&digest[..12]);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_given_once() {
        let mut names = Names::default();
        assert_eq!(names.unique("a"), "a");
        assert_eq!(names.unique("a"), "a~2");
        assert_eq!(names.unique("a~2"), "a~2~2");
        assert_eq!(names.unique("caf\u{e9} 50%"), "caf%C3%A9 50%25");
        let long = names.unique(&"x".repeat(1_000));
        assert!(long.len() <= NAME_KEPT_MAX && is_name(&long), "{long}");
        assert_ne!(names.unique(&"x".repeat(1_001)), long);
    }
}
