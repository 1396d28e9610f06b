//! One spelling of a path, whatever was sent.

use std::borrow::Cow;

use proptest::prelude::*;
use ratekeeper::policy::{Facts as _, RequestFacts, canonical_path};
use ratekeeper_testkit::paths::spellings;

#[test]
fn every_spelling_of_a_path_is_one_path() {
    for row in spellings() {
        assert_eq!(canonical_path(&row.sent), row.path, "{}", row.sent);
        for seen in [&row.path, row.decoded.as_ref().unwrap_or(&row.path)] {
            assert!(matches!(canonical_path(seen), Cow::Borrowed(same) if same == seen), "{seen}");
        }
        let facts = RequestFacts::new("GET", &format!("{}?q=%61", row.sent));
        assert_eq!(facts.path(), Some(&*row.path), "{}", row.sent);
    }
}

/// Paths of escapes, right and wrong, of what stands for itself, and of anything else.
fn paths() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => "[a-zA-Z0-9._~/-]{1,4}",
        3 => any::<u8>().prop_map(|byte| format!("%{byte:02X}")),
        2 => any::<u8>().prop_map(|byte| format!("%{byte:02x}")),
        1 => "%[0-9a-fg%]{0,2}",
        1 => "\\PC{1,3}",
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn decoded(path: &str) -> Vec<u8> {
    // A slash and its escape are two things.
    let path = path.replace("%2f", "%252F").replace("%2F", "%252F");
    percent_encoding::percent_decode_str(&path).collect()
}

proptest! {
    #[test]
    fn the_one_spelling_is_its_own_and_means_the_same(path in paths()) {
        let one = canonical_path(&path);
        let again = canonical_path(&one);
        prop_assert!(matches!(&again, Cow::Borrowed(same) if *same == one), "{path} is {one}, which is {again}");
        prop_assert!(one.is_ascii());
        // A `%` that begins no escape may begin one with what is decoded behind it, so only whole escapes are held
        // against the decoder.
        if !path.replace("%25", "").split('%').skip(1).any(|rest| {
            !rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        }) {
            prop_assert_eq!(decoded(&one), decoded(&path), "{} is {}", path, &one);
        }
    }

    #[test]
    fn paths_that_decode_to_the_same_have_one_spelling(path in paths(), escaped in proptest::collection::vec(any::<(bool, bool)>(), 32)) {
        // Another spelling: some characters of the one are escaped, in either case.
        let one = canonical_path(&path).into_owned();
        let mut other = String::new();
        let mut rest = one.as_bytes();
        for (escape, lower) in escaped.iter().cycle() {
            let Some(byte) = rest.first() else { break };
            if *byte == b'%' {
                let text = std::str::from_utf8(&rest[..3]).unwrap();
                other += &if *lower { text.to_ascii_lowercase() } else { text.to_owned() };
                rest = &rest[3..];
                continue;
            }
            match (*escape && *byte != b'/', lower) {
                (true, true) => other += &format!("%{byte:02x}"),
                (true, false) => other += &format!("%{byte:02X}"),
                (false, _) => other.push(char::from(*byte)),
            }
            rest = &rest[1..];
        }
        prop_assert_eq!(canonical_path(&other), one, "{}", other);
    }
}
