//! The command line, as it is typed.

pub(crate) mod look;
pub(crate) mod operate;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use self::look::{
    AuditOptions, CountersOptions, ExplainOptions, InspectOptions, PoliciesOptions, ResetOptions,
    TokenCommand, TopOptions, UsageOptions,
};
use self::operate::{EmergencyCommand, ModeCommand, OverridesCommand};
use crate::commands::serve::ServeOptions;

/// Exact, explained, all-or-nothing rate limits.
#[derive(Debug, Parser)]
#[command(name = "ratekeeper", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What was typed, and where each of it comes from.
pub(crate) fn parse() -> Result<(Command, ArgMatches), clap::Error> {
    let mut command = without_empty_variables(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((cli.command, matches))
}

/// An empty variable says nothing: in files of service managers and compose, that is
/// how one is taken away.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| if arg.get_env().is_some_and(is_empty) { arg.env(Resettable::Reset) } else { arg })
        .mut_subcommands(without_empty_variables)
}

/// The variable that says what a command line is refused for, if nobody has typed it.
pub(crate) fn variable_to_blame(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = shown.split([' ', '=', '[']).next().filter(|flag| flag.starts_with("--"))?;
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if words.iter().any(|word| word.split('=').next() == Some(flag)) {
        return None;
    }
    let command = Cli::command();
    let mut arguments = command.find_subcommand(words.get(1)?)?.get_arguments();
    let argument = arguments.find(|argument| argument.get_long() == flag.strip_prefix("--"))?;
    argument.get_env().map(|variable| variable.to_string_lossy().into_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Decides on one request, and says why
    #[command(after_help = CHECK_HELP)]
    Check(Box<CheckOptions>),
    /// Shows three layered limits at work, live, in the terminal
    Demo(DemoOptions),
    /// Looks at a store and at policies: what to fix, and how
    #[command(after_help = "Exit status: 0 nothing must be fixed, 1 something must, 2 could not look.\n\
                      Under a key of its own, doctor makes decisions on the store and deletes them again.")]
    Doctor(DoctorOptions),
    /// Works with policies: limits in files
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Gives customers other limits: overrides of projects and organisations
    #[command(subcommand)]
    Overrides(OverridesCommand),
    /// Switches rules on, off or to monitoring
    #[command(subcommand)]
    Mode(ModeCommand),
    /// Lifts or blocks limits in an emergency, for a while
    #[command(subcommand)]
    Emergency(EmergencyCommand),
    /// Shows the counters of a key: what is left of which limit, and until when
    #[command(after_help = LOOK_HELP)]
    Inspect(InspectOptions),
    /// Forgets what a key has used, under every rule or one
    #[command(after_help = RESET_HELP)]
    Reset(ResetOptions),
    /// Lists the counters of a service, a rule or an organisation, a page at a time
    Counters(CountersOptions),
    /// Shows what a project or a key has used and has left under every rule
    #[command(after_help = LOOK_HELP)]
    Usage(UsageOptions),
    /// Says why a request or a key is limited, and when it passes again
    #[command(after_help = "Exit status: 0 it passes, 1 it would be denied, 2 could not look.\n\
                            Of a key alone, the conditions of rules are not looked at: there is no request.")]
    Explain(Box<ExplainOptions>),
    /// Shows the keys and rules that are limited most, live
    Top(TopOptions),
    /// Shows the policy in force: its limits, plans and custom limits, and its history
    Policies(PoliciesOptions),
    /// Shows who changed what
    Audit(AuditOptions),
    /// Makes tokens for the calls of a server that take one
    #[command(subcommand)]
    Token(TokenCommand),
    /// Serves decisions over HTTP, until it is told to stop
    Serve(Box<ServeOptions>),
    /// Prints a script that completes what is typed
    #[command(after_help = "For this session:  source <(ratekeeper completions bash)\n\
                            For all to come:   ratekeeper completions fish > ~/.config/fish/completions/ratekeeper.fish")]
    Completions(CompletionsOptions),
    /// Prints versions: of the program, of its script, of what is kept in stores
    Version(VersionOptions),
}

impl Command {
    /// How it was told to print: what it could not do is said so, too.
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Check(options) => options.format,
            Self::Doctor(options) => options.format,
            Self::Policy(PolicyCommand::Check(options)) => options.format,
            Self::Policy(PolicyCommand::Test(options)) => options.format,
            Self::Overrides(command) => command.target().format,
            Self::Mode(command) => command.target().format,
            Self::Emergency(command) => command.target().format,
            Self::Inspect(options) => options.look.target.format,
            Self::Reset(options) => options.of.look.target.format,
            Self::Counters(options) => options.target.format,
            Self::Usage(options) => options.look.target.format,
            Self::Explain(options) => options.look.target.format,
            Self::Top(options) => options.target.format,
            Self::Policies(options) => options.look.target.format,
            Self::Audit(options) => options.target.format,
            Self::Token(TokenCommand::New(options)) => options.format,
            Self::Version(options) => options.format,
            Self::Policy(PolicyCommand::Convert(_))
            | Self::Demo(_)
            | Self::Serve(_)
            | Self::Completions(_) => Format::Text,
        }
    }
}

const RESET_HELP: &str = "Exit status: 0 counters were forgotten, 1 there was none, 2 could not do it.";

const LOOK_HELP: &str = "Exit status: 0 there is something to show, 1 there is nothing, 2 could not look.";

const CHECK_HELP: &str = "\
Exit status: 0 allowed, 1 denied, 2 could not decide.

Examples:
  ratekeeper check user:42 100/60s
  ratekeeper check user:42 second=10/s hour=1000/h --and ip:192.0.2.7 20/s --cost 3
  ratekeeper check --policy policy.toml --path /search --claim user=ann --peek";

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// Whose quota it is, such as user:42; with --policy, the key of rules with `caller_key`
    #[arg(value_name = "KEY", required_unless_present = "policy")]
    pub(crate) key: Option<String>,

    /// How much in how long: 100/60s, '10/s burst 20', '{rps=20, rpm=1000}'; NAME=QUOTA tells
    /// several of one key apart
    #[arg(value_name = "QUOTA", required_unless_present = "policy")]
    pub(crate) quotas: Vec<String>,

    /// Another key and its quota, in the same decision: all are charged, or none
    #[arg(long, value_names = ["KEY", "QUOTA"], num_args = 2, action = clap::ArgAction::Append)]
    pub(crate) and: Vec<String>,

    /// How many units to ask for; rules of a policy that say themselves what a request costs do not care
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    pub(crate) cost: u64,

    /// Only look: charge nothing, write nothing
    #[arg(long)]
    pub(crate) peek: bool,

    /// Charge once, however often it is asked under this id within ten minutes
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,

    /// A policy, or a folder of policies, to decide by
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) request: RequestOptions,

    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// How to print the decision
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// What a policy can see of a request.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request, for policies")]
pub(crate) struct RequestOptions {
    /// Whose policy of those in a folder
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,

    /// The HTTP method [default: GET]
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// The path, with or without a query [default: /]
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,

    /// The route that the service would have matched, such as /datasets/{id}
    #[arg(long, value_name = "ROUTE")]
    pub(crate) route: Option<String>,

    /// A header, such as 'x-api-key: abc'; more than once for more
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,

    /// The body, as JSON; @FILE reads it, @- from standard input
    #[arg(long, value_name = "JSON")]
    pub(crate) body: Option<String>,

    /// The address at the other end of the connection
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<IpAddr>,

    /// What is known about the caller, such as user=ann or plan=paid; more than once for more
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) claim: Vec<String>,
}

impl RequestOptions {
    /// Whether nothing of a request was typed, only perhaps whose policy it is.
    pub(crate) fn is_unsaid(&self) -> bool {
        self.all_said().into_iter().all(|(flag, is_said)| !is_said || flag == "--service")
    }

    /// The first flag of it that was typed.
    pub(crate) fn first_said(&self) -> Option<&'static str> {
        self.all_said().into_iter().find_map(|(flag, is_said)| is_said.then_some(flag))
    }

    /// Every flag of it, and whether it was typed.
    fn all_said(&self) -> [(&'static str, bool); 8] {
        [
            ("--service", self.service.is_some()),
            ("--method", self.method.is_some()),
            ("--path", self.path.is_some()),
            ("--route", self.route.is_some()),
            ("--header", !self.header.is_empty()),
            ("--body", self.body.is_some()),
            ("--peer", self.peer.is_some()),
            ("--claim", !self.claim.is_empty()),
        ]
    }

    pub(crate) fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("GET")
    }

    pub(crate) fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }
}

/// How to reach a store.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreOptions {
    /// Where counters are: memory, or the URL of a server [default: what the policy says, or memory]
    ///
    /// Other people on the machine can see what is on a command line; the environment keeps a
    /// password to yourself.
    #[arg(long, value_name = "URL", env = "RATEKEEPER_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// Certificates to trust for rediss://, in PEM form, instead of the system's
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_STORE_CA")]
    pub(crate) store_ca: Option<PathBuf>,

    /// The password of the store is in this file, which is read again for every new connection
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_STORE_PASSWORD_FILE")]
    pub(crate) store_password_file: Option<PathBuf>,

    /// Milliseconds to wait for the store
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) timeout: u64,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// A policy, or a folder of policies, to look at as well
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// Milliseconds that services let the store be silent: answers are held against it
    #[arg(long, value_name = "MS", env = "RATEKEEPER_STORE_DEADLINE", default_value_t = 25)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000), help_heading = "Store")]
    pub(crate) store_deadline: u64,

    /// How to print what was found
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct VersionOptions {
    /// How to print it
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Says what is wrong with policies before they are used
    #[command(after_help = "Exit status: 0 all are good, 1 one is wrong, 2 one could not be read.")]
    Check(PolicyCheckOptions),
    /// Turns limits of envoyproxy/ratelimit or Limitador into a policy, on standard output
    #[command(
        after_help = "Exit status: 0 converted, 1 something is wrong with them, 2 could not read them.\n\
                      docs/envoy-ratelimit.md says what differs."
    )]
    Convert(PolicyConvertOptions),
    /// Tests what a policy decides, in virtual time
    #[command(after_help = "Exit status: 0 all is as expected, 1 something is not, 2 could not test.\n\
                      docs/cli.md says what cases look like.")]
    Test(PolicyTestOptions),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestOptions {
    /// Cases in TOML: requests, and what should become of them
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// The policy to test, instead of the one that the cases name
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// How to print what was found
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyConvertOptions {
    /// Files of one of them; those for one domain are put together
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// The domain or namespace to convert, where the files have several
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,

    /// What FILE is written in; otherwise its ending says it
    #[arg(long, value_name = "SYNTAX", value_enum)]
    pub(crate) syntax: Option<Syntax>,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyCheckOptions {
    /// Policies, and folders of policies; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// How to print what was found
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// What FILE is written in; otherwise its ending says it
    #[arg(long, value_name = "SYNTAX", value_enum)]
    pub(crate) syntax: Option<Syntax>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs: an object on a line of its own
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
