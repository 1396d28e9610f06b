//! `ratekeeper token new`: a token, and the line with its hash.

use std::io::{self, Write as _};
use std::process::ExitCode;

use ratekeeper_server::serve::{Token, role_of};
use serde_json::json;

use crate::cli::Format;
use crate::cli::look::{RoleName, TokenCommand};
use crate::failure::Failure;
use crate::printed;

pub(crate) fn run(command: &TokenCommand) -> anyhow::Result<ExitCode> {
    let TokenCommand::New(options) = command;
    let word = match options.role {
        RoleName::Read => "read",
        RoleName::Operate => "operate",
        RoleName::Usage => "usage",
    };
    let part = |name: &str, id: &Option<String>| id.as_ref().map(|id| format!("{name}={id}"));
    let scope = [part("organisation", &options.organisation), part("project", &options.project)];
    let scope: Vec<&str> = scope.iter().flatten().map(String::as_str).collect();
    let role = role_of(word, &scope).map_err(|error| Failure::new(format!("--role {word}: {error:#}")))?;
    let (token, kept) =
        Token::random(&options.name, role).map_err(|error| Failure::new(format!("--{error:#}")))?;
    let mut out = io::stdout().lock();
    let printed = match options.format {
        Format::Text => writeln!(out, "token  {token}\nline   {}", kept.line()),
        Format::Json => writeln!(out, "{}", json!({ "token": token, "line": kept.line() })),
    };
    printed::with_status(printed, 0)
}
