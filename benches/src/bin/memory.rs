//! `make bench-memory`: the in-memory store against its peers.
//!
//! Prints a Markdown report, and writes it to a file as well if asked to.

use std::path::PathBuf;
use std::process::ExitCode;

use ratekeeper_benches::allocations::Counting;
use ratekeeper_benches::conditions::Conditions;
use ratekeeper_benches::measure::Plan;
use ratekeeper_benches::report::Report;
use ratekeeper_benches::{Result, accuracy, allocations, measure, report, rss, targets};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const USAGE: &str = "usage: memory [--quick] [--out FILE]   the whole report
       memory --allocations [--out FILE]   allocations per check only

  --quick      2 short rounds: whether it works, not how fast
  --out FILE   put the report into the `memory` section of FILE as well";

#[derive(Debug)]
struct Options {
    plan: Plan,
    only_allocations: bool,
    out: Option<PathBuf>,
}

enum Task {
    Report(Options),
    MeasureRss { row: usize, keys: u32 },
    Help,
}

fn task(mut arguments: impl Iterator<Item = String>) -> Result<Task> {
    let mut options = Options { plan: Plan::FULL, only_allocations: false, out: None };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} lacks a value\n{USAGE}"));
        match argument.as_str() {
            "--quick" => options.plan = Plan::QUICK,
            "--allocations" => options.only_allocations = true,
            "--out" => options.out = Some(value()?.into()),
            "--help" => return Ok(Task::Help),
            rss::CHILD_FLAG => {
                return Ok(Task::MeasureRss { row: value()?.parse()?, keys: value()?.parse()? });
            }
            _ => return Err(format!("{argument} is not an option\n{USAGE}").into()),
        }
    }
    Ok(Task::Report(options))
}

fn whole_report(plan: Plan) -> Result<String> {
    let conditions = Conditions::begin();
    let allocations = allocations::run()?;
    let accuracy = accuracy::run()?;
    let bytes = rss::run()?;
    let results = measure::run(plan)?;
    let targets = targets::check(&results, &bytes, &allocations);
    let conditions = report::conditions(&conditions, plan);
    Ok(Report { conditions, results, bytes, accuracy, allocations, targets }.markdown())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memory: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let options = match task(std::env::args().skip(1))? {
        Task::Report(options) => options,
        Task::MeasureRss { row, keys } => return rss::child(row, keys),
        Task::Help => {
            println!("{USAGE}");
            return Ok(());
        }
    };
    let text = if options.only_allocations {
        report::allocations(&allocations::run()?)
    } else {
        whole_report(options.plan)?
    };
    print!("{text}");
    if let Some(path) = options.out {
        report::write_section(&path, "memory", &text)?;
    }
    Ok(())
}
