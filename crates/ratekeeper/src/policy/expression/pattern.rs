//! Regular expressions whose matches have a known cost.
//!
//! Most patterns are small automata once every state is worked out beforehand: then a match is one
//! step in a table for each byte, whatever the text is. The others (`[01]*1[01]{200}` has 2^200 states)
//! are matched by the `regex` crate, which may visit every state of the program at every byte; a
//! match of those is charged as much as that.

use regex::{Regex, RegexBuilder};
use regex_automata::Input;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::NFA;

use super::evaluate::SEARCHED_PER_STEP;

/// The largest regular expression, in bytes of its compiled form.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// The largest table, and how much a cache may grow where there is none, in bytes.
const TABLE_BYTES_MAX: usize = 256 << 10;
/// How much memory it may take to work the table out, in bytes.
const DETERMINIZE_BYTES_MAX: usize = 1 << 20;
/// How many states of a program are visited in the time of one step.
const STATES_PER_STEP: usize = 8;

#[derive(Clone, Debug)]
pub(super) enum Pattern {
    Table(Box<dense::DFA<Vec<u32>>>),
    Program { regex: Regex, states: usize },
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, regex::Error> {
        let mut builder = RegexBuilder::new(text);
        builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(TABLE_BYTES_MAX);
        let regex = builder.build()?;
        let config = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(TABLE_BYTES_MAX))
            .determinize_size_limit(Some(DETERMINIZE_BYTES_MAX));
        Ok(match dense::Builder::new().configure(config).build(text) {
            Ok(table) => Pattern::Table(table.into()),
            Err(_) => {
                // The regex was built within its bound, so this is no larger.
                let states = NFA::new(text).map_or(PATTERN_BYTES_MAX, |program| program.states().len());
                Pattern::Program { regex, states }
            }
        })
    }

    /// What it costs to look for it in a text.
    pub(super) fn steps(&self, text: &str) -> usize {
        match self {
            Pattern::Table(_) => text.len() / SEARCHED_PER_STEP,
            Pattern::Program { states, .. } => text.len().saturating_mul(*states) / STATES_PER_STEP,
        }
    }

    /// Whether it is in a text. Tables know every byte, so there always is an answer.
    pub(super) fn is_in(&self, text: &str) -> Option<bool> {
        match self {
            Pattern::Table(table) => {
                table.try_search_fwd(&Input::new(text).earliest(true)).ok().map(|found| found.is_some())
            }
            Pattern::Program { regex, .. } => Some(regex.is_match(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_find_what_the_regex_crate_finds() {
        let texts =
            ["", "a", "/users/12", "/users/x\u{e9}", "caf\u{e9} 9", "A\nb", "0101", "\u{665}", "abcabc"];
        let patterns = [
            "",
            "^$",
            "^/users/[0-9]+$",
            "^/users/\\w+$",
            "(?i)CAF.",
            "\\d",
            "\\D$",
            "(?m)^b$",
            "(?s)A.b",
            "[^a]",
            "(abc){2}",
            "x|9",
            "\\p{Lu}",
            "^(?:a|b)*$",
        ];
        for text in patterns {
            let pattern = Pattern::new(text).unwrap();
            assert!(matches!(pattern, Pattern::Table(_)), "{text}");
            for haystack in texts {
                let expected = Regex::new(text).unwrap().is_match(haystack);
                assert_eq!(pattern.is_in(haystack), Some(expected), "{text} in {haystack:?}");
            }
        }
    }

    #[test]
    fn a_pattern_without_a_table_pays_for_each_of_its_states() {
        let zeros = "0".repeat(240_000);
        let wild = Pattern::new("[01]*1[01]{200}").unwrap();
        assert!(wild.steps(&zeros) > 1_000_000, "{}", wild.steps(&zeros));
        assert!(Pattern::new("^/api/v[0-9]+/").unwrap().steps(&zeros) <= zeros.len() / 16);
        let words = Pattern::new("\\bx\\b").unwrap();
        assert_eq!((words.is_in("a x b"), words.is_in("axb")), (Some(true), Some(false)));
    }
}
