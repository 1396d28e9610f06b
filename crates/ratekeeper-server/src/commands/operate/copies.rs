//! All overrides of a store as lines of JSON, for those who keep them elsewhere as well.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use ratekeeper_server::files;
use serde_json::{Value as Json, json};

use super::confirm::confirm;
use super::target::Target;
use super::{in_runtime, refused, report};
use crate::cli::Format;
use crate::cli::operate::{ImportOptions, TargetOptions};
use crate::failure::Failure;
use crate::printed;

/// The longest file of overrides, in bytes: some 300 for each of 100,000.
const FILE_BYTES_MAX: u64 = 64 << 20;

pub(super) fn export(options: &TargetOptions) -> anyhow::Result<ExitCode> {
    let mut answer = in_runtime(async {
        let (status, body) =
            Target::of(options, None).await?.call("/v1/overrides/list", Some(&json!({}))).await?;
        if status == 200 { Ok(body) } else { Err(refused(status, &body)) }
    })?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut lines = answer["overrides"].as_array_mut().into_iter().flatten();
    let printed = lines.try_for_each(|line| {
        // Elsewhere it is somewhere else.
        line.as_object_mut().map(|line| line.remove("server"));
        writeln!(out, "{line}")
    });
    let printed = printed.and_then(|()| out.flush());
    printed::with_status(printed, 0)
}

pub(super) fn import(options: &ImportOptions) -> anyhow::Result<ExitCode> {
    let lines = read(options)?;
    let is_asked = !options.yes && !lines.is_empty();
    let question = is_asked.then(|| format!("set {} overrides, also where there are others?", lines.len()));
    confirm(question.as_deref())?;
    let (set, ended) = in_runtime(set_all(options, &lines))?;
    let printed = match options.target.format {
        Format::Text if ended > 0 => {
            report::text(&format!("set {set}; {ended} have ended and were left out"))
        }
        Format::Text => report::text(&format!("set {set}")),
        Format::Json => report::line(&json!({ "set": set, "ended": ended }).to_string()),
    };
    printed::with_status(printed, 0)
}

/// Every line, before anything is set.
fn read(options: &ImportOptions) -> Result<Vec<(usize, Json)>, Failure> {
    let shown = options.file.display();
    let text = if options.file.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(Failure::new)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(Failure::new(format!("-: expected at most {FILE_BYTES_MAX} bytes")));
        }
        Ok(text)
    } else {
        files::text(&options.file, FILE_BYTES_MAX).map_err(|error| Failure::new(format!("{error:#}")))
    }?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(index, line)| match serde_json::from_str::<Json>(line) {
        Ok(call) if call.is_object() => Ok((index + 1, call)),
        Ok(_) => Err(wrong_line(&shown, index + 1, "expected an object")),
        Err(error) => Err(wrong_line(&shown, index + 1, &error.to_string())),
    });
    read.collect()
}

fn wrong_line(file: &dyn std::fmt::Display, line: usize, what: &str) -> Failure {
    Failure::new(format!("{file}:{line}: {what}; nothing was set"))
        .hint("`ratekeeper overrides export` prints what is read here")
}

/// How many were set, and how many had ended before.
async fn set_all(options: &ImportOptions, lines: &[(usize, Json)]) -> Result<(usize, usize), Failure> {
    let target = Target::of(&options.target, None).await?;
    let (mut set, mut ended) = (0, 0);
    for (line, call) in lines {
        let stopped = |why: Failure| Failure {
            message: format!("{}:{line}: {}; {set} before it were set", options.file.display(), why.message),
            ..why
        };
        let (status, body) = target.call("/v1/overrides/set", Some(call)).await.map_err(stopped)?;
        match status {
            200 => set += 1,
            422 if body["field"] == "until_us" && call["until_us"].is_u64() && call["for"].is_null() => {
                ended += 1;
            }
            status => return Err(stopped(refused(status, &body))),
        }
    }
    Ok((set, ended))
}
