//! The commands that only look, and those about tokens, as they are typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::RequestOptions;
use super::operate::TargetOptions;

/// Where to look, and by which policy.
#[derive(Debug, Args)]
pub(crate) struct LookOptions {
    /// A policy, or a folder of policies, for --store; a server has its own
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub(crate) policy: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct InspectOptions {
    /// The key, such as user:42
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// Only this rule, as service/rule
    #[arg(long, value_name = "RULE")]
    pub(crate) rule: Option<String>,

    /// Whose policy, where there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,

    #[command(flatten)]
    pub(crate) look: LookOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ResetOptions {
    #[command(flatten)]
    pub(crate) of: InspectOptions,

    /// Reset every rule without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PoliciesOptions {
    /// Whose policy, where there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,

    #[command(flatten)]
    pub(crate) look: LookOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CountersOptions {
    /// Of this service
    #[arg(long, value_name = "NAME", conflicts_with = "rule")]
    pub(crate) service: Option<String>,

    /// Of this rule, as service/rule
    #[arg(long, value_name = "RULE")]
    pub(crate) rule: Option<String>,

    /// Of this key; with * behind it, of all that begin so
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Application Kit's counters of this organisation
    #[arg(long, value_name = "ID", conflicts_with_all = ["service", "rule", "key"])]
    pub(crate) organisation: Option<String>,

    /// Only those of this project of it
    #[arg(long, value_name = "ID", requires = "organisation")]
    pub(crate) project: Option<String>,

    /// Where to go on: what the page before ended with
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,

    /// How many to show
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) count: u64,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct UsageOptions {
    /// The organisation
    #[arg(long, value_name = "ID", required_unless_present = "key", conflicts_with = "key")]
    pub(crate) organisation: Option<String>,

    /// The project of it
    #[arg(long, value_name = "ID", requires = "organisation", conflicts_with = "key")]
    pub(crate) project: Option<String>,

    /// The plan, where limits depend on it
    #[arg(long, value_name = "NAME", requires = "organisation", conflicts_with = "key")]
    pub(crate) plan: Option<String>,

    /// A key instead of an organisation, such as user:42
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Whose policy, where there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,

    #[command(flatten)]
    pub(crate) look: LookOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// A key instead of a request, such as user:42, under every rule that counts by it; beside a request, the
    /// key of rules with `caller_key`
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// How many units to ask for
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    pub(crate) cost: u64,

    #[command(flatten)]
    pub(crate) request: RequestOptions,

    #[command(flatten)]
    pub(crate) look: LookOptions,
}

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Show it once, and end
    #[arg(long)]
    pub(crate) once: bool,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) every: u64,

    /// How many keys to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) count: u64,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct AuditOptions {
    /// Only what was done with the token of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,

    /// How many lines to look at
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) count: u64,

    /// How many of the newest to leave out
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) skip: u64,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Makes a token, and the line that stands for it in the file of `serve --tokens`
    #[command(after_help = "The token is shown once and kept nowhere; the line has its hash.\n\
                            Example:\n  ratekeeper token new --name ann --role operate")]
    New(TokenOptions),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleName {
    /// Sees everything
    Read,
    /// Sees and changes everything
    Operate,
    /// Sees what one organisation or project has used
    Usage,
}

#[derive(Debug, Args)]
pub(crate) struct TokenOptions {
    /// What it may do
    #[arg(long, value_name = "ROLE", value_enum)]
    pub(crate) role: RoleName,

    /// Whose it is: the audit log has this name
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub(crate) name: String,

    /// The organisation, for the role usage
    #[arg(long, value_name = "ID")]
    pub(crate) organisation: Option<String>,

    /// The project of it, if it is about that alone
    #[arg(long, value_name = "ID", requires = "organisation")]
    pub(crate) project: Option<String>,

    /// How to print it
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = super::Format::Text)]
    pub(crate) format: super::Format,
}
