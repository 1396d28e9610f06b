//! The binary from outside.

mod check;
mod cli;
mod demo;
mod deploy;
mod doctor;
mod examples;
mod help;
mod json;
mod look;
mod operate;
mod parts;
mod policy;
mod run;
mod runbook;
mod served;
mod stores;
mod terminal;

use std::process::{Command, Output};

/// The binary, in an environment that says nothing to it.
fn command() -> Command {
    undisturbed(Command::new(env!("CARGO_BIN_EXE_ratekeeper")))
}

/// A command in an environment that says nothing to the binary.
fn undisturbed(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let ours = name.to_string_lossy().starts_with("RATEKEEPER_");
        if ours || ["CLICOLOR_FORCE", "COLUMNS", "NO_COLOR"].iter().any(|known| name == *known) {
            command.env_remove(name);
        }
    }
    command
}

fn ratekeeper(arguments: &[&str]) -> Output {
    command().args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts what is printed, and the status.
#[track_caller]
fn assert_printed(output: &Output, status: i32, stdout: &str, stderr: &str) {
    assert_eq!(text(&output.stderr), stderr);
    assert_eq!(text(&output.stdout), stdout);
    assert_eq!(output.status.code(), Some(status));
}
