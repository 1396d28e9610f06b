//! The `ratekeeper` binary: parses the command line and runs one command.
//!
//! Exit status: 0 done, 1 done and something is wrong with what was asked about,
//! 2 could not do it. Data goes to stdout, words about it to stderr.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod failure;
mod printed;

use std::io::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

use crate::cli::{Command, Format, PolicyCommand};
use crate::failure::{Failure, without_secrets};
use crate::printed::and_no_more;

fn main() -> ExitCode {
    let (command, matches) = match cli::parse() {
        Ok(parsed) => parsed,
        Err(error) => return mistyped(&error),
    };
    let format = command.format();
    let result = match command {
        Command::Check(options) => commands::check::run(&options),
        Command::Demo(options) => and_no_more(commands::demo::run(&options)),
        Command::Doctor(options) => commands::doctor::run(&options),
        Command::Policy(PolicyCommand::Check(options)) => commands::policy::check(&options),
        Command::Policy(PolicyCommand::Convert(options)) => commands::policy::convert(&options),
        Command::Policy(PolicyCommand::Test(options)) => commands::policy::test(&options),
        Command::Overrides(command) => commands::operate::overrides(&command),
        Command::Mode(command) => commands::operate::mode(&command),
        Command::Emergency(command) => commands::operate::emergency(&command),
        Command::Inspect(options) => commands::look::inspect(&options),
        Command::Reset(options) => commands::look::reset(&options),
        Command::Counters(options) => commands::look::counters(&options),
        Command::Usage(options) => commands::look::usage(&options),
        Command::Explain(options) => commands::look::explain(&options),
        Command::Top(options) => commands::look::top(&options),
        Command::Policies(options) => commands::look::policies(&options),
        Command::Audit(options) => commands::look::audit(&options),
        Command::Token(command) => commands::token::run(&command),
        Command::Serve(options) => commands::serve::run(*options, &matches),
        Command::Completions(options) => and_no_more(commands::completions::run(&options)),
        Command::Version(options) => and_no_more(commands::version::run(&options)),
    };
    result.unwrap_or_else(|error| failed(&error, format))
}

/// A command line that cannot be used, or one that asks for help.
fn mistyped(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // Here and below: if nobody reads it, the status still says it.
    let mut err = anstream::stderr();
    let _ = write!(err, "{}", without_secrets(&error.render().ansi().to_string()));
    if let Some(variable) = cli::variable_to_blame(error) {
        let _ = writeln!(err, "\nhint: nobody typed that flag; the variable {variable} says it");
    }
    ExitCode::from(2)
}

/// What could not be done: for programs an object where they look for the answer, for people words beside it.
fn failed(error: &anyhow::Error, format: Format) -> ExitCode {
    let hint = error.chain().find_map(|cause| cause.downcast_ref::<Failure>()?.hint.as_deref());
    let failure = Failure { message: format!("{error:#}"), hint: hint.map(str::to_owned) };
    let is_told = match format {
        Format::Json => writeln!(std::io::stdout(), "{}", failure.json()).is_ok(),
        Format::Text => false,
    };
    if !is_told {
        let (red, bold) = (AnsiColor::Red.on_default().bold(), Style::new().bold());
        let mut err = anstream::stderr();
        let _ = writeln!(err, "{red}error:{red:#} {}", without_secrets(&failure.message));
        if let Some(hint) = &failure.hint {
            let _ = writeln!(err, "{bold}hint:{bold:#} {}", without_secrets(hint));
        }
    }
    ExitCode::from(2)
}
