//! The report: Markdown, targets first.

use std::fmt::Write as _;
use std::path::Path;

use crate::candidate::Candidate;
use crate::conditions::Conditions;
use crate::measure::{Cell, Plan, Results, THREADS};
use crate::scenario::{Load, SCENARIOS};
use crate::series::Series;
use crate::targets::{Target, Verdict};
use crate::{accuracy, allocations, rss};

/// What a table says where nothing was measured.
pub(crate) const NOTHING: &str = "-";

/// Crates whose versions a reader needs to repeat a run.
const CRATES: [&str; 9] = [
    "ratekeeper",
    "governor",
    "limitador",
    "throttlecrab",
    "pingora-limits",
    "papaya",
    "ahash",
    "dashmap",
    "quanta",
];

/// Everything a run found out.
#[derive(Debug)]
pub struct Report {
    /// Under what conditions.
    pub conditions: String,
    /// Throughput.
    pub results: Results,
    /// Bytes per key.
    pub bytes: Vec<rss::Finding>,
    /// What should be admitted, and what was.
    pub accuracy: (usize, Vec<accuracy::Finding>),
    /// Allocations.
    pub allocations: Vec<allocations::Finding>,
    /// Promises.
    pub targets: Vec<Target>,
}

impl Report {
    /// The report as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let sections = [
            format!("## In memory\n\n{}", self.conditions),
            targets(&self.targets),
            throughput(&self.results),
            bytes(&self.bytes),
            accuracy(&self.accuracy),
            allocations(&self.allocations),
        ];
        sections.join("\n")
    }
}

/// The conditions as a Markdown list.
#[must_use]
pub fn conditions(conditions: &Conditions, plan: Plan) -> String {
    let quick = if plan.is_quick() { "; QUICK: it works, but no target can be judged by this" } else { "" };
    let rounds = format!("{} of {} ms, candidates in turn{quick}", plan.rounds, plan.time.as_millis());
    conditions.describe(&CRATES, &[("rounds", rounds)])
}

/// Puts `text` into a file, in place of what stands between the two marks of
/// its section; what people wrote around it stays. A new file has only that.
///
/// # Errors
/// If the file cannot be read or written.
pub fn write_section(path: &Path, section: &str, text: &str) -> std::io::Result<()> {
    let (begin, end) = (format!("<!-- {section}: begin -->\n"), format!("<!-- {section}: end -->"));
    let old = if path.exists() { std::fs::read_to_string(path)? } else { format!("{begin}{end}\n") };
    let (before, rest) = old.split_once(&begin).unwrap_or((&old, ""));
    let after = rest.split_once(&end).map_or("\n", |(_, after)| after);
    std::fs::write(path, format!("{before}{begin}{text}{end}{after}"))
}

/// A Markdown table.
pub(crate) fn table<'a>(head: &[&str], rows: impl IntoIterator<Item = Vec<String>> + 'a) -> String {
    let rule = vec!["---"; head.len()].join("|");
    let mut text = format!("| {} |\n|{rule}|\n", head.join(" | "));
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// The section on targets.
pub(crate) fn targets(targets: &[Target]) -> String {
    let row = |target: &Target| {
        vec![target.verdict.as_str().to_owned(), target.promise.clone(), target.got.clone()]
    };
    let count = |verdict| targets.iter().filter(|target| target.verdict == verdict).count();
    let table = table(&["", "target", "measured"], targets.iter().map(row));
    let (pass, miss, absent) = (count(Verdict::Pass), count(Verdict::Miss), count(Verdict::Absent));
    format!(
        "### Targets\n\n{pass} PASS, {miss} MISS, {absent} ABSENT. Ratios are of the medians below, all from \
         this run; in brackets the least and the largest of a single round.\n\n{table}"
    )
}

fn throughput(results: &Results) -> String {
    let mut text = String::from(
        "### Throughput\n\nEvery row writes a 32-byte key from an index and asks; `harness` is the writing \
         alone. All keys exist before. Median of the rounds, least and largest in brackets.\n",
    );
    for load in Load::ALL {
        for threads in THREADS {
            let unit = if threads == 1 { "ns per check" } else { "million checks/s in total" };
            let _ = write!(text, "\n#### {}, {threads} thread(s): {unit}\n\n", load.name());
            text += &grid(results, load, threads, |series, _| spread(series, threads));
        }
    }
    for load in Load::ALL {
        for threads in THREADS {
            let _ =
                write!(text, "\n#### {}, {threads} thread(s): throughput over governor's\n\n", load.name());
            text += &grid(results, load, threads, |series, governor| {
                format!("{:.2}", series.over(governor).median)
            });
        }
    }
    text += "\nthrottlecrab takes `&mut self`: two threads share it behind a parking_lot mutex; with a burst of 1 it \
             admits everything, so its denied rows have a burst of 2. limitador's context is built for every \
             check, because it carries the key. pingora-limits is a sketch: it counts approximately, for all \
             keys together, in fixed memory.\n";
    if !results.strays.is_empty() {
        let _ = write!(text, "\n**Answers other than set up for:**\n\n- {}\n", results.strays.join("\n- "));
    }
    text
}

/// A table of all candidates and scenarios; `show` gets a cell's series and
/// governor's.
fn grid(results: &Results, load: Load, threads: usize, show: impl Fn(&Series, &Series) -> String) -> String {
    let names = SCENARIOS.iter().map(|scenario| scenario.name);
    let head: Vec<&str> = std::iter::once("candidate").chain(names).collect();
    let series = |candidate, scenario| results.get(Cell { scenario, threads, load, candidate });
    let shown = |candidate, scenario| {
        let pair = series(candidate, scenario).zip(series(Candidate::Governor, scenario));
        pair.map_or(NOTHING.into(), |(own, governor)| show(own, governor))
    };
    let measured = |candidate: &Candidate| series(*candidate, 0).is_some();
    let rows = Candidate::ALL.into_iter().filter(measured).map(|candidate| {
        let cells = (0..SCENARIOS.len()).map(|scenario| shown(candidate, scenario));
        std::iter::once(candidate.name().to_owned()).chain(cells).collect()
    });
    table(&head, rows.collect::<Vec<_>>())
}

/// Median, least and largest: times for one thread, rates for several.
fn spread(series: &Series, threads: usize) -> String {
    let (median, min, max) = (series.median(), series.min(), series.max());
    if threads == 1 {
        let nanos = |rate: f64| 1e9 / rate;
        format!("{:.1} ({:.1} to {:.1})", nanos(median), nanos(max), nanos(min))
    } else {
        format!("{:.2} ({:.2} to {:.2})", median / 1e6, min / 1e6, max / 1e6)
    }
}

fn bytes(findings: &[rss::Finding]) -> String {
    let row = |finding: &rss::Finding| {
        let name = finding.candidate.name().to_owned();
        vec![name, finding.keys.to_string(), format!("{:.1}", finding.bytes_per_key)]
    };
    format!(
        "### Bytes per key\n\nGrowth of the resident set while keys of 32 bytes are made, one quota each; a \
         process per figure.\n\n{}",
        table(&["candidate", "keys", "bytes per key"], findings.iter().map(row)),
    )
}

fn accuracy((exact, findings): &(usize, Vec<accuracy::Finding>)) -> String {
    let row = |finding: &accuracy::Finding| {
        let cells = finding.admitted.map_or(["no clock to inject".into(), NOTHING.into()], |admitted| {
            let off = admitted.total.cast_signed() - exact.cast_signed();
            [format!("{} ({off:+})", admitted.total), admitted.wrong_bursts.to_string()]
        });
        std::iter::once(finding.candidate.name().to_owned()).chain(cells).collect()
    };
    format!(
        "### Accuracy\n\n{} bursts of {} requests at one instant, 0.1 to 30 s apart in virtual time; a bucket \
         of {} that refills in {} s. An exact token bucket admits {exact} of {}.\n\n{}",
        accuracy::BURSTS,
        accuracy::REQUESTS,
        accuracy::TERMS.limit,
        accuracy::TERMS.window.as_secs(),
        accuracy::BURSTS * accuracy::REQUESTS,
        table(&["candidate", "admitted", "bursts that differ"], findings.iter().map(row)),
    )
}

/// The section on allocations.
#[must_use]
pub fn allocations(findings: &[allocations::Finding]) -> String {
    let row = |finding: &allocations::Finding| {
        let name = finding.candidate.name().to_owned();
        vec![name, finding.load.name().to_owned(), finding.allocations.to_string()]
    };
    format!(
        "### Allocations\n\nIn {} checks on 10^4 keys that exist.\n\n{}",
        allocations::CHECKS,
        table(&["candidate", "load", "allocations"], findings.iter().map(row)),
    )
}
