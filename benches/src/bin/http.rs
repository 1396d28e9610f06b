//! `make bench-http`: a web service with limits, without, and with those of
//! `tower_governor`.
//!
//! Prints a Markdown report, and writes it to a file as well if asked to.

use std::path::PathBuf;
use std::process::ExitCode;

use ratekeeper_benches::{Result, http, report};

const USAGE: &str = "usage: http [--quick] [--out FILE]

  --quick      2 short rounds: whether it works, not how fast
  --out FILE   put the report into the `http` section of FILE as well";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let (mut quick, mut out) = (false, None::<PathBuf>);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} lacks a value\n{USAGE}"));
        match argument.as_str() {
            http::SERVE_FLAG => return http::serve(&value()?),
            "--quick" => quick = true,
            "--out" => out = Some(value()?.into()),
            "--help" => {
                println!("{USAGE}");
                return Ok(());
            }
            _ => return Err(format!("{argument} is not an option\n{USAGE}").into()),
        }
    }
    let text = http::run(quick)?;
    println!("{text}");
    if let Some(out) = out {
        report::write_section(&out, "http", &text)?;
    }
    Ok(())
}
