//! `ratekeeper policy convert`: limits of envoyproxy/ratelimit and Limitador as a policy of ours.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use ratekeeper::bounds::BYTES_MAX;
use ratekeeper::policy::Format;
use ratekeeper::policy::import::{Converted, Foreign, convert as converted};
use ratekeeper_server::files;

use super::{format_of, report};
use crate::cli::{PolicyConvertOptions, Syntax};
use crate::failure::Failure;
use crate::printed;

pub(crate) fn convert(options: &PolicyConvertOptions) -> anyhow::Result<ExitCode> {
    let read = options.files.iter().map(|path| foreign(path, options.syntax));
    let read = read.collect::<anyhow::Result<Vec<Foreign>>>()?;
    let mut err = anstream::stderr();
    let all = match converted(&read) {
        Ok(all) => all,
        Err(problems) => {
            let printed = problems.iter().try_for_each(|problem| report::line(&mut err, problem, false));
            return printed::with_status(printed, 1);
        }
    };
    let only = chosen(&all, options.service.as_deref())?;
    let warned = only.warnings.iter().try_for_each(|warning| report::line(&mut err, warning, true));
    let printed = warned.and_then(|()| anstream::stdout().write_all(only.toml.as_bytes()));
    printed::with_status(printed, 0)
}

fn foreign(path: &Path, syntax: Option<Syntax>) -> anyhow::Result<Foreign> {
    let format = syntax.map(format_of).or_else(|| Format::of_path(path)).ok_or_else(|| {
        let message = format!("{}: its ending says no format; expected .yaml, .yml or .json", path.display());
        Failure::new(message).hint("--syntax yaml or json says what it is written in")
    })?;
    let document = files::bytes(path, BYTES_MAX as u64)?;
    Ok(Foreign { source: path.display().to_string(), format, document })
}

/// The one that is meant: a policy in TOML is of one service.
fn chosen<'c>(all: &'c [Converted], service: Option<&str>) -> Result<&'c Converted, Failure> {
    let services: Vec<&str> = all.iter().map(|one| one.spec.service.as_str()).collect();
    let hint = || format!("there are limits of {}", services.join(", "));
    match (all, service) {
        (_, Some(service)) => all
            .iter()
            .find(|one| one.spec.service == service)
            .ok_or_else(|| Failure::new(format!("there are no limits of `{service}`")).hint(hint())),
        ([only], None) => Ok(only),
        _ => {
            Err(Failure::new(format!("{} services; a policy is of one: --service NAME", all.len()))
                .hint(hint()))
        }
    }
}
