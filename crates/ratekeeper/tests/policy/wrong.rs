//! Every kind of mistake, and what is said about it.
//!
//! `testdata/policies/wrong` has a document for each, and beside it (`.txt`) the
//! messages. `UPDATE_MESSAGES=1` writes them anew; read the difference before
//! it is committed.

use std::fmt::Write as _;

const FOLDER: &str = "testdata/policies/wrong";

#[test]
fn every_mistake_is_told_as_it_always_was() {
    let is_update = std::env::var_os("UPDATE_MESSAGES").is_some();
    let policies = crate::policies(FOLDER);
    assert!(policies.len() >= 100, "{} mistakes are not enough", policies.len());
    let mut failures = String::new();
    for path in policies {
        let problems = match crate::compile(&path) {
            Ok(_) => "nothing is wrong\n".to_owned(),
            Err(problems) => format!("{problems}\n"),
        };
        let beside = path.with_extension("txt");
        if is_update {
            std::fs::write(&beside, &problems).unwrap();
        }
        let expected = std::fs::read_to_string(&beside).unwrap_or_default();
        if problems != expected {
            writeln!(failures, "{}:\n{}", crate::name(&path), difference(&expected, &problems)).unwrap();
        }
    }
    assert!(failures.is_empty(), "UPDATE_MESSAGES=1 accepts these:\n{failures}");
}

#[test]
fn no_message_stands_without_its_document() {
    let messages = std::fs::read_dir(crate::root().join(FOLDER)).unwrap().map(|entry| entry.unwrap().path());
    let stems: Vec<_> = crate::policies(FOLDER).iter().map(|path| path.with_extension("txt")).collect();
    for path in messages.filter(|path| path.extension().is_some_and(|ending| ending == "txt")) {
        assert!(stems.contains(&path), "{} is about no document", path.display());
    }
    let mut unique = stems.clone();
    unique.dedup();
    assert_eq!(unique.len(), stems.len(), "two documents share their messages");
}

#[test]
fn messages_repeat_no_password() {
    for path in crate::policies(FOLDER) {
        let problems = crate::compile(&path).unwrap_err().to_string();
        assert!(!problems.contains("secret"), "{problems}");
    }
}

/// The lines that only one of the texts has.
fn difference(expected: &str, found: &str) -> String {
    let without = |of: &str, other: &str, sign: char| {
        let lines = of.lines().filter(|line| !other.lines().any(|known| known == *line));
        lines.map(|line| format!("  {sign} {line}\n")).collect::<String>()
    };
    without(expected, found, '-') + &without(found, expected, '+')
}
