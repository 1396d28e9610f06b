//! `ratekeeper overrides`, `mode` and `emergency`: what operators change while everything runs.
//!
//! Each is a call of the HTTP API: sent to a server, or answered in this process on the store itself. So both say
//! the same, and what is wrong is said by one reader.

mod confirm;
mod copies;
mod remote;
pub(super) mod report;
pub(super) mod target;

use std::path::Path;
use std::process::ExitCode;

use ratekeeper::{ALL_RULES, printable};
use serde_json::{Value as Json, json};

use self::confirm::confirm;
use self::target::Target;
use super::opened::runtime;
use crate::cli::Format;
use crate::cli::operate::{
    EmergencyCommand, EmergencyOptions, ModeCommand, ModeName, OneOverrideOptions, OverridesCommand,
    OwnerOptions, SetOverrideOptions, TargetOptions,
};
use crate::failure::Failure;
use crate::printed;

/// The call that may find nothing.
const ONE_OVERRIDE: &str = "/v1/overrides/get";
/// How much of what a server says is shown.
const DETAIL_CHARS_MAX: usize = 500;

/// A call, and what is printed of its answer.
pub(super) struct Operation<'o> {
    pub(super) path: &'static str,
    /// Nothing for a call that only looks.
    pub(super) body: Option<Json>,
    pub(super) target: &'o TargetOptions,
    /// The policy to look by on a store, which has none.
    pub(super) policy: Option<&'o Path>,
    /// For people.
    pub(super) words: fn(&Json) -> String,
    /// Whether the status of the command is 0.
    pub(super) is_good: fn(&Json) -> bool,
    /// What is asked before something broad is done.
    pub(super) question: Option<String>,
}

/// Whether a change changed anything.
fn is_changed(answer: &Json) -> bool {
    answer["deleted"] != json!(0) && answer["cleared"] != json!(false)
}

pub(crate) fn overrides(command: &OverridesCommand) -> anyhow::Result<ExitCode> {
    let operation = match command {
        OverridesCommand::Set(options) => Operation {
            path: "/v1/overrides/set",
            body: Some(set_override(options)),
            target: &options.target,
            policy: options.policy.as_deref(),
            is_good: is_changed,
            words: report::override_set,
            question: (options.owner.project.is_none() && !options.yes).then(|| {
                let owner = report::owner_in_words(&owner(&options.owner));
                let endpoint = report::shown(&json!(options.endpoint));
                format!("set {} on {endpoint} for all projects of {owner}?", options.limit)
            }),
        },
        OverridesCommand::Get(options) => one_override(ONE_OVERRIDE, options, report::one_override),
        OverridesCommand::Delete(options) => one_override("/v1/overrides/delete", options, report::deleted),
        OverridesCommand::List(options) => Operation {
            path: "/v1/overrides/list",
            body: Some(json!({ "organisation": options.organisation, "project": options.project })),
            target: &options.target,
            policy: None,
            is_good: is_changed,
            words: report::overrides,
            question: None,
        },
        OverridesCommand::Clear(options) => Operation {
            path: "/v1/overrides/clear",
            body: Some(owner(&options.all.owner)),
            target: &options.all.target,
            policy: None,
            is_good: is_changed,
            words: report::deleted,
            question: (!options.yes).then(|| {
                format!("delete all overrides of {}?", report::owner_in_words(&owner(&options.all.owner)))
            }),
        },
        OverridesCommand::Export(options) => return copies::export(&options.target),
        OverridesCommand::Import(options) => return copies::import(options),
    };
    operation.run()
}

pub(crate) fn mode(command: &ModeCommand) -> anyhow::Result<ExitCode> {
    let operation = match command {
        ModeCommand::Get(options) => Operation {
            path: "/v1/switches",
            body: None,
            target: &options.target,
            policy: None,
            is_good: is_changed,
            words: report::switches,
            question: None,
        },
        ModeCommand::Set(options) => {
            let mode = match options.mode {
                ModeName::On => "on",
                ModeName::Monitor => "monitor",
                ModeName::Off => "off",
            };
            Operation {
                path: "/v1/modes/set",
                body: Some(json!({
                    "rule": options.rule, "mode": mode, "enforce_percent": options.enforce_percent,
                    "for": options.life, "reason": options.reason, "author": options.author,
                })),
                target: &options.target,
                policy: None,
                is_good: is_changed,
                words: report::switch_set,
                question: broad(&options.rule, options.yes).map(|reach| format!("switch {reach} to {mode}?")),
            }
        }
        ModeCommand::Clear(options) => Operation {
            path: "/v1/modes/clear",
            body: Some(json!({ "rule": options.rule, "key": options.key })),
            target: &options.target,
            policy: None,
            is_good: is_changed,
            words: report::cleared,
            question: broad(&options.rule, options.yes)
                .map(|reach| format!("take back the mode of {reach}?")),
        },
    };
    operation.run()
}

pub(crate) fn emergency(command: &EmergencyCommand) -> anyhow::Result<ExitCode> {
    let operation = match command {
        EmergencyCommand::Lift(options) => set_emergency(options, "lift"),
        EmergencyCommand::Block(options) => set_emergency(options, "block"),
        EmergencyCommand::Clear(options) => Operation {
            path: "/v1/emergencies/clear",
            body: Some(json!({ "rule": options.rule, "key": options.key })),
            target: &options.target,
            policy: None,
            is_good: is_changed,
            words: report::cleared,
            // The end of the block of one key reaches that key alone.
            question: broad(&options.rule, options.yes || options.key.is_some())
                .map(|reach| format!("end the emergency of {}?", with_charges(&options.rule, reach))),
        },
    };
    operation.run()
}

fn set_emergency<'o>(options: &'o EmergencyOptions, word: &str) -> Operation<'o> {
    Operation {
        path: "/v1/emergencies/set",
        body: Some(json!({
            "rule": options.rule, "key": options.key, "emergency": word, "for": options.life, "reason": options.reason,
            "author": options.author,
        })),
        target: &options.target,
        policy: None,
        is_good: is_changed,
        words: report::switch_set,
        question: broad(&options.rule, options.yes).map(|reach| {
            let reach = with_charges(&options.rule, reach);
            match &options.key {
                Some(key) => format!("{word} {} in {reach}?", report::shown(&json!(key))),
                None => format!("{word} {reach}?"),
            }
        }),
    }
}

/// What a name reaches, if that is more than one rule, and whoever types wants to be asked then.
fn broad(rule: &str, yes: bool) -> Option<String> {
    let reach = match rule.strip_suffix("/*") {
        Some(service) => format!("all rules of {}", report::shown(&json!(service))),
        None if rule == ALL_RULES => "all rules of all services".to_owned(),
        None => return None,
    };
    (!yes).then_some(reach)
}

/// What an emergency reaches: one for everything reaches charges that have no rule, too.
fn with_charges(rule: &str, reach: String) -> String {
    if rule == ALL_RULES { format!("{reach} and all charges without a policy") } else { reach }
}

fn set_override(options: &SetOverrideOptions) -> Json {
    let mut call = owner(&options.owner);
    call["endpoint"] = json!(options.endpoint);
    call["limit"] = json!(options.limit);
    call["window"] = json!(options.window);
    call["for"] = json!(options.life);
    call["reason"] = json!(options.reason);
    call["author"] = json!(options.author);
    if options.relief {
        call["relief"] = json!(true);
    }
    call
}

fn one_override<'o>(
    path: &'static str,
    options: &'o OneOverrideOptions,
    words: fn(&Json) -> String,
) -> Operation<'o> {
    let mut call = owner(&options.owner);
    call["endpoint"] = json!(options.endpoint);
    Operation {
        path,
        body: Some(call),
        target: &options.target,
        policy: None,
        is_good: is_changed,
        words,
        question: None,
    }
}

fn owner(options: &OwnerOptions) -> Json {
    json!({ "organisation": options.organisation, "project": options.project })
}

impl Operation<'_> {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let answer = self.answered()?;
        let printed = match self.target.format {
            Format::Text => report::text(&(self.words)(&answer.body)),
            Format::Json => report::line(&answer.body.to_string()),
        };
        printed::with_status(printed, u8::from(!answer.is_found))
    }

    fn answered(&self) -> Result<Found, Failure> {
        confirm(self.question.as_deref())?;
        in_runtime(async {
            let target = Target::of(self.target, self.policy).await?;
            let (status, body) = target.call(self.path, self.body.as_ref()).await?;
            Found::of(self.path, status, body, self.is_good)
        })
    }
}

pub(super) fn in_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    runtime().map_err(|error| Failure::new(format!("{error:#}")))?.block_on(work)
}

/// An answer, and whether what was asked about is there.
struct Found {
    body: Json,
    is_found: bool,
}

impl Found {
    fn of(path: &str, status: u16, body: Json, is_good: fn(&Json) -> bool) -> Result<Self, Failure> {
        match status {
            200 => Ok(Self { is_found: is_good(&body), body }),
            // Of any other call, it is the call itself that is not there.
            404 if path == ONE_OVERRIDE => Ok(Self { body, is_found: false }),
            status => Err(refused(status, &body)),
        }
    }
}

/// What a problem document says, and what to do about it.
pub(super) fn refused(status: u16, body: &Json) -> Failure {
    let detail = body["detail"].as_str().unwrap_or("the server gave no reason");
    let failure = Failure::new(printable(detail, DETAIL_CHARS_MAX));
    match status {
        404 => failure.hint(
            "--server is the address of `ratekeeper serve` without a path, of this version or a newer one",
        ),
        401 => failure.hint(
            "--admin-token-file FILE, or the variable RATEKEEPER_ADMIN_TOKEN, has the token of operators",
        ),
        429 => failure.hint("wait, and correct the token: each wrong one counts"),
        403 => {
            failure.hint("a token of the role operate may do everything: `ratekeeper token new` makes one for `serve --tokens`")
        }
        503 => failure.hint("`ratekeeper doctor` looks at the store"),
        _ => failure,
    }
}
