//! `ratekeeper serve`: the decision engine over the network, until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use ratekeeper_server::serve::{self, Settings, Source};

/// What can be said on the command line; the environment and a file can say it too.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Settings in a TOML file; flags and the environment win over it
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(options: ServeOptions, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let of_serve = matches.subcommand().map(|(_, matches)| matches);
    let source = |setting: &str| match of_serve.and_then(|matches| matches.value_source(setting)) {
        Some(ValueSource::CommandLine) => Source::Flag,
        Some(ValueSource::EnvVariable) => Source::Environment,
        _ => Source::File,
    };
    serve::run(options.settings, options.config.as_deref(), source)?;
    Ok(ExitCode::SUCCESS)
}
