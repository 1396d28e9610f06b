//! A web service with limits, without, and with those of `tower_governor`.
//!
//! Every candidate is a process of its own on one core, asked by `wrk` on the other.
//! Each measurement of a candidate stands beside one of the bare service, taken right
//! before or after it, and only their ratio counts. Beside it stand the instructions of a request above those of the
//! bare service, if valgrind is there to count them.

mod candidates;
mod count;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

pub use self::candidates::serve;
use self::candidates::{BARE, CANDIDATES};
pub use self::count::{COUNT_FLAG, count};
use crate::Result;
use crate::conditions::Conditions;
use crate::report::{self, table};
use crate::series::Series;
use crate::targets::{Target, Verdict};

/// Tells this program to be a server.
pub const SERVE_FLAG: &str = "--serve";
/// Connections that ask at once.
const CONNECTIONS: &str = "64";
/// What is asked of us, as a share of the bare service.
const ALLOWING_MIN: f64 = 0.93;
const DENYING_MIN: f64 = 0.90;

/// A candidate at work.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(name: &str) -> Result<Self> {
        let mut process = Command::new("taskset")
            .args(["-c", "0"])
            .arg(std::env::current_exe()?)
            .args([SERVE_FLAG, name])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut url = String::new();
        let stdout = process.stdout.take().ok_or("no output")?;
        BufReader::new(stdout).read_line(&mut url)?;
        Ok(Self { process, url: url.trim().to_owned() })
    }

    /// Requests per second, and the wait that one in a hundred exceeds, in microseconds.
    fn ask(&self, seconds: &str) -> Result<(f64, f64)> {
        let output = Command::new("taskset")
            .args(["-c", "1", "wrk", "--latency", "-t1", "-c", CONNECTIONS, "-d", seconds, &self.url])
            .output()
            .map_err(|error| format!("wrk: {error}; install Debian's package wrk"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let after = |label: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(label));
            line.and_then(|line| line.split_whitespace().last()).map(ToOwned::to_owned)
        };
        let rate = after("Requests/sec:").and_then(|rate| rate.parse().ok());
        let wait = after("99%").and_then(|wait| micros(&wait));
        rate.zip(wait).ok_or_else(|| format!("wrk said:\n{text}").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn micros(wait: &str) -> Option<f64> {
    let (number, factor) = [("us", 1.0), ("ms", 1e3), ("s", 1e6)]
        .into_iter()
        .find_map(|(unit, factor)| Some((wait.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[derive(Default)]
struct Row {
    share: Series,
    rate: Series,
    wait: Series,
    bare: Series,
    /// Of a request, above those of the bare service.
    instructions: Option<f64>,
}

/// Runs everything and tells about it.
///
/// # Errors
/// If a server does not start, or `wrk` is not there.
pub fn run(quick: bool) -> Result<String> {
    let conditions = Conditions::begin();
    let (rounds, seconds) = if quick { (2, "1s") } else { (11, "2s") };
    let bare = Server::start(BARE)?;
    let servers = CANDIDATES.iter().map(|candidate| Server::start(candidate.name));
    let servers = servers.collect::<Result<Vec<_>>>()?;
    let mut rows: Vec<Row> = servers.iter().map(|_| Row::default()).collect();
    bare.ask(seconds)?;
    for round in 0..rounds {
        for (server, row) in servers.iter().zip(&mut rows) {
            // In turn first and second, so that neither has the better place.
            let first = (round % 2 == 0).then(|| bare.ask(seconds)).transpose()?;
            let (rate, wait) = server.ask(seconds)?;
            let (base, _) = first.map_or_else(|| bare.ask(seconds), Ok)?;
            row.share.push(rate / base);
            row.rate.push(rate);
            row.wait.push(wait);
            row.bare.push(base);
        }
    }
    drop((bare, servers));
    // Those around the router are another type of service, and not counted.
    let counted =
        CANDIDATES.iter().map(|candidate| candidate.name).filter(|name| !name.starts_with("around"));
    for (name, above) in count::above_bare(counted)? {
        if let Some((_, row)) = CANDIDATES.iter().zip(&mut rows).find(|(candidate, _)| candidate.name == name)
        {
            row.instructions = Some(above);
        }
    }
    Ok(told(&conditions, rounds, seconds, &rows))
}

fn told(conditions: &Conditions, rounds: u32, seconds: &str, rows: &[Row]) -> String {
    let crates = ["axum", "governor", "hyper", "ratekeeper", "tokio", "tower_governor"];
    let more = [
        ("cores", "the service on core 0, wrk with 64 connections on core 1".to_owned()),
        ("rounds", format!("{rounds} pairs of {seconds} each, bare first and second in turn")),
        ("command", "`make bench-http`".to_owned()),
    ];
    let conditions = conditions.describe(&crates, &more);
    let share_of = |name: &str| {
        let found = CANDIDATES.iter().zip(rows).find(|(candidate, _)| candidate.name == name);
        found.map_or(f64::NAN, |(_, row)| row.share.median())
    };
    let instructions_of = |name: &str| {
        let found = CANDIDATES.iter().zip(rows).find(|(candidate, _)| candidate.name == name);
        found.and_then(|(_, row)| row.instructions)
    };
    let (ours, theirs) = (instructions_of("ratekeeper-allows"), instructions_of("governor-allows"));
    let words = |count: Option<f64>| count.map_or("-".to_owned(), |count| format!("{count:.0}"));
    let target = |name: &str, min: f64, promise: &str| Target {
        verdict: if share_of(name) >= min { Verdict::Pass } else { Verdict::Miss },
        promise: promise.to_owned(),
        got: format!("{:.3}", share_of(name)),
    };
    let targets = [
        target(
            "ratekeeper-allows",
            ALLOWING_MIN,
            "allowing with the standard fields: at least 0.93 of the bare service's requests per second",
        ),
        target("around-allows", ALLOWING_MIN, "the same around the router: at least 0.93"),
        target("ratekeeper-denies", DENYING_MIN, "denying with the problem document: at least 0.90"),
        target("around-denies", DENYING_MIN, "the same around the router: at least 0.90"),
        Target {
            verdict: if ours.zip(theirs).is_some_and(|(ours, theirs)| ours < theirs) {
                Verdict::Pass
            } else {
                Verdict::Miss
            },
            promise: "allowing with the standard fields: fewer instructions than tower_governor with headers"
                .to_owned(),
            got: format!("{} against {}", words(ours), words(theirs)),
        },
    ];
    let spread = |series: &Series, digits: usize| {
        format!("{:.digits$} ({:.digits$} to {:.digits$})", series.median(), series.min(), series.max())
    };
    let cells = CANDIDATES.iter().zip(rows).map(|(candidate, row)| {
        vec![
            candidate.what.to_owned(),
            spread(&row.share, 3),
            spread(&row.rate, 0),
            spread(&row.bare, 0),
            spread(&row.wait, 0),
            words(row.instructions),
        ]
    });
    let head = [
        "service",
        "share of bare",
        "requests/s",
        "bare beside it, requests/s",
        "p99 \u{b5}s",
        "instructions above bare",
    ];
    format!(
        "## In front of a web service\n\n{conditions}\n{}\n### Requests per second\n\naxum with one route that \
         answers `ok`, on one thread; one limit per client address, in memory. Median of the pairs, least and \
         largest in brackets.\n\n{}",
        report::targets(&targets),
        table(&head, cells)
    )
}
