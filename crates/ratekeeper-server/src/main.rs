//! The `ratekeeper` binary: parses the command line and runs one command.
//!
//! Exit status: 0 done, 1 done and something is wrong with what was asked about,
//! 2 could not do it. Data goes to stdout, words about it to stderr.

#![forbid(unsafe_code)]

mod cli;
mod commands;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, PolicyCommand};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(options) => commands::demo::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Policy(PolicyCommand::Check(options)) => commands::policy::check(&options),
        Command::Serve(options) => commands::serve::run(*options),
    };
    match result {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whoever read our output has had enough: that is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
