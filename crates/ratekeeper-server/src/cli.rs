//! The command line, as it is typed.

use clap::{Args, Parser, Subcommand};

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
