//! The command line, as it is typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Exact, explained, all-or-nothing rate limits.
#[derive(Debug, Parser)]
#[command(name = "ratekeeper", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows three layered limits at work, live, in the terminal
    Demo(DemoOptions),
    /// Works with policies: limits in files
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Serves decisions over HTTP, until it is told to stop
    Serve(Box<crate::commands::serve::ServeOptions>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Says what is wrong with policies before they are used
    #[command(after_help = "Exit status: 0 all are good, 1 one is wrong, 2 one could not be read.")]
    Check(CheckOptions),
}

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// Policies, and folders of policies; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// How to print what was found
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub(crate) format: Output,

    /// What FILE is written in; otherwise its ending says it
    #[arg(long, value_name = "SYNTAX", value_enum)]
    pub(crate) syntax: Option<Syntax>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Output {
    /// A line for each problem, and one for each good policy
    Text,
    /// An object for each policy, each on a line of its own
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Syntax {
    Toml,
    Yaml,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// How many requests to send
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) requests: u32,

    /// Milliseconds between two requests
    #[arg(long, value_name = "MS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) every: u64,
}
