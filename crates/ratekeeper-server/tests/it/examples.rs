//! The examples of `docs/cli.md`, run as they stand there.
//!
//! A block of `console` is a command behind `$ ` and what it prints, words and data;
//! `[..]` stands for what differs from run to run. A block that begins with `# file: NAME` is
//! that file. The variable `RATEKEEPER_STORE` leads to a server of the test's own where
//! the document says so.

use std::path::Path;
use std::process::Command;

use ratekeeper_testkit::servers::{Flavour, Server};

use crate::served::STORE_DEADLINE;
use crate::text;

const DOCUMENT: &str = include_str!("../../../../docs/cli.md");
/// The address of the server in the document.
const DOCUMENTED: &str = "redis://127.0.0.1:6379";

/// Blocks of the document: what kind they are of, and what is in them.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fenced = DOCUMENT.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').expect("a kind and content")).collect()
}

fn run(line: &str, folder: &Path) -> (String, Option<i32>) {
    let binary = Path::new(env!("CARGO_BIN_EXE_ratekeeper")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["-c", &format!("exec 2>&1; {line}")]).current_dir(folder).env("PATH", path);
    for variable in ["RATEKEEPER_STORE", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
        command.env_remove(variable);
    }
    // Latencies are held against it: a busy machine adds no warning to what is printed.
    command.env(STORE_DEADLINE.0, STORE_DEADLINE.1);
    let output = command.output().expect("bash runs");
    (text(&output.stdout), output.status.code())
}

/// Whether a line is as the document has it.
fn matches(line: &str, expected: &str) -> bool {
    let mut parts = expected.split("[..]");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[test]
fn every_example_does_what_it_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start_with(Flavour::Valkey9, &[("appendonly", "yes"), ("maxmemory", "100mb")]);
    let mut commands = 0;
    for (kind, block) in blocks() {
        if let Some((name, _)) = block.strip_prefix("# file: ").and_then(|block| block.split_once('\n')) {
            std::fs::write(folder.path().join(name), block).expect("a file");
        }
        if kind != "console" {
            continue;
        }
        for example in block.split("$ ").skip(1) {
            let (line, expected) = example.split_once('\n').expect("a command and what it prints");
            let (shown, _) = run(&line.replace(DOCUMENTED, &server.url()), folder.path());
            let (shown, expected) = (shown.trim_end(), expected.trim_end());
            let same = shown.lines().count() == expected.lines().count()
                && shown
                    .lines()
                    .zip(expected.lines())
                    .all(|(line, expected)| matches(line.trim_end(), expected));
            assert!(same, "$ {line}\n--- prints\n{shown}\n--- and the document says\n{expected}");
            commands += 1;
        }
    }
    assert!(commands >= 12, "only {commands} examples were found");
}

#[test]
fn wildcards_match_what_they_should() {
    assert!(matches("a 12 ms b 7", "a [..] ms b [..]"));
    assert!(matches("same", "same") && matches("", "[..]"));
    assert!(!matches("a 12 s", "a [..] ms") && !matches("same and more", "same") && !matches("x", "y[..]"));
}

#[test]
fn every_command_is_documented() {
    let help = text(&crate::ratekeeper(&["--help"]).stdout);
    let (_, commands) = help.split_once("Commands:\n").expect("commands");
    let rows: Vec<&str> = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `ratekeeper ")).collect();
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().expect("a name");
        // A command of several has a row, or each of these has one.
        let has_row = |row: &&str| row.split([' ', '`']).next() == Some(name);
        assert!(name == "help" || rows.iter().any(has_row), "{name} has no row in the table");
    }
    for name in ["policy check", "policy test"] {
        assert!(
            rows.iter().any(|row| row.starts_with(&format!("{name}`"))),
            "{name} has no row in the table"
        );
    }
}
