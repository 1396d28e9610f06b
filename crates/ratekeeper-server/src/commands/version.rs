//! `ratekeeper version`: what this program is made of.

use std::io::Write;

use ratekeeper::store::redis::SCRIPT;
use serde::Serialize;

use crate::cli::{Format, VersionOptions};

/// What policies can be written in, or kept in.
const POLICIES: &[&str] = &["toml", "yaml", "json", "mongodb"];
const POLICIES_WITHOUT_MONGODB: &[&str] = &["toml", "yaml", "json"];

#[derive(Serialize)]
struct Version {
    version: &'static str,
    system: String,
    stores: &'static [&'static str],
    policies: &'static [&'static str],
    script: Script,
}

/// The script that runs on servers. Programs whose digests differ run different
/// scripts; they understand each other's counters if the formats are the same.
#[derive(Serialize)]
struct Script {
    sha1: String,
    format: u32,
}

pub(crate) fn run(options: &VersionOptions) -> anyhow::Result<()> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        stores: &["memory", "redis"],
        policies: if cfg!(feature = "mongodb") { POLICIES } else { POLICIES_WITHOUT_MONGODB },
        script: Script { sha1: digest(), format: format_written() },
    };
    let mut out = std::io::stdout().lock();
    match options.format {
        Format::Json => {
            serde_json::to_writer(&mut out, &version)?;
            writeln!(out)?;
        }
        Format::Text => {
            let Version { version, system, stores, policies, script } = &version;
            writeln!(out, "ratekeeper {version}")?;
            writeln!(out, "system    {system}")?;
            writeln!(out, "stores    {}", stores.join(", "))?;
            writeln!(out, "policies  {}", policies.join(", "))?;
            writeln!(out, "script    sha1 {}, writes format {}", script.sha1, script.format)?;
        }
    }
    Ok(())
}

/// What servers call the script by.
pub(super) fn digest() -> String {
    redis::Script::new(SCRIPT).get_hash().to_owned()
}

/// The format of values, as the script itself has it.
fn format_written() -> u32 {
    let value = SCRIPT.lines().find_map(|line| line.trim().strip_prefix("local FORMAT = "));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_says_its_format() {
        assert_eq!(format_written(), 2);
        assert_eq!(digest().len(), 40);
    }
}
