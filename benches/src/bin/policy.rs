//! `make bench-policy`: what it costs to find the rules that apply to a request.
//!
//! Prints a Markdown report, and writes it to a file as well if asked to.

use std::path::PathBuf;
use std::process::ExitCode;

use ratekeeper_benches::measure::Plan;
use ratekeeper_benches::{Result, policy, report};

const USAGE: &str = "usage: policy [--quick] [--out FILE]

  --quick      2 short rounds: whether it works, not how fast
  --out FILE   put the report into the `policy` section of FILE as well";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("policy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let (mut plan, mut out) = (Plan::FULL, None::<PathBuf>);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => plan = Plan::QUICK,
            "--out" => out = Some(arguments.next().ok_or("--out lacks a value")?.into()),
            "--help" => {
                println!("{USAGE}");
                return Ok(());
            }
            _ => return Err(format!("{argument} is not an option\n{USAGE}").into()),
        }
    }
    let text = policy::run(plan)?;
    println!("{text}");
    if let Some(out) = out {
        report::write_section(&out, "policy", &text)?;
    }
    Ok(())
}
