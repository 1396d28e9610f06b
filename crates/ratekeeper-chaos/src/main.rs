//! Load from several processes on one topology while a seeded schedule breaks things, and an independent checker of
//! what was admitted. `docs/reliability.md` has the results, `make chaos` runs it.

#![forbid(unsafe_code)]

mod call;
mod checker;
mod control;
mod fault;
mod limits;
mod load;
mod report;
mod run;
mod topology;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::topology::Topology;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs load and faults on topologies, one after the other, and checks what was admitted
    Run(RunOptions),
    /// One process of the load: with the library
    #[command(hide = true)]
    LoadLibrary(LoadOptions),
    /// One process of the load: calls over HTTP
    #[command(hide = true)]
    LoadHttp(LoadOptions),
}

/// What is run.
#[derive(Args, Clone, Debug)]
struct RunOptions {
    /// What comes when: the same seed has the same faults in the same order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long all topologies together are under load, at least; each suffers every fault that it has once or more
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Which topologies, in this order
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Topology::ALL)]
    topologies: Vec<Topology>,
    /// Which faults; all that a topology has unless they are named
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// The binary of the server; without it, that load is left out
    #[arg(long)]
    server: Option<PathBuf>,
    /// A Python that has the package; without it, that load is left out
    #[arg(long)]
    python: Option<PathBuf>,
    /// How many replicas must have a charge before it is answered: then failovers lose none, and the checker holds that
    #[arg(long, default_value_t = 0)]
    replicas: usize,
    /// Gives one process twice the limits, which the checker has to find
    #[arg(long)]
    broken: bool,
    /// Where the log of all calls stays, to look at
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// What a process of the load is told. It ends when its standard input does.
#[derive(Args, Debug)]
struct LoadOptions {
    /// The store, or the server
    #[arg(long)]
    target: String,
    /// The folder of the policies
    #[arg(long)]
    policies: PathBuf,
    /// Where calls are logged
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long, default_value_t = 0)]
    replicas: usize,
}

/// What a call to the store may take in all, which every process of the load is given.
const TOTAL: Duration = Duration::from_millis(100);
/// The longest that the store may be silent.
const DEADLINE: Duration = Duration::from_millis(25);

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::LoadLibrary(options) => load::library::run(&options).map(|()| true),
        Command::LoadHttp(options) => load::http::run(&options).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
