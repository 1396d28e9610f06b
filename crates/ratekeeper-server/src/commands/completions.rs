//! `ratekeeper completions`: a script for a shell.

use std::io::Write;

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsOptions};

pub(crate) fn run(options: &CompletionsOptions) -> anyhow::Result<()> {
    // The generator panics if it cannot write, and a reader may have had enough.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "ratekeeper", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
