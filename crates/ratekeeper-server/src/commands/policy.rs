//! `ratekeeper policy`: what is wrong with policies, before they are used, and limits of others as policies.
//!
//! `check` reads and compiles them as a service would, so what passes here comes
//! into force there.

mod convert;
mod report;
mod test;

pub(crate) use self::convert::convert;
pub(crate) use self::test::test;

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use ratekeeper::bounds::BYTES_MAX;
use ratekeeper::policy::source::file::{FileError, read_policies};
use ratekeeper::policy::{
    CompileOptions, Format, Limits, Needs, Policy, PolicySpec, Problem, Problems, StoreUrl,
};

use crate::cli::{Format as Output, PolicyCheckOptions, Syntax};
use crate::printed;

/// What standard input is called.
const STDIN: &str = "stdin";

/// What was found out about one policy.
pub(super) struct Checked {
    pub(super) file: String,
    /// Other files of the same policy.
    pub(super) others: Vec<String>,
    pub(super) verdict: Verdict,
}

impl Checked {
    fn of(file: String, verdict: Verdict) -> Self {
        Self { file, others: Vec::new(), verdict }
    }

    /// The store that it names.
    pub(super) fn store(&self) -> Option<&StoreUrl> {
        match &self.verdict {
            Verdict::Good(summary) => summary.store.as_ref(),
            Verdict::Wrong(_) | Verdict::Unread { .. } => None,
        }
    }
}

pub(super) enum Verdict {
    Good(Summary),
    Wrong(Problems),
    /// It could not be read: why, and what to do about it.
    Unread {
        error: String,
        hint: Option<String>,
    },
}

/// What there is to say about a good policy.
pub(super) struct Summary {
    pub(super) service: String,
    pub(super) rules: usize,
    quotas: usize,
    needs: Needs,
    store: Option<StoreUrl>,
    pub(super) warnings: Vec<Problem>,
}

pub(crate) fn check(options: &PolicyCheckOptions) -> anyhow::Result<ExitCode> {
    let checked: Vec<Checked> = options.files.iter().flat_map(|file| read(file, options.syntax)).collect();
    let printed = match options.format {
        Output::Text => report::text(&checked),
        Output::Json => report::json(&checked),
    };
    let status = checked.iter().map(|checked| match checked.verdict {
        Verdict::Good(_) => 0,
        Verdict::Wrong(_) => 1,
        Verdict::Unread { .. } => 2,
    });
    printed::with_status(printed, status.max().unwrap_or(0))
}

/// Checks a file, all files of a folder, or standard input.
pub(super) fn read(path: &Path, syntax: Option<Syntax>) -> Vec<Checked> {
    let format = syntax.map(format_of);
    if path == Path::new("-") {
        return vec![Checked::of(STDIN.to_owned(), standard_input(format))];
    }
    let name = |path: &Path| path.display().to_string();
    match read_policies(path, format) {
        Ok(policies) if policies.is_empty() => {
            let error = "has no policies".to_owned();
            let hint = Some("policies end in .toml, .yaml, .yml or .json".to_owned());
            vec![Checked::of(name(path), Verdict::Unread { error, hint })]
        }
        Ok(policies) => {
            let checked = policies.into_iter().map(|read| {
                let file = name(&read.path);
                let verdict = match read.policy {
                    Ok(spec) => compiled(&file, &spec),
                    Err(error) => refused(&read.path, error),
                };
                Checked {
                    others: read.others.iter().map(|other| name(other)).collect(),
                    ..Checked::of(file, verdict)
                }
            });
            checked.collect()
        }
        Err(error) => vec![Checked::of(name(path), refused(path, error))],
    }
}

fn format_of(syntax: Syntax) -> Format {
    match syntax {
        Syntax::Toml => Format::Toml,
        Syntax::Yaml => Format::Yaml,
        Syntax::Json => Format::Json,
    }
}

fn standard_input(format: Option<Format>) -> Verdict {
    let Some(format) = format else {
        let error = "nothing says what it is written in".to_owned();
        return Verdict::Unread { error, hint: Some("add --syntax toml, yaml or json".to_owned()) };
    };
    let mut document = Vec::new();
    if let Err(error) = std::io::stdin().take(BYTES_MAX as u64 + 1).read_to_end(&mut document) {
        return Verdict::Unread { error: error.to_string(), hint: None };
    }
    match PolicySpec::read(STDIN, format, &document) {
        Ok(spec) => compiled(STDIN, &spec),
        Err(problems) => Verdict::Wrong(problems),
    }
}

fn compiled(file: &str, spec: &PolicySpec) -> Verdict {
    let policy = match Policy::compile(spec, file, &CompileOptions::default()) {
        Ok(policy) => policy,
        Err(problems) => return Verdict::Wrong(problems),
    };
    let quotas = spec.rules.iter().map(|rule| match &rule.limits {
        Limits::Unlimited => 0,
        Limits::Quotas(quotas) => quotas.len(),
    });
    Verdict::Good(Summary {
        service: spec.service.clone(),
        rules: spec.rules.len(),
        quotas: quotas.sum(),
        needs: policy.needs(),
        store: spec.store.clone(),
        warnings: policy.warnings().to_vec(),
    })
}

fn refused(path: &Path, error: FileError) -> Verdict {
    match error {
        FileError::Wrong(mut documents) if documents.len() == 1 => Verdict::Wrong(documents.remove(0)),
        FileError::Ending { .. } => Verdict::Unread {
            error: "its ending says no format; expected .toml, .yaml, .yml or .json".to_owned(),
            hint: Some("--syntax toml, yaml or json says what it is written in".to_owned()),
        },
        FileError::Unreadable { reason, .. } => {
            let hint = if path.exists() { None } else { neighbours(path) };
            Verdict::Unread { error: reason, hint }
        }
        other => Verdict::Unread { error: other.to_string(), hint: None },
    }
}

/// The policies that are where one was looked for.
fn neighbours(path: &Path) -> Option<String> {
    const SHOWN_MAX: usize = 5;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // Whatever is written in something else was hardly meant, and may be no policy at all.
    let format = Format::of_path(path)?;
    let is_policy =
        |name: &String| !name.starts_with('.') && Format::of_path(Path::new(name)) == Some(format);
    let mut names: Vec<String> = names.filter(is_policy).collect();
    names.sort();
    let more = if names.len() > SHOWN_MAX { ", ..." } else { "" };
    names.truncate(SHOWN_MAX);
    (!names.is_empty()).then(|| format!("beside it are {}{more}", names.join(", ")))
}
