//! The commands of operators, as they are typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Format, StoreOptions};

/// What to change, or to look at, and where.
#[derive(Debug, Args)]
pub(crate) struct TargetOptions {
    #[arg(long, value_name = "URL", env = "RATEKEEPER_SERVER", help_heading = "Server")]
    #[arg(help = "A server to ask, such as http://127.0.0.1:8080; instead of --store")]
    pub(crate) server: Option<String>,

    #[arg(long, value_name = "FILE", env = "RATEKEEPER_ADMIN_TOKEN_FILE", help_heading = "Server")]
    #[arg(
        help = "A file with the token of operators, for --server [default: the variable RATEKEEPER_ADMIN_TOKEN, or none]"
    )]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// Certificates to trust for https://, in PEM form, instead of the system's
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_SERVER_CA", help_heading = "Server")]
    pub(crate) server_ca: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// What stands before the names of keys on --store, as services have it
    #[arg(long, value_name = "TEXT", env = "RATEKEEPER_STORE_PREFIX", help_heading = "Store")]
    pub(crate) store_prefix: Option<String>,

    /// How to print the answer
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Whose override it is.
#[derive(Debug, Args)]
pub(crate) struct OwnerOptions {
    /// The organisation
    #[arg(long, value_name = "ID")]
    pub(crate) organisation: String,

    /// The project; without one, it is about the organisation itself
    #[arg(long, value_name = "ID")]
    pub(crate) project: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OverridesCommand {
    /// Gives a project, or each project of an organisation, another limit
    #[command(
        after_help = "Example:\n  ratekeeper overrides set search/per-user 500 --organisation 7 --project 42 \
                            --for 1d --reason launch --server http://127.0.0.1:8080"
    )]
    Set(SetOverrideOptions),
    /// Shows one override
    #[command(after_help = "Exit status: 0 there is one, 1 there is none, 2 could not look.")]
    Get(OneOverrideOptions),
    /// Shows all overrides: of the store, of an organisation itself, or of a project
    List(ListOverridesOptions),
    /// Deletes one override
    #[command(after_help = "Exit status: 0 deleted, 1 there was none, 2 could not do it.")]
    Delete(OneOverrideOptions),
    /// Deletes all overrides of a project, or of an organisation itself
    Clear(ClearOverridesOptions),
    /// Prints all overrides of the store, a line of JSON each, as `import` reads them
    Export(ExportOptions),
    /// Sets overrides as `export` printed them; others stay as they are
    #[command(
        after_help = "All lines are read before the first override is set. Those that have ended are left out."
    )]
    Import(ImportOptions),
}

impl OverridesCommand {
    pub(crate) fn target(&self) -> &TargetOptions {
        match self {
            Self::Set(options) => &options.target,
            Self::Get(options) | Self::Delete(options) => &options.target,
            Self::List(options) => &options.target,
            Self::Clear(options) => &options.all.target,
            Self::Export(options) => &options.target,
            Self::Import(options) => &options.target,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SetOverrideOptions {
    /// What it is about: service/rule, service/rule.rpm, or the endpoint that the rule finds in requests
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: String,

    /// Units per window; 0 lets nothing pass
    #[arg(value_name = "LIMIT")]
    pub(crate) limit: u64,

    #[command(flatten)]
    pub(crate) owner: OwnerOptions,

    /// Another window than the quota's, such as 1h
    #[arg(long, value_name = "TIME")]
    pub(crate) window: Option<String>,

    /// How long it holds, such as 90s, 10min, 1h or 30d [default: until it is deleted]
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) life: Option<String>,

    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Who
    #[arg(long, value_name = "TEXT", env = "RATEKEEPER_AUTHOR")]
    pub(crate) author: Option<String>,

    /// Reset what is used up: an empty bucket stays empty under a raised limit
    #[arg(long)]
    pub(crate) relief: bool,

    /// Do it without asking, where it is about all projects of an organisation
    #[arg(long)]
    pub(crate) yes: bool,

    /// The policy that has the rule, for --relief on --store; a server has its own
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub(crate) policy: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct OneOverrideOptions {
    /// What it is about: service/rule, service/rule.rpm, or the endpoint that the rule finds in requests
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: String,

    #[command(flatten)]
    pub(crate) owner: OwnerOptions,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ListOverridesOptions {
    /// Only those of this organisation itself
    #[arg(long, value_name = "ID")]
    pub(crate) organisation: Option<String>,

    /// Only those of this project of the organisation
    #[arg(long, value_name = "ID", requires = "organisation")]
    pub(crate) project: Option<String>,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ExportOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ImportOptions {
    /// A file of what `export` printed; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Do it without asking
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct AllOverridesOptions {
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ClearOverridesOptions {
    #[command(flatten)]
    pub(crate) all: AllOverridesOptions,

    /// Do it without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModeCommand {
    /// Shows modes and emergencies that are set
    Get(SwitchesOptions),
    /// Switches a rule, a service or everything on, off, or to monitoring
    #[command(after_help = "Examples:\n  ratekeeper mode set 'search/*' monitor --for 30min\n  \
                            ratekeeper mode set search/per-user on --enforce-percent 10")]
    Set(SetModeOptions),
    /// Back to what policies say
    #[command(after_help = "Exit status: 0 cleared, 1 none was set, 2 could not do it.")]
    Clear(ClearSwitchOptions),
}

impl ModeCommand {
    pub(crate) fn target(&self) -> &TargetOptions {
        match self {
            Self::Get(options) => &options.target,
            Self::Set(options) => &options.target,
            Self::Clear(options) => &options.target,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SwitchesOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ModeName {
    /// Counts and denies
    On,
    /// Counts and denies nothing
    Monitor,
    /// Does nothing
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct SetModeOptions {
    /// service/rule, service/* for all rules of a service, or * for all rules
    #[arg(value_name = "RULE")]
    pub(crate) rule: String,

    /// What it does with requests
    #[arg(value_name = "MODE", value_enum)]
    pub(crate) mode: ModeName,

    /// For how many per cent of the keys to enforce it; the others are only watched
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) enforce_percent: Option<u8>,

    /// How long it holds, such as 30min [default: until it is cleared]
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) life: Option<String>,

    /// Why: the audit log has it
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Who: the audit log has it
    #[arg(long, value_name = "TEXT", env = "RATEKEEPER_AUTHOR")]
    pub(crate) author: Option<String>,

    /// Do it without asking, where it is about more than one rule
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ClearSwitchOptions {
    /// service/rule, service/* or *
    #[arg(value_name = "RULE")]
    pub(crate) rule: String,

    /// Only the block of this key, such as user:42
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Do it without asking, where it is about more than one rule
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EmergencyCommand {
    /// Lets everything pass, for a while
    #[command(
        after_help = "Example:\n  ratekeeper emergency lift '*' --for 15min --server http://127.0.0.1:8080"
    )]
    Lift(EmergencyOptions),
    /// Lets nothing pass, for a while
    Block(EmergencyOptions),
    /// Ends an emergency before its time
    #[command(after_help = "Exit status: 0 ended, 1 there was none, 2 could not do it.")]
    Clear(ClearSwitchOptions),
}

impl EmergencyCommand {
    pub(crate) fn target(&self) -> &TargetOptions {
        match self {
            Self::Lift(options) | Self::Block(options) => &options.target,
            Self::Clear(options) => &options.target,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct EmergencyOptions {
    /// service/rule, service/* for all rules of a service, or * for all rules and charges without a policy
    #[arg(value_name = "RULE")]
    pub(crate) rule: String,

    /// Only this key of it, such as user:42; for blocks alone
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// How long it holds, such as 15min: it ends by itself
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) life: String,

    /// Why: the audit log has it
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Who: the audit log has it
    #[arg(long, value_name = "TEXT", env = "RATEKEEPER_AUTHOR")]
    pub(crate) author: Option<String>,

    /// Do it without asking, where it is about more than one rule
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) target: TargetOptions,
}
