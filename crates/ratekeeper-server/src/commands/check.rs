//! `ratekeeper check`: one decision from the shell.
//!
//! It is made as a service would make it, on the same counters. Only an outage is no
//! decision here: a rule may let requests pass meanwhile, but whoever asks by hand
//! wants to know that nobody counted.

mod quotas;
mod report;
mod request;

use std::io::Write;
use std::process::ExitCode;

use ratekeeper::{Decision, OpenedStore, Origin, StoreUrl};

use self::request::ByPolicy;
pub(super) use self::request::body_of;
use super::opened::{Address, runtime, unanswered};
use crate::cli::{CheckOptions, Format};
use crate::failure::Failure;
use crate::printed;

pub(crate) fn run(options: &CheckOptions) -> anyhow::Result<ExitCode> {
    let (decision, seen) = runtime()?.block_on(decide(options))?;
    let printed = match options.format {
        Format::Text => report::text(&decision, &seen),
        Format::Json => report::json(&decision, &seen),
    };
    printed::with_status(printed, u8::from(!decision.is_allowed()))
}

async fn decide(options: &CheckOptions) -> Result<(Decision, Seen), Failure> {
    let (decision, seen) = match &options.policy {
        None => {
            if let Some(flag) = options.request.first_said() {
                return Err(Failure::new(format!("got {flag} without --policy <FILE>; expected it beside"))
                    .hint("quotas on the command line see nothing of a request"));
            }
            let charges = quotas::read(options)?;
            let opened = open(options, None).await?;
            let decision = quotas::decide(&opened, &charges, options).await?;
            let names = charges.iter().map(|charge| charge.name().to_owned()).collect();
            (decision, Seen { names, ..Seen::default() })
        }
        Some(_) if !options.quotas.is_empty() || !options.and.is_empty() => {
            return Err(Failure::new("got quotas and --policy; expected one of them")
                .hint("a policy has quotas of its own: `ratekeeper check --policy FILE --claim user=ann`"));
        }
        Some(path) => {
            let by = ByPolicy::read(path, options)?;
            let opened = open(options, by.store()).await?;
            by.decide(&opened, options).await?
        }
    };
    if decision.origin() == Origin::Outage {
        let would = if decision.is_allowed() { "let the request pass" } else { "refuse the request" };
        return Err(Failure::new("the store did not answer").hint(format!(
            "by its failure policy, a service would {would}; `ratekeeper doctor` looks at the store"
        )));
    }
    Ok((decision, seen))
}

/// What is shown beside a decision.
#[derive(Default)]
struct Seen {
    /// The names of quotas that were typed, in the order of the charges.
    names: Vec<String>,
    /// The rules that apply, each with its key.
    keys: Vec<(&'static str, String)>,
    /// The others, and why they do not.
    not_applied: Vec<(&'static str, &'static str)>,
}

impl Seen {
    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }
}

/// The store, which has answered.
async fn open(options: &CheckOptions, of_policy: Option<StoreUrl>) -> Result<OpenedStore, Failure> {
    let address = Address::of(&options.store, of_policy)?;
    let opened = address.open()?;
    opened.ping().await.map_err(|error| unanswered(&error))?;
    let is_lost = address.url.is_memory() && address.url.directory().is_none();
    if is_lost && options.format == Format::Text && !options.peek {
        let _ = writeln!(
            anstream::stderr(),
            "note: counted in memory, which ends with this command; --store URL counts on a server"
        );
    }
    Ok(opened)
}
