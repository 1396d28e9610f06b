//! The `ratekeeper` binary: parses the command line and runs one command.
//!
//! Exit status: 0 done, 1 done and something is wrong with what was asked about,
//! 2 could not do it. Data goes to stdout, words about it to stderr.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod failure;

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::Parser;

use crate::cli::{Cli, Command, PolicyCommand};
use crate::failure::{Failure, without_secrets};

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return mistyped(&error),
    };
    let result = match command {
        Command::Check(options) => commands::check::run(&options),
        Command::Demo(options) => commands::demo::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Doctor(options) => commands::doctor::run(&options),
        Command::Policy(PolicyCommand::Check(options)) => commands::policy::check(&options),
        Command::Serve(options) => commands::serve::run(*options),
        Command::Completions(options) => commands::completions::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Version(options) => commands::version::run(&options).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// A command line that cannot be used, or one that asks for help.
fn mistyped(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    anstream::eprint!("{}", without_secrets(&error.render().ansi().to_string()));
    ExitCode::from(2)
}

fn failed(error: &anyhow::Error) -> ExitCode {
    let (red, bold) = (AnsiColor::Red.on_default().bold(), Style::new().bold());
    anstream::eprintln!("{red}error:{red:#} {}", without_secrets(&format!("{error:#}")));
    let hint = error.chain().find_map(|cause| cause.downcast_ref::<Failure>()?.hint.as_deref());
    if let Some(hint) = hint {
        anstream::eprintln!("{bold}hint:{bold:#} {}", without_secrets(hint));
    }
    ExitCode::from(2)
}

/// Whoever read our output has had enough: that is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
