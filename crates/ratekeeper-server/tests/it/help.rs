//! What `--help` prints, to the letter: a file for each command in `tests/it/help`.
//!
//! `RATEKEEPER_BLESS=1` writes them anew; then look at the difference.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::{ratekeeper, text};

/// The help of a command and of everything below it, by file name.
pub(crate) fn collect(words: &[String], into: &mut BTreeMap<String, String>) {
    let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    arguments.push("--help");
    let output = ratekeeper(&arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {}", text(&output.stderr));
    let shown = text(&output.stdout);
    let below = shown.split_once("\nCommands:\n").map(|(_, rest)| rest.split("\n\n").next().unwrap_or(rest));
    for line in below.unwrap_or_default().lines() {
        let name = line.split_whitespace().next().expect("the name of a command");
        if name != "help" {
            collect(&[words, &[name.to_owned()]].concat(), into);
        }
    }
    let name = if words.is_empty() { "ratekeeper".to_owned() } else { words.join("-") };
    into.insert(name + ".txt", shown);
}

#[test]
fn every_command_says_what_it_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/help");
    let mut printed = BTreeMap::new();
    collect(&[], &mut printed);
    assert!(printed.len() >= 9, "{:?}", printed.keys());
    if std::env::var_os("RATEKEEPER_BLESS").is_some() {
        for (name, help) in &printed {
            fs::write(folder.join(name), help).expect("write the help");
        }
    }
    for (name, help) in &printed {
        let kept = fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(*help, kept, "{name}");
    }
    let entries = fs::read_dir(&folder).expect("the folder");
    let mut names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let stray = names.find(|name| !printed.contains_key(name));
    assert_eq!(stray, None, "the help of a command that is gone");
}

#[test]
fn short_help_is_the_same_with_less() {
    for arguments in
        [&["-h"][..], &["check", "-h"], &["doctor", "-h"], &["serve", "-h"], &["policy", "check", "-h"]]
    {
        let output = ratekeeper(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}");
        let shown = text(&output.stdout);
        assert!(shown.contains("Usage: ratekeeper"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    }
}
