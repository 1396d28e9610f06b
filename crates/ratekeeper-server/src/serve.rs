//! `ratekeeper serve`: the decision engine over the network.

mod settings;

use std::path::Path;

pub use settings::{SETTINGS_BYTES_MAX, Settings};

/// Serves until it is told to stop.
///
/// # Errors
/// If it cannot start.
pub fn run(_said: Settings, _file: Option<&Path>) -> anyhow::Result<()> {
    anyhow::bail!("comes with the next commits")
}
