//! What was found out, for people and for programs.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use ratekeeper::policy::{Needs, Problem};
use serde::Serialize;

use super::{Checked, Summary, Verdict};

/// Good policies to stdout; everything else, which somebody has to act upon, to
/// stderr.
pub(super) fn text(checked: &[Checked]) -> io::Result<()> {
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    let mut problems = 0;
    for Checked { file, others, verdict } in checked {
        match verdict {
            Verdict::Good(summary) => {
                good(&mut out, &[std::slice::from_ref(file), others].concat().join(", "), summary)?;
                summary.warnings.iter().try_for_each(|warning| line(&mut err, warning, true))?;
            }
            Verdict::Wrong(wrong) => {
                problems += wrong.count();
                wrong.iter().try_for_each(|problem| line(&mut err, problem, false))?;
                let omitted = wrong.count() - wrong.iter().count();
                if omitted > 0 {
                    writeln!(err, "{file}: and {omitted} more")?;
                }
            }
            Verdict::Unread { error, hint } => unread(&mut err, file, error, hint.as_deref())?,
        }
    }
    if problems > 0 {
        let wrong = checked.iter().filter(|checked| matches!(checked.verdict, Verdict::Wrong(_))).count();
        let of = format!("{wrong} of {}", counted(checked.len(), "policy", "policies"));
        let verb = if wrong == 1 { "is" } else { "are" };
        writeln!(err, "\n{of} {verb} wrong: {}", counted(problems, "problem", "problems"))?;
    }
    Ok(())
}

fn good(out: &mut impl Write, file: &str, summary: &Summary) -> io::Result<()> {
    let green = AnsiColor::Green.on_default();
    let rules = counted(summary.rules, "rule", "rules");
    let quotas = counted(summary.quotas, "quota", "quotas");
    write!(out, "{green}ok{green:#} {file}: service {}, {rules}, {quotas}", summary.service)?;
    let needs = needs(summary.needs);
    if !needs.is_empty() {
        write!(out, "; needs {}", needs.join(", "))?;
    }
    writeln!(out)
}

/// A problem as the library prints it, which editors find their way by.
pub(super) fn line(err: &mut impl Write, problem: &Problem, is_warning: bool) -> io::Result<()> {
    let file = &problem.source;
    let (bold, yellow) = (Style::new().bold(), AnsiColor::Yellow.on_default());
    let (red, green) = (AnsiColor::Red.on_default(), AnsiColor::Green.on_default());
    write!(err, "{bold}{file}:")?;
    if problem.at.is_known() {
        write!(err, "{}:{}:", problem.at.line, problem.at.column)?;
    }
    write!(err, "{bold:#}")?;
    if is_warning {
        write!(err, " {yellow}warning:{yellow:#}")?;
    }
    if !problem.field.is_empty() {
        write!(err, " {}:", problem.field)?;
    }
    let (got, expected) = (&problem.got, &problem.expected);
    writeln!(err, " got {red}{got}{red:#}; expected {green}{expected}{green:#}")
}

fn unread(err: &mut impl Write, file: &str, error: &str, hint: Option<&str>) -> io::Result<()> {
    let (red, bold) = (AnsiColor::Red.on_default().bold(), Style::new().bold());
    writeln!(err, "{red}error:{red:#} {bold}{file}:{bold:#} {error}")?;
    hint.map_or(Ok(()), |hint| writeln!(err, "hint: {hint}"))
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn needs(needs: Needs) -> Vec<&'static str> {
    let known = [
        (needs.body, "body"),
        (needs.route, "route"),
        (needs.identity, "identity"),
        (needs.client, "client address"),
    ];
    known.into_iter().filter_map(|(is_needed, name)| is_needed.then_some(name)).collect()
}

#[derive(Serialize)]
struct JsonFile<'c> {
    file: &'c str,
    /// Other files of the same policy.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    others: &'c [String],
    ok: bool,
    /// Why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'c str>,
    #[serde(flatten)]
    summary: Option<JsonSummary<'c>>,
    problems: Vec<JsonProblem<'c>>,
    /// Problems beyond those that are listed.
    #[serde(skip_serializing_if = "is_zero")]
    omitted: usize,
    warnings: Vec<JsonProblem<'c>>,
}

#[derive(Serialize)]
struct JsonSummary<'c> {
    service: &'c str,
    rules: usize,
    quotas: usize,
    needs: Vec<&'static str>,
}

#[derive(Serialize)]
struct JsonProblem<'c> {
    /// The file, if it is one of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'c str>,
    line: Option<u32>,
    column: Option<u32>,
    field: &'c str,
    got: &'c str,
    expected: &'c str,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl<'c> JsonProblem<'c> {
    fn of(problem: &'c Problem, checked: &'c Checked) -> Self {
        let known = |number| problem.at.is_known().then_some(number);
        Self {
            file: (*problem.source != *checked.file).then_some(&*problem.source),
            line: known(problem.at.line),
            column: known(problem.at.column),
            field: &problem.field,
            got: &problem.got,
            expected: &problem.expected,
        }
    }
}

impl<'c> From<&'c Checked> for JsonFile<'c> {
    fn from(checked: &'c Checked) -> Self {
        let mut json = JsonFile {
            file: &checked.file,
            others: &checked.others,
            ok: false,
            error: None,
            summary: None,
            problems: Vec::new(),
            omitted: 0,
            warnings: Vec::new(),
        };
        let told = |problem: &'c Problem| JsonProblem::of(problem, checked);
        match &checked.verdict {
            Verdict::Good(summary) => {
                let Summary { service, rules, quotas, .. } = summary;
                let needs = needs(summary.needs);
                json.summary = Some(JsonSummary { service, rules: *rules, quotas: *quotas, needs });
                json.ok = true;
                json.warnings = summary.warnings.iter().map(told).collect();
            }
            Verdict::Wrong(problems) => {
                json.problems = problems.iter().map(told).collect();
                json.omitted = problems.count() - json.problems.len();
            }
            Verdict::Unread { error, .. } => json.error = Some(error),
        }
        json
    }
}

pub(super) fn json(checked: &[Checked]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for checked in checked {
        serde_json::to_writer(&mut out, &JsonFile::from(checked))?;
        writeln!(out)?;
    }
    Ok(())
}
