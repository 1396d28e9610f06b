//! `make bench-server`: our server against throttlecrab-server.
//!
//! Prints a Markdown report, and writes it to a file as well if asked to.

use std::path::PathBuf;
use std::process::ExitCode;

use ratekeeper_benches::server::rounds::Plan;
use ratekeeper_benches::{Result, report, server};

const USAGE: &str = "usage: server [--quick] [--out FILE]

  --quick      2 short rounds: whether it works, not how fast
  --out FILE   put the report into the `server` section of FILE as well";

#[derive(Debug)]
struct Options {
    plan: Plan,
    out: Option<PathBuf>,
}

/// What was asked for; `None` is help.
fn options(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>> {
    let mut options = Options { plan: Plan::FULL, out: None };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.plan = Plan::QUICK,
            "--out" => {
                let value = arguments.next().ok_or(format!("{argument} lacks a value\n{USAGE}"))?;
                options.out = Some(value.into());
            }
            "--help" => return Ok(None),
            _ => return Err(format!("{argument} is not an option\n{USAGE}").into()),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(Options { plan, out }) = options(std::env::args().skip(1))? else {
        println!("{USAGE}");
        return Ok(());
    };
    let command = if plan.quick { "`server --quick`" } else { "`make bench-server`" };
    let text = server::run(plan, command)?;
    print!("{text}");
    if let Some(path) = out {
        report::write_section(&path, "server", &text)?;
    }
    Ok(())
}
