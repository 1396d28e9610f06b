//! Logs: words on a terminal, JSON for machines. Neither keys nor secrets are in them.

use std::io::IsTerminal as _;

use anyhow::anyhow;
use tracing_subscriber::EnvFilter;

use super::settings::{Config, LogFormat};

/// Begins to log, on stderr.
///
/// # Errors
/// If the filter cannot be read.
pub(super) fn start(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|error| anyhow!("log: {error}; expected a level such as info, or ratekeeper=debug,info"))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Whoever has set up logs already keeps them.
    let _ = match config.log_format {
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_target(false).with_ansi(colours).try_init()
        }
    };
    Ok(())
}
