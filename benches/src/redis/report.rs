//! The report: Markdown, targets first.

use std::fmt::Write as _;

use ratekeeper_testkit::servers::Flavour;

use crate::conditions::Conditions;
use crate::machine::Pinning;
use crate::redis::FLAVOURS;
use crate::redis::accuracy::{EXACT, Finding};
use crate::redis::cells::{CALLERS, CALLERS_MAIN, Candidate, Cell, Row, rows};
use crate::redis::rounds::{Figures, Plan, Results};
use crate::redis::scenario::{HOT_ATTEMPTS, HOT_KEYS, HOT_LIMIT, KEYS};
use crate::report::{NOTHING, table, targets};
use crate::series::Series;
use crate::targets::Target;

/// Crates whose versions a reader needs to repeat a run.
const CRATES: [&str; 4] = ["ratekeeper", "limitador", "redis", "tokio"];

/// Everything a run found out.
#[derive(Debug)]
pub struct Report {
    /// Under what conditions.
    pub conditions: String,
    /// Promises.
    pub targets: Vec<Target>,
    /// Speed.
    pub results: Results,
    /// What should be admitted, and what was.
    pub accuracy: Vec<Finding>,
}

impl Report {
    /// The report as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let sections = [
            format!("## On Redis and Valkey\n\n{}", self.conditions),
            targets(&self.targets),
            speed(&self.results),
            accuracy(&self.accuracy),
        ];
        sections.join("\n")
    }
}

/// The conditions as a Markdown list. `about` says what servers and other peers there were.
#[must_use]
pub fn conditions(
    conditions: &Conditions,
    command: &str,
    plan: Plan,
    pinning: Pinning,
    about: &[String],
) -> String {
    let mut more = vec![("command", command.to_owned()), ("cores", pinning.as_str().to_owned())];
    more.extend(about.iter().map(|what| ("took part", what.clone())));
    let rounds = format!("{} of {} ms, all rows of a table in turn", plan.rounds, plan.time.as_millis());
    let quick = if plan.quick { "; QUICK: it works, but no target can be judged by this" } else { "" };
    more.push(("rounds", rounds + quick));
    conditions.describe(&CRATES, &more)
}

fn speed(results: &Results) -> String {
    let mut text = format!(
        "### Speed\n\n{KEYS} keys, drawn uniformly; all counters are in use before, and every check passes. \
         Callers ask again as soon as they are answered. Median of the rounds, least and largest in \
         brackets. CPU time is per check; that of Rust candidates includes the callers' own. The last \
         column is throughput over that of a script per request in the same scenario.\n"
    );
    for flavour in FLAVOURS {
        for callers in CALLERS {
            let rows = rows(flavour, callers);
            if !rows.is_empty() {
                let _ = write!(text, "\n#### {flavour}, {callers} caller(s)\n\n");
                text += &grid(results, flavour, callers, &rows);
            }
        }
    }
    text += NOTES;
    if !results.strays.is_empty() {
        let _ = write!(text, "\n**Turns in which not all passed:**\n\n- {}\n", results.strays.join("\n- "));
    }
    text
}

const NOTES: &str = "\nScripts per request go over one multiplexed connection of redis-rs and keep a key for \
each quota. limitador asks in one round trip and counts in a second; its limits, those of limits and of \
rate-limiter-flexible are fixed windows, which cost less than buckets; none of the three has overrides, and \
the last two charge tiers one by one. The bare load generator sends recorded batches of ours again, as many \
at a time as make up the callers, two at least; its wait is that of a batch. Python and Node are processes \
of their own.\n";

fn grid(results: &Results, flavour: Flavour, callers: usize, rows: &[Row]) -> String {
    let head = [
        "scenario",
        "candidate",
        "p50 µs",
        "p99 µs",
        "checks/s",
        "server CPU µs",
        "client CPU µs",
        "over plain",
    ];
    let figures = |scenario, candidate| results.get(Cell { flavour, callers, scenario, candidate });
    let row = |&(scenario, candidate): &Row| {
        let own = figures(scenario, candidate);
        let plain = own.zip(figures(scenario, Candidate::Plain));
        let cells = own.map_or_else(|| [const { String::new() }; 5].map(|_| NOTHING.into()), shown);
        let over = plain.map_or(NOTHING.into(), |(own, plain)| {
            let ratio = own.rate.over(&plain.rate);
            format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.min, ratio.max)
        });
        let names = [scenario.name().to_owned(), candidate.name().to_owned()];
        names.into_iter().chain(cells).chain([over]).collect()
    };
    table(&head, rows.iter().map(row).collect::<Vec<_>>())
}

fn shown(figures: &Figures) -> [String; 5] {
    [
        spread(&figures.p50, 0),
        spread(&figures.p99, 0),
        spread(&figures.rate, 0),
        spread(&figures.server_cpu, 2),
        spread(&figures.client_cpu, 2),
    ]
}

/// Median, least and largest.
fn spread(series: &Series, digits: usize) -> String {
    let (median, min, max) = (series.median(), series.min(), series.max());
    format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
}

fn accuracy(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let numbers = [finding.admitted, finding.denied, finding.failed].map(|number| number.to_string());
        let names =
            [finding.flavour.to_string(), finding.scenario.name().into(), finding.candidate.name().into()];
        names.into_iter().chain(numbers).chain([format!("{:+}", finding.off())]).collect()
    };
    let head = ["server", "scenario", "candidate", "admitted", "denied", "failed", "too many"];
    format!(
        "### Accuracy\n\n{CALLERS_MAIN} callers make {HOT_ATTEMPTS} requests on {HOT_KEYS} keys with room \
         for {HOT_LIMIT} each, in windows of a day: {EXACT} should pass.\n\n{}",
        table(&head, findings.iter().map(row).collect::<Vec<_>>()),
    )
}
